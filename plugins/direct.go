package plugins

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// directVariable tells a plug-in which file it has inherited that is a socket to
// the relay, and that socket's number in the system: it is one end of a pair, which
// has no address. A plug-in that knows what to do with it says hello there before
// it prints its first line.
//
// The relay then passes it one end of another pair for each call of Send that is
// under way at once. On that goes a SendRequest, and back comes a SendResponse, each
// after its length in four bytes, the highest first. A pair whose answer nobody
// waits for any more is closed. Nobody but the two processes can have an end of it,
// and a message costs a third of what it costs through HTTP/2 and TLS.
const (
	directVariable = "ROWRELAY_PLUGIN_SOCKET"
	directFormat   = "%d:%d"
	directFile     = 3 // the first that a program inherits besides the standard ones
	hello          = '1'
)

// direct are the relay's ends.
type direct struct {
	control *net.UnixConn

	mu     sync.Mutex
	ready  bool // the plug-in has said hello
	closed bool
	idle   []*net.UnixConn
}

// listen learns whether the plug-in takes requests so. It has said it by the time
// when its first line was read, or doesn't.
func (d *direct) listen() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = saidHello(d.control)
}

// take returns a connection that is nobody's, or nil where there is no such way,
// or no file left for one.
func (d *direct) take() *net.UnixConn {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ready || d.closed {
		return nil
	}
	if last := len(d.idle) - 1; last >= 0 {
		connection := d.idle[last]
		d.idle = d.idle[:last]
		return connection
	}
	connection, err := connect(d.control)
	if err != nil {
		return nil
	}
	return connection
}

func (d *direct) put(connection *net.UnixConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = connection.Close()
		return
	}
	d.idle = append(d.idle, connection)
}

func (d *direct) close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	_ = d.control.Close()
	for _, connection := range d.idle {
		_ = connection.Close()
	}
	d.idle = nil
}

// call sends a request and waits for its answer, as long as the context lasts.
func (d *direct) call(ctx context.Context, connection *net.UnixConn, body []byte) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	answer, err := exchange(connection, body)
	if stop() && err == nil {
		d.put(connection)
		return answer, nil
	}
	_ = connection.Close()
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, status.Error(codes.Unavailable, err.Error())
}

func exchange(connection *net.UnixConn, body []byte) ([]byte, error) {
	if err := writePiece(connection, body); err != nil {
		return nil, err
	}
	return readPiece(connection, responseBytes)
}

// writePiece writes bytes after their length, at once.
func writePiece(connection *net.UnixConn, bytes []byte) error {
	length := binary.BigEndian.AppendUint32(nil, uint32(len(bytes)))
	_, err := (&net.Buffers{length, bytes}).WriteTo(connection)
	return err
}

func readPiece(connection *net.UnixConn, most uint32) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(connection, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > most {
		return nil, fmt.Errorf("%d bytes are announced, and %d the most", length, most)
	}
	bytes := make([]byte, length)
	_, err := io.ReadFull(connection, bytes)
	return bytes, err
}
