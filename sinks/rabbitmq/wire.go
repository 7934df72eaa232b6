package rabbitmq

import (
	"net"
	"sync"
	"time"
)

// writeTimeout is how long the broker may read nothing before a connection is
// given up: one write to the socket, not one message.
const writeTimeout = 10 * time.Second

// wire is a connection whose writes don't wait for ever, which can be cut, and
// which writes several messages at once: the library flushes after each one,
// and that costs more than all the rest of a small message.
type wire struct {
	net.Conn

	mu      sync.Mutex
	holders int    // parts that are publishing
	held    []byte // what they have published
	err     error  // of the first write that failed; nothing is written after it
	limited int64  // when the limit was set, in Unix time
}

// mostHeld is how much is held back, at most.
const mostHeld = 32 << 10

// hold lets writes gather until release, which belongs to it.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders++
}

// release writes what has gathered, unless somebody else is about to. A failure
// ends the connection, so that those who wait for an answer learn of it.
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

// flush writes what was held, and a text.
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

// write sets the limit anew when a second has passed, not each time, which
// would cost more than a small message does.
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

// cut ends the connection at once: what the broker has not read yet is thrown
// away, as far as this side can, instead of arriving late.
func (w *wire) cut() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = w.Close()
}
