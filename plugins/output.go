package plugins

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// output takes what a plug-in prints and logs, and makes lines of the relay's
// log of it.
type output struct {
	logger *slog.Logger
	redact settings.Redactor
	mu     sync.Mutex
	first  string   // line of the standard output: what should be the handshake
	last   []string // lines of the standard error, for whoever asks why it has ended
	panics bool     // the last line is that of a panic, what follows only says where

	window   time.Time // when the present one of logWindow began
	logged   int       // lines in it
	unlogged int       // lines beyond the limit that were not reported yet
}

// Bounds of what is kept.
const (
	maxLine   = 16 << 10 // bytes of a line; a certificate is in the handshake
	lastLines = 3

	maxLinesLogged = 1000 // in a logWindow; what is beyond is only counted
	logWindow      = 10 * time.Second
)

// readStdout passes the first line on as the handshake, and logs the others.
func (o *output) readStdout(from io.Reader, handshake *io.PipeWriter) {
	first := true
	for line := range lines(from) {
		if !first {
			o.printed(line)
			continue
		}
		first = false
		o.mu.Lock()
		o.first = line
		o.mu.Unlock()
		_, _ = io.WriteString(handshake, line+"\n")
	}
	_ = handshake.Close()
}

// readStderr logs each line, those of package slog and of hclog with their level
// and attributes.
func (o *output) readStderr(from io.Reader) {
	for line := range lines(from) {
		level, message, attributes, ok := logged(line)
		if !ok {
			o.remember(line)
			o.printed(line)
			continue
		}
		if level >= slog.LevelWarn {
			o.remember(message)
		}
		o.log(level, message, attributes)
	}
}

func (o *output) printed(line string) {
	if strings.TrimSpace(line) != "" {
		o.log(slog.LevelInfo, line, nil)
	}
}

func (o *output) log(level slog.Level, message string, attributes []slog.Attr) {
	if !o.admits() {
		return
	}
	for i, a := range attributes {
		attributes[i] = slog.String(a.Key, o.redact.Redact(a.Value.String()))
	}
	o.logger.LogAttrs(context.Background(), level, "plug-in: "+o.redact.Redact(message), attributes...)
}

// admits counts a line, and says whether it may be logged.
func (o *output) admits() bool {
	if o.nextWindow(time.Now()) {
		o.reportUnlogged()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.logged == maxLinesLogged {
		o.unlogged++
		return false
	}
	o.logged++
	return true
}

// nextWindow begins another window if the present one is over.
func (o *output) nextWindow(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.window) < logWindow {
		return false
	}
	o.window, o.logged = now, 0
	return true
}

// reportUnlogged logs how many lines were not logged since it was last called, if any.
func (o *output) reportUnlogged() {
	o.mu.Lock()
	lines := o.unlogged
	o.unlogged = 0
	o.mu.Unlock()
	if lines > 0 {
		o.logger.Warn("plug-in output was not logged: too many lines", "lines", lines)
	}
}

func (o *output) remember(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.panics {
		return
	}
	o.panics = strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	o.last = append(o.last, shorten(o.redact.Redact(line), 200))
	if o.panics {
		o.last = o.last[len(o.last)-1:]
	}
	o.last = o.last[max(len(o.last)-lastLines, 0):]
}

// words returns what the plug-in said last, for an error.
func (o *output) words() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) == 0 {
		return ""
	}
	return ": " + strings.Join(o.last, " / ")
}

// greeting returns the first line of the standard output.
func (o *output) greeting() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first
}

// Write takes what the plug-in has printed since it answers.
func (o *output) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		o.printed(strings.TrimRight(line, "\r\n"))
	}
	return len(text), nil
}

// lines yields the lines of a reader until its end, cut to what is kept of them,
// however long they are.
func lines(from io.Reader) func(yield func(string) bool) {
	reader := bufio.NewReaderSize(from, maxLine)
	return func(yield func(string) bool) {
		rest := false // of a line of which the beginning was yielded
		for {
			line, err := reader.ReadSlice('\n')
			if !rest && len(line) > 0 && !yield(strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "\uFFFD")) {
				return
			}
			if rest = errors.Is(err, bufio.ErrBufferFull); !rest && err != nil {
				return
			}
		}
	}
}

// logged reads a line of package slog's or hclog's JSON.
func logged(line string) (level slog.Level, message string, attributes []slog.Attr, ok bool) {
	var members map[string]any
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &members) != nil {
		return 0, "", nil, false
	}
	textKey, levelKey := slog.MessageKey, slog.LevelKey
	if members["@message"] != nil {
		textKey, levelKey = "@message", "@level"
	}
	message, isText := members[textKey].(string)
	return levelOf(members[levelKey]), message, attributesOf(members), isText
}

// levelOf reads a level's name; hclog's lowest is below slog's.
func levelOf(name any) slog.Level {
	var level slog.Level
	text, _ := name.(string)
	if text == "trace" || level.UnmarshalText([]byte(text)) == nil && level < slog.LevelDebug {
		return slog.LevelDebug
	}
	return level
}

// attributesOf are those of a log line, sorted; its time is about the relay's.
func attributesOf(members map[string]any) (attributes []slog.Attr) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch strings.TrimPrefix(name, "@") {
		case slog.MessageKey, "message", slog.LevelKey, slog.TimeKey, "timestamp", "caller":
			continue
		}
		attributes = append(attributes, slog.String(name, shown(members[name])))
	}
	return attributes
}

func shown(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}
