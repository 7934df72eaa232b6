//go:build unix

package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ways are two connected ends: the relay's way, and the plug-in's side of it.
func ways(t *testing.T) (relay *direct, plugin *net.UnixConn) {
	t.Helper()
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	end, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	d := &direct{control: ours, ready: true}
	t.Cleanup(d.close)
	t.Cleanup(func() { _ = end.Close() })
	return d, end.(*net.UnixConn)
}

// called connects both sides as a call does.
func called(t *testing.T) (d *direct, relay, plugin *net.UnixConn) {
	t.Helper()
	d, control := ways(t)
	relay = d.take()
	plugin, err := accept(control)
	if relay == nil || err != nil {
		t.Fatalf("no connection: %v", err)
	}
	t.Cleanup(func() { _ = plugin.Close() })
	return d, relay, plugin
}

// A piece may be larger than what a socket holds.
func TestPiecesOfAnySize(t *testing.T) {
	t.Parallel()
	d, relay, plugin := called(t)
	go func() {
		for {
			body, err := readPiece(plugin, serverRequestBytes)
			if err != nil || writePiece(plugin, body) != nil {
				return
			}
		}
	}()
	for _, size := range []int{0, 1, 70_000, 5 << 20} {
		body := bytes.Repeat([]byte("x"), size)
		answer, err := d.call(t.Context(), relay, body)
		if err != nil || !bytes.Equal(answer, body) {
			t.Fatalf("of %d bytes, %d come back (%v)", size, len(answer), err)
		}
		if relay = d.take(); relay == nil || len(d.idle) > 0 {
			t.Fatal("the connection does not serve again")
		}
	}
	_ = relay.Close()
}

// An answer that nobody waits for any more is nobody else's: its connection is
// gone.
func TestLateAnswersGoNowhere(t *testing.T) {
	t.Parallel()
	d, relay, plugin := called(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if answer, err := d.call(ctx, relay, []byte("request")); !errors.Is(err, context.Canceled) {
		t.Errorf("the answer %q (%v)", answer, err)
	}
	if len(d.idle) > 0 {
		t.Error("the connection waits for the next call")
	}
	if _, err := readPiece(plugin, 100); err != nil {
		t.Errorf("read the request: %v", err)
	}
	if err := writePiece(plugin, []byte("late")); err == nil {
		t.Error("the late answer could be written")
	}
}

// A connection on which nonsense comes, or nothing more, is not used again.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*net.UnixConn) error{
		"the end":         func(c *net.UnixConn) error { return nil },
		"half an answer":  func(c *net.UnixConn) error { _, err := c.Write([]byte{0, 0, 0, 9, 1}); return err },
		"endless answers": func(c *net.UnixConn) error { _, err := c.Write([]byte{0xff, 0xff, 0xff, 0xff}); return err },
	} {
		d, relay, plugin := called(t)
		go func() {
			_, err := readPiece(plugin, 100)
			if err = errors.Join(err, breaks(plugin), plugin.Close()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}()
		if _, err := d.call(t.Context(), relay, []byte("request")); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		if len(d.idle) > 0 {
			t.Errorf("%s: the connection waits for the next call", name)
		}
	}
}

// Hello is looked for and not waited for, and said only where the file is the
// socket that the relay means.
func TestHello(t *testing.T) {
	t.Parallel()
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	descriptor, err := syscall.Dup(int(theirs.Fd())) // which is taken over in the end
	if err != nil {
		t.Fatal(err)
	}
	number := socketNumber(descriptor)
	for _, variable := range []string{"", "3", "x:y", fmt.Sprintf(directFormat, descriptor, number+1), "-1:0", fmt.Sprintf(directFormat, 1<<20, 0)} {
		if inherited(variable) != nil {
			t.Errorf("%q is taken for the relay's socket", variable)
		}
	}
	if saidHello(ours) {
		t.Error("hello was heard and nobody has said it")
	}
	control := inherited(fmt.Sprintf(directFormat, descriptor, number))
	if control == nil || !saidHello(ours) {
		t.Fatal("hello was not heard")
	}
	_ = control.Close()
}
