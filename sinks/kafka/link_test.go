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

// link is the network between a sink and its brokers. Tests can cut it or stall it.
type link struct {
	mu      sync.Mutex
	cut     bool
	lossy   bool
	sent    int
	dialled int
	open    map[net.Conn]bool
	reached chan struct{} // closed when a produce request was sent
	release chan struct{} // not nil: answers to produce requests wait until it is closed
	topic   []byte        // a topic that DescribeProducers requests name
	other   []byte        // replaces topic in these requests
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

// setCut cuts or restores the network. A cut closes all connections.
func (l *link) setCut(cut bool) {
	for _, conn := range l.toCut(cut) {
		_ = conn.Close()
	}
}

// toCut returns the connections that a cut has to close. The caller closes them
// without holding the lock, because Close acquires it.
func (l *link) toCut(cut bool) []net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut = cut; !cut {
		return nil
	}
	return slices.Collect(maps.Keys(l.open))
}

// stall holds back the answers to produce requests until the returned function is
// called. The channel is closed when a produce request was sent.
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

// loseAnswers makes connections break instead of returning answers to produce requests.
func (l *link) loseAnswers(lose bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lossy = lose
}

// instead makes DescribeProducers requests for a topic ask about another topic, whose
// name has the same length. It must be called before the link is used.
func (l *link) instead(topic, other string) { l.topic, l.other = []byte(topic), []byte(other) }

// produced returns the number of produce requests that were sent.
func (l *link) produced() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// count returns the number of open connections.
func (l *link) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// made returns the number of connections that were opened so far.
func (l *link) made() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialled
}

// expire closes all connections from the broker's side. The sink notices it when it reads.
func (l *link) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.open {
		conn.(*linkedConn).lost = true
	}
}
