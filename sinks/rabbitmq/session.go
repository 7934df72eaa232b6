package rabbitmq

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is one connection, from its beginning to its end.
type session struct {
	sink       *Sink
	connection *amqp.Connection
	wire       *wire
	background sync.WaitGroup // goroutines that end with the connection

	mu      sync.Mutex
	checked bool          // the exchange was there and the broker took messages
	free    []*channel    // ready for the next Send
	blocked bool          // the broker reads nothing until it says so
	reason  string        // why
	signal  chan struct{} // closed when it gets blocked
	closing bool          // nothing is started in the background any more
}

func newSession(s *Sink, connection *amqp.Connection, w *wire) *session {
	n := &session{sink: s, connection: connection, wire: w, signal: make(chan struct{})}
	notices := connection.NotifyBlocked(make(chan amqp.Blocking, 8))
	n.background.Go(func() {
		for notice := range notices {
			n.setBlocked(notice)
		}
	})
	return n
}

func (n *session) setBlocked(notice amqp.Blocking) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case notice.Active && !n.blocked:
		close(n.signal)
	case !notice.Active && n.blocked:
		n.signal = make(chan struct{})
	}
	n.blocked = notice.Active
	if notice.Active {
		n.reason = notice.Reason
	}
}

// blockedNow returns trouble where the broker has blocked the connection.
func (n *session) blockedNow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.blocked {
		return nil
	}
	return blockedError(n.reason)
}

// blockedBefore is blockedNow, also if that is over.
func (n *session) blockedBefore() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return blockedError(n.reason)
}

// getsBlocked is closed when the broker blocks the connection.
func (n *session) getsBlocked() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.signal
}

func (n *session) dead() bool { return n.connection.IsClosed() }

// take returns a channel that nobody else uses.
func (n *session) take() (*channel, error) {
	for {
		c := n.popFree()
		if c == nil {
			return n.openChannel()
		}
		if !c.IsClosed() {
			return c, nil
		}
	}
}

func (n *session) popFree() *channel {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) == 0 {
		return nil
	}
	last := len(n.free) - 1
	c := n.free[last]
	n.free = n.free[:last]
	return c
}

func (n *session) giveBack(c *channel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = append(n.free, c)
}

// abandon closes a channel that still owes confirmations. On a blocked
// connection that takes as long as it is blocked.
func (n *session) abandon(c *channel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closing {
		n.background.Go(func() { _ = c.Close() })
	}
}

// closeTime is how long the farewell of a connection may take.
const closeTime = 2 * time.Second

// close takes leave of the broker if that reads what we write, and returns when
// nothing of the session runs any more.
func (n *session) close(ctx context.Context) {
	if n.startClosing() {
		stop := context.AfterFunc(ctx, n.wire.cut)
		timer := time.AfterFunc(closeTime, n.wire.cut)
		_ = n.connection.Close() // it is cut in any case
		timer.Stop()
		stop()
	}
	n.wire.cut()
	n.background.Wait()
}

// startClosing says whether the broker will hear a farewell.
func (n *session) startClosing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closing = true
	return !n.blocked
}
