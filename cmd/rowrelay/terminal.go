package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// screen is an output that has a terminal's size, but isn't an [os.File]: a [frame], or a terminal in a test.
type screen interface{ Size() (columns, rows int) }

// size returns the size of a terminal, and 0, 0 for any other stream.
func size(stream any) (columns, rows int) {
	switch stream := stream.(type) {
	case *checkedWriter:
		return size(stream.to)
	case screen:
		return stream.Size()
	case *os.File:
		if !term.IsTerminal(int(stream.Fd())) {
			return 0, 0
		}
		if columns, rows, err := term.GetSize(int(stream.Fd())); err == nil && columns > 0 && rows > 0 {
			return columns, rows
		}
		return 80, 24
	}
	return 0, 0
}

// columns returns the width of a terminal, and 0 for any other stream.
func columns(stream any) int {
	columns, _ := size(stream)
	return columns
}

// wantsColours reports whether the environment permits colours; see https://no-color.org.
func wantsColours() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// colours has the ANSI colour of each state.
var colours = map[string]string{
	string(storage.StateError): "31", string(storage.StateRetry): "33", string(storage.StateDone): "32",
	string(storage.StateScheduled): "36", string(storage.StateClaimed): "34",
}

// drawTable prints rows on a terminal. It cuts the widest columns until the rows fit, and colours states.
func (p program) drawTable(rows [][]string, columns int) error {
	const gap, least = 2, 6
	cells := make([][]string, len(rows))
	var widths []int
	for i, row := range rows {
		for n, text := range row {
			text = cell(printable(text), 1<<20) // removes the line feed before a header
			cells[i] = append(cells[i], text)
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], utf8.RuneCountInString(text))
		}
	}
	for {
		all, widest := -gap, 0
		for n, width := range widths {
			all += width + gap
			if width > widths[widest] {
				widest = n
			}
		}
		if all <= columns || widths[widest] <= least {
			break
		}
		widths[widest] = max(least, widths[widest]-(all-columns))
		for n, width := range widths { // shrink the widest column only until it is narrower than the next widest one
			if n != widest && width > widths[widest] {
				widths[widest] = min(width-1, widths[widest]+all-columns)
			}
		}
	}
	header := len(rows) > 0 && strings.TrimSpace(rows[0][0]) == strings.ToUpper(strings.TrimSpace(rows[0][0]))
	var drawn strings.Builder
	for i, row := range cells {
		if i == 0 && strings.HasPrefix(rows[0][0], "\n") {
			drawn.WriteByte('\n')
		}
		for n, text := range row {
			text = cell(text, widths[n])
			space := widths[n] - utf8.RuneCountInString(text) + gap
			switch colour := colours[text]; {
			case !p.colours:
			case header && i == 0:
				text = "\x1b[1m" + text + "\x1b[0m"
			case colour != "" && (header && cells[0][n] == "STATE" || !header && n == 0):
				text = "\x1b[" + colour + "m" + text + "\x1b[0m"
			}
			drawn.WriteString(text)
			if n < len(row)-1 {
				drawn.WriteString(strings.Repeat(" ", space))
			}
		}
		drawn.WriteByte('\n')
	}
	return p.print(drawn.String())
}

// when formats a time. On a terminal the time is relative to now on this machine's clock.
func (p program) when(at time.Time) string {
	if at.IsZero() || columns(p.stdout) == 0 {
		return shownTime(at)
	}
	if since := time.Since(at); since >= 0 {
		return elapsed(since) + " ago"
	}
	return "in " + elapsed(time.Until(at))
}

// elapsed formats a duration for people, in its two largest units.
func elapsed(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, unit := range units[:len(units)-1] {
		if d < unit.size {
			continue
		}
		text := fmt.Sprint(int64(d/unit.size), unit.name)
		if rest := d % unit.size / units[i+1].size; rest > 0 {
			text += fmt.Sprint(" ", int64(rest), units[i+1].name)
		}
		return text
	}
	switch {
	case d >= 10*time.Second:
		return fmt.Sprint(int64(d/time.Second), "s")
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	default:
		return d.Round(time.Millisecond).String()
	}
}

// frame is one output of redraw.
type frame struct {
	bytes.Buffer
	columns, rows int
}

func (f *frame) Size() (columns, rows int) { return f.columns, f.rows }

// redraw prints the output of the function draw immediately and then after each interval, until the
// context ends. On a terminal each output replaces the previous one and is cut to fit. redraw returns an
// error of the first call of draw, and prints the errors of later calls.
func (p program) redraw(ctx context.Context, every time.Duration, draw func(program) error) error {
	for first := true; ; first = false {
		onto := p
		picture := &frame{}
		picture.columns, picture.rows = size(p.stdout)
		onto.stdout = picture
		err := draw(onto)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		if err != nil {
			_, _ = fmt.Fprintf(picture, "%s\n", printable(err.Error()))
		}
		text := picture.String()
		if picture.columns > 0 {
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			lines = lines[:min(len(lines), picture.rows-1)]
			text = "\x1b[H" + strings.Join(lines, "\x1b[K\n") + "\x1b[K\n\x1b[J"
			if first {
				text = "\x1b[2J" + text
			}
		}
		if err := p.print(text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// errKept means that the user answered no.
var errKept = errors.New("nothing was changed")

// confirm asks a yes-or-no question. It returns nil if the answer is yes.
func (p program) confirm(ctx context.Context, question string) error {
	if _, err := fmt.Fprintf(p.stderr, "%s [y/N] ", question); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() { // after an interruption this goroutine remains, because a read can't be cancelled
		line, _ := bufio.NewReader(p.stdin).ReadString('\n') // the end of the input counts as no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case given := <-answer:
		if given == "y" || given == "yes" {
			return nil
		}
		return errKept
	case <-ctx.Done():
		_, _ = fmt.Fprintln(p.stderr)
		return stopped{errKept.Error()}
	}
}

// stopped is the error of an interrupted command. The field done describes how far the command got.
type stopped struct{ done string }

func (s stopped) Error() string {
	if s.done == "" {
		return "interrupted"
	}
	return "interrupted: " + s.done
}

// Intervals between progress lines: redrawn is the interval on a terminal, where each line replaces the
// previous one, and written is the interval on other streams.
const (
	redrawn = 200 * time.Millisecond
	written = 10 * time.Second
)

// progress prints the progress of long work to stderr.
type progress struct {
	to          io.Writer
	columns     int // the width of the terminal; 0 if to isn't a terminal
	every       time.Duration
	start, last time.Time
	drawn       bool
}

func newProgress(to io.Writer) *progress {
	p := &progress{to: to, columns: columns(to), every: written, start: time.Now()}
	if p.columns > 0 {
		p.every = redrawn
	}
	p.last = p.start
	return p
}

// update prints a line of progress if the interval since the last line has passed. It calls the function
// text with the rate per second to make the line. The argument total is 0 if the total is unknown.
func (p *progress) update(done, total int, text func(rate float64) string) {
	now := time.Now()
	if now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	line := printable(text(float64(done) / now.Sub(p.start).Seconds()))
	if p.columns == 0 {
		_, _ = fmt.Fprintln(p.to, line)
		return
	}
	const bar = 20
	if total > 0 && p.columns > 3*bar {
		full := min(bar, bar*done/total)
		line = "[" + strings.Repeat("#", full) + strings.Repeat("-", bar-full) + "] " + line
	}
	p.drawn = true
	_, _ = fmt.Fprint(p.to, "\r\x1b[K", cell(line, p.columns-1))
}

// end removes the line of progress from the terminal.
func (p *progress) end() {
	if p.drawn {
		_, _ = fmt.Fprint(p.to, "\r\x1b[K")
		p.drawn = false
	}
}

// grouped formats a number with thousands separators.
func grouped(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
