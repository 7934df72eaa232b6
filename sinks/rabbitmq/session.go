package rabbitmq

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// frameSize is the largest frame to ask for. It is RabbitMQ's own default.
const frameSize = 128 << 10

// dial connects to the first host that lets us in, beginning with the one at
// first, and returns which one that was; first itself where there is none.
func (s *Sink) dial(ctx context.Context, first int) (*session, int, error) {
	addresses, trouble := s.options.addresses(), error(nil)
	for i := range addresses {
		at := (first + i) % len(addresses)
		opened, err := s.dialOne(ctx, addresses[at], len(addresses)-i)
		if err == nil {
			return opened, at, nil
		}
		if err = fmt.Errorf("connect to %s: %w", addresses[at], err); trouble == nil || tellsMore(err, trouble) {
			trouble = err
		}
	}
	return nil, first, trouble
}

// dialOne connects to one host within its share of the time.
func (s *Sink) dialOne(ctx context.Context, address string, left int) (*session, error) {
	limit := s.options.ConnectTimeout
	if deadline, bounded := ctx.Deadline(); bounded {
		limit = min(limit, time.Until(deadline)/time.Duration(left))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	plain, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: plain}
	stop := context.AfterFunc(ctx, w.cut) // ends the handshakes
	connection, err := s.handshake(ctx, w, address)
	if !stop() {
		err = fmt.Errorf("no end of the login in time: %w", context.Cause(ctx))
	}
	if err != nil {
		w.cut()
		return nil, err
	}
	return newSession(s, connection, w), nil
}

func (s *Sink) handshake(ctx context.Context, w *wire, address string) (*amqp.Connection, error) {
	login := amqp.Authentication(&amqp.PlainAuth{Username: s.options.Username, Password: s.options.Password.Reveal()})
	if s.options.External {
		login = &amqp.ExternalAuth{}
	}
	config := amqp.Config{
		Vhost: s.options.VirtualHost, Heartbeat: s.options.Heartbeat, FrameSize: frameSize, Locale: "en_US",
		SASL:       []amqp.Authentication{login},
		Properties: amqp.Table{"product": "rowrelay", "connection_name": "rowrelay"},
	}
	if s.options.TLS == nil {
		return amqp.Open(w, config)
	}
	secured, err := settings.Handshake(ctx, w, s.options.TLS, address)
	if err != nil {
		return nil, fmt.Errorf("agree on TLS: %w", err)
	}
	return amqp.Open(secured, config)
}

// session is one connection, from its beginning to its end.
type session struct {
	sink       *Sink
	connection *amqp.Connection
	wire       *wire
	background sync.WaitGroup // goroutines that end with the connection

	checked atomic.Bool // the exchange was there and the broker took messages

	mu      sync.Mutex
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
	n.mu.Lock()
	for len(n.free) > 0 {
		last := len(n.free) - 1
		c := n.free[last]
		n.free = n.free[:last]
		if !c.IsClosed() {
			n.mu.Unlock()
			return c, nil
		}
	}
	n.mu.Unlock()
	return n.openChannel()
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

// channel is a channel with confirmations. One Send uses it at a time.
type channel struct {
	*amqp.Channel
	returns  <-chan amqp.Return
	closed   <-chan *amqp.Error
	returned map[string]amqp.Return // by message id, from their arrival to their confirmation
	ended    *amqp.Error            // why it is closed, once that was asked for
}

// openChannel opens a channel. Each one has to be told anew to confirm. The
// returns of a whole window fit in: the library drops those that it can't hand
// over within five seconds, and a message that is returned is also confirmed,
// so that each one dropped would be a message lost.
func (n *session) openChannel() (*channel, error) {
	plain, err := n.connection.Channel()
	if err != nil {
		return nil, err
	}
	c := &channel{
		Channel: plain,
		returns: plain.NotifyReturn(make(chan amqp.Return, n.sink.options.Window)),
		closed:  plain.NotifyClose(make(chan *amqp.Error, 1)),
	}
	if err := plain.Confirm(false); err != nil {
		return nil, err
	}
	return c, nil
}

// send publishes a message. The error is [amqp.ErrClosed] if nothing of it went
// out because the channel or the connection is closed.
func (c *channel) send(l publishing, mandatory bool) (*amqp.DeferredConfirmation, error) {
	return c.PublishWithDeferredConfirm(l.exchange, l.routingKey, mandatory, false, l.publishing)
}

// takeReturn returns what came back of a message that is confirmed. It comes
// before the confirmation.
func (c *channel) takeReturn(id string) (amqp.Return, bool) {
	for len(c.returns) > 0 {
		if c.returned == nil {
			c.returned = map[string]amqp.Return{}
		}
		r := <-c.returns
		r.Body, r.Headers = nil, nil
		c.returned[r.MessageId] = r
	}
	r, found := c.returned[id]
	delete(c.returned, id)
	return r, found
}

// end returns why a closed channel is closed. Nil means that it was closed from
// this side.
func (c *channel) end() *amqp.Error {
	if reason, first := <-c.closed; first {
		c.ended = reason
	}
	return c.ended
}

// why is end as an error.
func (c *channel) why() error {
	if reason := c.end(); reason != nil {
		return reason
	}
	return amqp.ErrClosed
}
