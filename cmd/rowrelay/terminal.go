package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen is a stream that a person sits at. Tests have one that is no file.
type screen interface{ Columns() int }

// columns is how wide a stream is, if it is a terminal, and 0 elsewhere.
func columns(stream any) int {
	switch stream := stream.(type) {
	case *checkedWriter:
		return columns(stream.to)
	case screen:
		return stream.Columns()
	case *os.File:
		if !term.IsTerminal(int(stream.Fd())) {
			return 0
		}
		if width, _, err := term.GetSize(int(stream.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}
	return 0
}

// errKept says that somebody has answered no.
var errKept = errors.New("nothing was changed")

// confirm asks a question that is answered with yes or no; nil is yes.
func (p program) confirm(ctx context.Context, question string) error {
	if _, err := fmt.Fprintf(p.stderr, "%s [y/N] ", question); err != nil {
		return err
	}
	answer := make(chan string, 1)
	go func() { // it stays behind where it is interrupted: nothing ends a read
		line, _ := bufio.NewReader(p.stdin).ReadString('\n') // the end of the input is a no
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

// stopped is what was done when a command was interrupted.
type stopped struct{ done string }

func (s stopped) Error() string {
	if s.done == "" {
		return "interrupted"
	}
	return "interrupted: " + s.done
}

// How often progress is told: a line is drawn again on a terminal, and written elsewhere.
const (
	redrawn = 200 * time.Millisecond
	written = 10 * time.Second
)

// progress tells on stderr how far long work is.
type progress struct {
	to          io.Writer
	columns     int // of a terminal
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

// tell says how far it is, if it is time to; text gets the rate that was reached, and total is 0
// where nobody knows it.
func (p *progress) tell(done, total int, text func(rate float64) string) {
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

// end takes the line away, so that what follows stands by itself.
func (p *progress) end() {
	if p.drawn {
		_, _ = fmt.Fprint(p.to, "\r\x1b[K")
		p.drawn = false
	}
}

// grouped is a number that people can read.
func grouped(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
