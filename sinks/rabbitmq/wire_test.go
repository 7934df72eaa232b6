package rabbitmq

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// recording is a connection that records each write.
type recording struct {
	net.Conn
	writes []string
	err    error
	closed bool
}

func (r *recording) Write(text []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.writes = append(r.writes, string(text))
	return len(text), nil
}

func (r *recording) SetWriteDeadline(time.Time) error { return nil }

func (r *recording) Close() error {
	r.closed = true
	return nil
}

func TestWireCombinesWrites(t *testing.T) {
	t.Parallel()
	r := &recording{}
	w := &wire{Conn: r}
	large := strings.Repeat("x", mostHeld)
	write := func(text string) {
		if n, err := io.WriteString(w, text); n != len(text) || err != nil {
			t.Errorf("wrote %d bytes, %v", n, err)
		}
	}
	write("a")
	w.hold()
	write("b")
	w.hold()
	write("c")
	w.release()
	write("d")
	w.release() // the last holder: writes the buffer
	w.hold()
	write("e")
	write(large) // doesn't fit into the buffer
	write("f")
	w.release()
	w.hold()
	w.release() // nothing to write
	if got, want := strings.Join(r.writes, "|"), "a|bcd|e|"+large+"|f"; got != want {
		t.Errorf("%d bytes, want %d: %.20q", len(got), len(want), got)
	}
}

// TestWireWritesNothingAfterAFailure: after a failed write nothing more is written, because
// bytes would be missing in the middle of the stream.
func TestWireWritesNothingAfterAFailure(t *testing.T) {
	t.Parallel()
	r := &recording{err: errors.New("broken")}
	w := &wire{Conn: r}
	w.hold()
	if _, err := io.WriteString(w, "a"); err != nil {
		t.Errorf("held: %v", err)
	}
	w.release()
	r.err = nil
	if _, err := io.WriteString(w, "b"); err == nil || !r.closed || len(r.writes) > 0 {
		t.Errorf("error %v, closed %v, written %q", err, r.closed, r.writes)
	}
}
