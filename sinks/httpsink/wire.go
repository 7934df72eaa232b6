package httpsink

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
)

// countingConn counts the bytes written to a connection. httptrace is not sufficient for this, because
// Go's client reports a request as written even if the request is still in the client's buffer.
type countingConn struct {
	net.Conn
	written atomic.Int64
	begun   atomic.Int64 // bytes written before the request in progress
}

// Write returns no error if the endpoint resets the connection in the middle of a request. After an error,
// the client would drop an answer that has already arrived, such as 413 or 429. Without an error, the client
// reads the answer, or gets the error when it reads.
func (c *countingConn) Write(text []byte) (int, error) {
	n, err := c.Conn.Write(text)
	written := c.written.Add(int64(n))
	reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	if reset && written > c.begun.Load() {
		return len(text), nil
	}
	return n, err
}

// counted wraps the connections of dial in countingConn.
func counted(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		counting := &countingConn{Conn: conn}
		counting.begun.Store(math.MaxInt64) // until the first request, Write hides no error
		return counting, nil
	}
}

// wire tracks how much of a request was written. Go's client calls the methods of wire from other
// goroutines.
type wire struct {
	conn   atomic.Pointer[countingConn]
	before atomic.Int64 // bytes written to the connection before this request
	shared atomic.Bool  // the connection is HTTP/2, so other requests may use it at the same time
	began  atomic.Bool  // the request's header was written; on HTTP/1 only to a buffer
}

func (w *wire) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      w.gotConn,
		WroteHeaders: func() { w.began.Store(true) },
	})
}

// gotConn is called for each connection on which the client tries the request. If the client could not
// write any part of the request to one connection, it may try another.
func (w *wire) gotConn(info httptrace.GotConnInfo) {
	conn := info.Conn
	if secured, ok := conn.(*tls.Conn); ok {
		w.shared.Store(secured.ConnectionState().NegotiatedProtocol == "h2")
		conn = secured.NetConn()
	}
	w.began.Store(false)
	if counting, ok := conn.(*countingConn); ok {
		w.before.Store(counting.written.Load())
		counting.begun.Store(counting.written.Load())
		w.conn.Store(counting)
	}
}

// mayHaveArrived reports whether any part of the request was written. If it reported only complete
// requests, an endpoint that interrupts every request for one message would seem to be down, and the relay
// would send the message again without limit.
func (w *wire) mayHaveArrived() bool {
	conn := w.conn.Load()
	if conn == nil || w.shared.Load() && !w.began.Load() {
		return false
	}
	return conn.written.Load() > w.before.Load()
}

// unanswered holds the ids of messages and arrays whose last request got no answer. The relay doesn't
// always charge an attempt for such a request, so the attempt number doesn't show whether the next
// request is a repetition.
type unanswered struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

// mostUnanswered is the maximum number of ids in memory. The next id after that replaces all of them.
const mostUnanswered = 10_000

func (u *unanswered) add(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil || len(u.ids) >= mostUnanswered {
		u.ids = map[string]struct{}{}
	}
	u.ids[id] = struct{}{}
}

func (u *unanswered) has(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, found := u.ids[id]
	return found
}

func (u *unanswered) remove(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ids, id)
}
