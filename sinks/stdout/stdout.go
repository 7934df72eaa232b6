// Package stdout is a sink that writes each message as a line of JSON to the
// standard output, or to any other writer. `rowrelay enqueue` reads such lines.
package stdout

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Options configure a [Sink].
type Options struct {
	// Writer receives the lines, with one Write per batch. Defaults to os.Stdout.
	// The sink doesn't close it.
	Writer io.Writer
}

// Sink writes messages as JSON lines. A message is delivered when the writer has
// accepted its whole line. Its methods may be called concurrently.
type Sink struct {
	writer io.Writer
	serial *sinks.Serial
	torn   bool // the last Write ended inside a line; guarded by serial
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Ordered = (*Sink)(nil)
)

// New returns a sink that writes to options.Writer.
func New(options Options) *Sink {
	return &Sink{writer: cmp.Or[io.Writer](options.Writer, os.Stdout), serial: sinks.NewSerial()}
}

// Open does nothing.
func (s *Sink) Open(context.Context) error { return nil }

// Destination returns "stdout".
func (s *Sink) Destination() string { return "stdout" }

// Close waits for a running write until the context ends.
func (s *Sink) Close(ctx context.Context) error {
	return s.serial.Do(ctx, func() error { return nil })
}

// Order returns [sinks.OrderPrefix].
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send writes the batch with a single Write. It rejects a message that can't be written
// as JSON. If the writer fails, messages whose whole line it accepted are delivered, and
// the sink is unavailable for the others. A message whose line lacks only its newline is
// a retry, because its outcome is unknown. If the context ends before Write returns, the
// outcome of every message in the batch is unknown, so all of them are retries.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	var lines bytes.Buffer
	outcomes, ends := sinks.WriteLines(&lines, batch)
	return s.serial.Send(ctx, len(batch), func(context.Context) []sinks.Outcome {
		if written, err := s.write(lines.Bytes()); err != nil {
			cutOff(outcomes, ends, written, err)
		}
		return outcomes
	})
}

// cutOff corrects the outcomes of a batch when only the given number of bytes of
// its lines was written.
func cutOff(outcomes []sinks.Outcome, ends []int, written int, err error) {
	for i, o := range outcomes {
		switch {
		case o.Result != sinks.Delivered || ends[i] <= written:
		case ends[i] == written+1: // only the newline is missing; the next write adds it
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, err.Error())
		default:
			outcomes[i] = sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, err.Error())
		}
	}
}

// write writes the text and returns how many of its bytes were written. If the previous
// write ended inside a line, write first starts a new line, so that a reader loses only
// the incomplete line.
func (s *Sink) write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	if s.torn {
		if _, err := s.writer.Write([]byte("\n")); err != nil {
			return 0, err
		}
		s.torn = false
	}
	n, err := s.writer.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	s.torn = n > 0 && text[n-1] != '\n'
	return n, err
}

// Kind returns the description of the sink for a registry. Its name is "stdout", and its
// URL is "stdout:", without a path.
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "stdout",
		Summary: "Writes each message as a line of JSON to the standard output.",
		Schemes: []string{"stdout"},
		FromURL: settings.NothingFromURL,
		New:     func(settings.Values) (sinks.Sink, error) { return New(Options{}), nil },
	}
}
