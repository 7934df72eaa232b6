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

// frameSize is the maximum frame size that the sink proposes. It is RabbitMQ's default.
const frameSize = 128 << 10

// dial tries to connect to the hosts in order, until one of them works. It begins
// with the host at the given index. It returns the index of the host that works, or
// the given index if none works.
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

// dialOne connects to one host. The argument left counts this host and the hosts that
// have not been tried yet. If the context has a deadline, the remaining time is divided
// equally among them.
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
	stop := context.AfterFunc(ctx, w.cut) // interrupts the handshakes
	held := s.secrets.Load()
	connection, err := s.handshake(ctx, w, address, held)
	if !stop() {
		err = fmt.Errorf("log in within the time limit: %w", context.Cause(ctx))
	}
	if err != nil {
		w.cut()
		return nil, err
	}
	return newSession(s, connection, w, held), nil
}

func (s *Sink) handshake(ctx context.Context, w *wire, address string, held *secrets) (*amqp.Connection, error) {
	login := amqp.Authentication(&amqp.PlainAuth{Username: held.username, Password: held.password.Reveal()})
	if s.options.External {
		login = &amqp.ExternalAuth{}
	}
	config := amqp.Config{
		Vhost: s.options.VirtualHost, Heartbeat: s.options.Heartbeat, FrameSize: frameSize, Locale: "en_US",
		SASL:       []amqp.Authentication{login},
		Properties: amqp.Table{"product": "rowrelay", "connection_name": "rowrelay"},
	}
	if held.tls == nil {
		return amqp.Open(w, config)
	}
	secured, err := settings.Handshake(ctx, w, held.tls, address)
	if err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return amqp.Open(secured, config)
}

// session is one AMQP connection to a broker. Each of the sink's connections gets a new session after each reconnect.
type session struct {
	sink       *Sink
	connection *amqp.Connection
	wire       *wire
	secrets    *secrets       // the secrets with which the connection was made
	background sync.WaitGroup // goroutines that end with the connection

	checked atomic.Bool // a check has found that the exchange exists and the broker accepts messages

	mu      sync.Mutex
	free    []*channel    // ready for the next Send
	blocked bool          // the broker has blocked the connection
	reason  string        // the broker's reason for the last block
	signal  chan struct{} // closed when the connection gets blocked
	closing bool          // no more goroutines may be added to background
	users   int           // number of Sends that use the session
	retired bool          // another session has replaced this session; the last Send that uses this session closes it
}

func newSession(s *Sink, connection *amqp.Connection, w *wire, held *secrets) *session {
	n := &session{sink: s, connection: connection, wire: w, secrets: held, signal: make(chan struct{})}
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

// blockedNow returns an error if the broker has blocked the connection.
func (n *session) blockedNow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.blocked {
		return nil
	}
	return blockedError(n.reason)
}

// blockedBefore returns the error for the last time that the broker blocked the
// connection, even if the broker has unblocked it since.
func (n *session) blockedBefore() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return blockedError(n.reason)
}

// getsBlocked returns a channel that is closed when the broker blocks the connection.
func (n *session) getsBlocked() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.signal
}

func (n *session) dead() bool { return n.connection.IsClosed() }

// isOld reports whether the connection was made with secrets that have been replaced since.
func (n *session) isOld() bool { return n.secrets != n.sink.secrets.Load() }

// enter registers a Send that uses the session. It returns false if the session is retired.
func (n *session) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.retired {
		n.users++
	}
	return !n.retired
}

// leave records that a Send no longer uses the session. The last Send closes a retired session.
func (n *session) leave() {
	n.mu.Lock()
	n.users--
	last := n.retired && n.users == 0
	n.mu.Unlock()
	if last {
		n.close(context.Background())
	}
}

// retire closes the session as soon as no Send uses it.
func (n *session) retire(ctx context.Context) {
	n.mu.Lock()
	n.retired = true
	unused := n.users == 0
	n.mu.Unlock()
	if unused {
		n.close(ctx)
	}
}

// take returns a free channel, or opens a new one.
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

// abandon closes, in the background, a channel with outstanding confirmations. If the
// connection is blocked, the channel closes only when the broker unblocks the connection.
func (n *session) abandon(c *channel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closing {
		n.background.Go(func() { _ = c.Close() })
	}
}

// closeTime limits the AMQP closing handshake.
const closeTime = 2 * time.Second

// close performs the closing handshake, unless the connection is blocked. It
// returns when all goroutines of the session have ended.
func (n *session) close(ctx context.Context) {
	if n.startClosing() {
		stop := context.AfterFunc(ctx, n.wire.cut)
		timer := time.AfterFunc(closeTime, n.wire.cut)
		_ = n.connection.Close() // an error doesn't matter: the following call to cut closes the connection in any case
		timer.Stop()
		stop()
	}
	n.wire.cut()
	n.background.Wait()
}

// startClosing marks the session as closing. It reports whether the closing
// handshake is possible, that is, whether the connection is not blocked.
func (n *session) startClosing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closing = true
	return !n.blocked
}

// channel is a channel with publisher confirms. Only one Send uses it at a time.
type channel struct {
	*amqp.Channel
	returns  <-chan amqp.Return
	closed   <-chan *amqp.Error
	returned map[string]amqp.Return // by message id, until the message's confirmation
	ended    *amqp.Error            // the error that closed the channel; set by the first call to end
}

// openChannel opens a channel and enables confirms. The buffer of returns has room
// for a whole window. This is important because the library drops a return that is
// not received within five seconds. The broker also confirms returned messages, so
// a dropped return would make an unroutable message look delivered.
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

// send publishes a message. The error is [amqp.ErrClosed] if nothing was sent
// because the channel or the connection is closed.
func (c *channel) send(l publishing, mandatory bool) (*amqp.DeferredConfirmation, error) {
	return c.PublishWithDeferredConfirm(l.exchange, l.routingKey, mandatory, false, l.publishing)
}

// takeReturn reports whether the broker has returned a confirmed message, and returns
// the broker's notice. The notice arrives before the confirmation.
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

// end returns the error with which a channel was closed. Nil means that the
// sink closed the channel.
func (c *channel) end() *amqp.Error {
	if reason, first := <-c.closed; first {
		c.ended = reason
	}
	return c.ended
}

// why returns the result of [channel.end] as an error, which is never nil.
func (c *channel) why() error {
	if reason := c.end(); reason != nil {
		return reason
	}
	return amqp.ErrClosed
}
