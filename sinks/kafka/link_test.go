package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
)

// link is the network between a sink and its brokers, which can be cut and
// stalled.
type link struct {
	mu      sync.Mutex
	cut     bool
	lossy   bool
	sent    int
	dialled int
	open    map[net.Conn]bool
	reached chan struct{} // closed when a request to produce has gone out
	release chan struct{} // not nil: answers to produce requests wait until it is closed
	topic   []byte        // questions about its producers
	other   []byte        // are asked about this one's
}

func newLink() *link { return &link{open: map[net.Conn]bool{}} }

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		_ = conn.Close()
		return nil, errors.New("the network is cut")
	}
	linked := &linkedConn{Conn: conn, link: l, closed: make(chan struct{})}
	l.open[linked] = true
	l.dialled++
	return linked, nil
}

// setCut returns when no connection is left, if it is to be cut.
func (l *link) setCut(cut bool) {
	for _, conn := range l.toCut(cut) {
		_ = conn.Close()
	}
}

// toCut are the connections that a cut ends. They are closed without the lock,
// which closing takes.
func (l *link) toCut(cut bool) []net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut = cut; !cut {
		return nil
	}
	return slices.Collect(maps.Keys(l.open))
}

func (l *link) stall() (<-chan struct{}, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reached, release := make(chan struct{}), make(chan struct{})
	l.reached, l.release = reached, release
	return reached, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.release = nil
		close(release)
	}
}

// linkedConn is a connection over a link.
type linkedConn struct {
	net.Conn
	link   *link
	once   sync.Once
	closed chan struct{}
	lost   bool          // the answer to a produce request is lost
	held   chan struct{} // not nil: the answer to a produce request waits for it
}

func (c *linkedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.link.mu.Lock()
	delete(c.link.open, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

const produceKey, describeProducersKey = 0, 61

func (c *linkedConn) Write(text []byte) (int, error) {
	if len(text) > 8 && text[5] == describeProducersKey && c.link.topic != nil {
		text = bytes.Replace(text, c.link.topic, c.link.other, 1)
	}
	n, err := c.Conn.Write(text)
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if isProduce := n > 8 && text[4] == 0 && text[5] == produceKey; !isProduce {
		return n, err
	}
	c.link.sent++
	c.lost = c.link.lossy
	if c.held = c.link.release; c.link.reached != nil {
		close(c.link.reached)
		c.link.reached = nil
	}
	return n, err
}

func (c *linkedConn) Read(text []byte) (int, error) {
	n, err := c.Conn.Read(text)
	if c.lost {
		_ = c.Close()
		return 0, io.EOF
	}
	if c.held != nil {
		select {
		case <-c.held:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return n, err
}

// loseAnswers lets connections end in the place of answers to produce requests.
func (l *link) loseAnswers(lose bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lossy = lose
}

// instead has questions about the producers of a topic asked about another's,
// whose name is as long. It is for a link that nobody uses yet.
func (l *link) instead(topic, other string) { l.topic, l.other = []byte(topic), []byte(other) }

// produced counts the requests to produce that have gone out.
func (l *link) produced() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// count counts the connections that are open.
func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// made counts the connections that were made.
func (l *link) made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialled
}

// expire ends all connections from the other side, which shows when one reads.
func (l *link) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.open {
		conn.(*linkedConn).lost = true
	}
}
