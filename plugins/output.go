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

// output collects what a plug-in prints and logs, and writes it to the relay's log.
type output struct {
	logger *slog.Logger
	redact settings.Redactor
	mu     sync.Mutex
	first  string   // first line of the standard output, which should be the handshake
	last   []string // last lines of the standard error, for error messages
	panics bool     // the plug-in printed a panic: last has only its first line, without the stack trace

	window   time.Time // start of the current logWindow
	logged   int       // lines logged in this window
	unlogged int       // lines dropped because of the limit and not reported yet
}

// Limits.
const (
	maxLine   = 16 << 10 // bytes of a line; enough for the handshake, which contains a certificate
	lastLines = 3

	maxLinesLogged = 1000 // lines in a logWindow; further lines are only counted
	logWindow      = 10 * time.Second
)

// readStdout passes the first line to go-plugin as the handshake and logs the others.
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

// readStderr logs each line. Lines of package slog and of hclog keep their level and
// attributes.
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

// admits counts a line and reports whether it may be logged.
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

// nextWindow starts another window if the current one has ended, and reports whether it did.
func (o *output) nextWindow(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.window) < logWindow {
		return false
	}
	o.window, o.logged = now, 0
	return true
}

// reportUnlogged logs how many lines were dropped since the last call, if any.
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

// words returns the last lines that the plug-in printed, for an error message.
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

// Write logs what the plug-in prints after the handshake.
func (o *output) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		o.printed(strings.TrimRight(line, "\r\n"))
	}
	return len(text), nil
}

// lines yields the lines of a reader until its end, each cut to maxLine bytes.
func lines(from io.Reader) func(yield func(string) bool) {
	reader := bufio.NewReaderSize(from, maxLine)
	return func(yield func(string) bool) {
		rest := false // true while the rest of a line longer than maxLine is skipped
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

// logged parses a JSON line of package slog or hclog.
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

// levelOf parses the name of a level. hclog's lowest level, trace, becomes debug.
func levelOf(name any) slog.Level {
	var level slog.Level
	text, _ := name.(string)
	if text == "trace" || level.UnmarshalText([]byte(text)) == nil && level < slog.LevelDebug {
		return slog.LevelDebug
	}
	return level
}

// attributesOf returns the members of a log line, sorted, except message, level, time and caller.
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
