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

// Options say where a [Sink] writes.
type Options struct {
	// Writer takes the lines, one Write a batch. Defaults to os.Stdout. The
	// sink doesn't close it.
	Writer io.Writer
}

// Sink writes messages as JSON lines. A message is delivered when the writer
// has taken its whole line. Its methods may be called concurrently.
type Sink struct {
	writer io.Writer
	serial *sinks.Serial
	torn   bool // the last Write ended inside a line; guarded by serial
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Ordered = (*Sink)(nil)
)

// New returns a sink that writes to the writer of the options.
func New(options Options) *Sink {
	return &Sink{writer: cmp.Or[io.Writer](options.Writer, os.Stdout), serial: sinks.NewSerial()}
}

// Open does nothing.
func (s *Sink) Open(context.Context) error { return nil }

// Destination is "stdout".
func (s *Sink) Destination() string { return "stdout" }

// Close waits for a write that is still running, as long as the context lets it.
func (s *Sink) Close(ctx context.Context) error {
	return s.serial.Do(ctx, func() error { return nil })
}

// Order promises that what is written is a prefix of the batch.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send writes the batch at once. What can't be JSON is rejected; where the
// writer fails, the messages whose lines it took are delivered, and the sink is
// unavailable for the others. A writer that blocks for longer than the context
// lives leaves an unknown result, which is a retry.
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

// cutOff corrects the outcomes of a batch of which only so much was written.
func cutOff(outcomes []sinks.Outcome, ends []int, written int, err error) {
	for i, o := range outcomes {
		switch {
		case o.Result != sinks.Delivered || ends[i] <= written:
		case ends[i] == written+1: // only the newline is missing, and comes with the next batch
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, err.Error())
		default:
			outcomes[i] = sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, err.Error())
		}
	}
}

// write returns how much of the text was written. After a torn line it begins a
// new one, so that a reader loses nothing but the rest of that line.
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

// Kind describes the sink for a registry: the kind "stdout", URL "stdout:".
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "stdout",
		Summary: "Writes each message as a line of JSON to the standard output.",
		Schemes: []string{"stdout"},
		FromURL: settings.NothingFromURL,
		New:     func(settings.Values) (sinks.Sink, error) { return New(Options{}), nil },
	}
}
