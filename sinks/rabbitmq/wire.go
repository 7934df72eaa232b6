package rabbitmq

import (
	"net"
	"sync"
	"time"
)

// writeTimeout limits a write to the socket. If the broker reads nothing during this
// time, the sink closes the connection.
const writeTimeout = 10 * time.Second

// wire is a connection that limits the time of each write, combines several messages
// into one write, and can be reset. Without it, the library flushes after each message,
// which costs more than all other work for a small message.
type wire struct {
	net.Conn

	mu      sync.Mutex
	holders int    // number of calls to hold minus number of calls to release
	held    []byte // bytes that are buffered while holders is above 0
	err     error  // the error of the first failed write, after which nothing is written
	limited int64  // time at which the write deadline was set, in Unix seconds
}

// mostHeld is the maximum number of buffered bytes.
const mostHeld = 32 << 10

// hold makes Write buffer its data until release is called. Each call to hold needs one call
// to release.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders++
}

// release undoes one call to hold. The last release writes the buffer. A failed write
// closes the connection, so that goroutines that wait for an answer return.
func (w *wire) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holders--; w.holders == 0 {
		_, _ = w.flush(nil)
	}
}

// Write implements [net.Conn].
func (w *wire) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holders > 0 && len(w.held)+len(text) <= mostHeld {
		w.held = append(w.held, text...)
		return len(text), w.err
	}
	return w.flush(text)
}

// flush writes the buffer, and then the given text.
func (w *wire) flush(text []byte) (int, error) {
	if len(w.held) > 0 {
		_ = w.write(w.held)
		w.held = w.held[:0]
	}
	if len(text) > 0 {
		_ = w.write(text)
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(text), nil
}

// write writes to the socket. It updates the write deadline only once a second,
// because doing so for each write would cost more than writing a small message.
func (w *wire) write(text []byte) error {
	if now := time.Now(); w.err == nil && now.Unix() != w.limited {
		w.limited = now.Unix()
		w.err = w.SetWriteDeadline(now.Add(writeTimeout))
	}
	if w.err == nil {
		if _, w.err = w.Conn.Write(text); w.err != nil {
			w.cut()
		}
	}
	return w.err
}

// cut resets the connection immediately. As far as possible, the reset discards data
// that the broker has not read yet, so that the data does not arrive late.
func (w *wire) cut() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = w.Close()
}
