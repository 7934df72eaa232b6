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

// countingConn knows how much was written to a connection. Go's client says
// that it "wrote" a request when that is in its buffer.
type countingConn struct {
	net.Conn
	written atomic.Int64
	begun   atomic.Int64 // what was written before the request that is under way
}

// Write hides that the endpoint reset the connection in the middle of a request: the client would
// drop an answer that has arrived by then, such as 413 or 429. Reading returns the answer, or the error.
func (c *countingConn) Write(text []byte) (int, error) {
	n, err := c.Conn.Write(text)
	written := c.written.Add(int64(n))
	reset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	if reset && written > c.begun.Load() {
		return len(text), nil
	}
	return n, err
}

// counted makes connections that count.
func counted(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		counting := &countingConn{Conn: conn}
		counting.begun.Store(math.MaxInt64) // a handshake is no request
		return counting, nil
	}
}

// wire knows how far a request has come. The client calls it from goroutines of
// its own.
type wire struct {
	conn   atomic.Pointer[countingConn]
	before atomic.Int64 // what the connection had written before this request
	shared atomic.Bool  // the connection is HTTP/2's, and has other requests on it
	began  atomic.Bool  // the request's header was written; on HTTP/1, to a buffer
}

func (w *wire) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      w.gotConn,
		WroteHeaders: func() { w.began.Store(true) },
	})
}

// gotConn comes once more when the client found that nothing of the request had
// gone out on the connection before.
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

// mayHaveArrived says that something of the request has gone out. It need not be
// all: an endpoint that hangs up in the middle of some requests must not look
// like an outage, which would be waited for without end.
func (w *wire) mayHaveArrived() bool {
	conn := w.conn.Load()
	if conn == nil || w.shared.Load() && !w.began.Load() {
		return false
	}
	return conn.written.Load() > w.before.Load()
}

// unanswered knows the messages and arrays whose last request got no answer. An outage charges them no
// attempt, so the attempt's number doesn't show that the next request is a repetition.
type unanswered struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

// mostUnanswered bounds the memory for ids.
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
