package rabbitmq_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// publish is the encoding of the AMQP method basic.publish.
var publish = []byte("\x00\x3c\x00\x28")

// proxy is a TCP proxy in front of a broker. It simulates failures of the network and
// of the broker.
type proxy struct {
	t        testing.TB
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	down    bool
	pairs   map[*pair]bool
	reached chan struct{} // not nil: closed when a message is sent to the broker
	held    chan struct{} // not nil: data from the broker waits until it is closed
	deaf    chan struct{} // not nil: data to the broker waits until it is closed
	short   bool          // only publishing connections are deaf, and get connection.blocked
	count   int           // number of connections so far
}

type pair struct{ client, server net.Conn }

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, target: target, listener: listener, pairs: map[*pair]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.release()
	p.cut()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	pair := &pair{client, server}
	if !p.add(pair) {
		return
	}
	defer p.remove(pair)
	var back sync.WaitGroup
	back.Go(func() {
		defer client.Close()
		p.pump(client, server, p.waitHeld)
	})
	p.pump(server, client, func(text []byte) { p.forward(client, text) })
	_ = server.Close()
	back.Wait()
}

// pump copies data, and calls wait before each write.
func (p *proxy) pump(to io.Writer, from io.Reader, wait func([]byte)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			wait(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) waitHeld([]byte) {
	if held := p.get(func() chan struct{} { return p.held }); held != nil {
		<-held
	}
}

// forward is called before data is written to the broker.
func (p *proxy) forward(client net.Conn, text []byte) {
	isMessage := bytes.Contains(text, publish)
	p.mu.Lock()
	deaf, short := p.deaf, p.short && isMessage
	if isMessage && p.reached != nil {
		close(p.reached)
		p.reached = nil
	}
	p.mu.Unlock()
	if short {
		_, _ = io.WriteString(client, "\x01\x00\x00\x00\x00\x00\x0f\x00\x0a\x00\x3c\x0alow memory\xce")
	}
	if deaf != nil && (short || !p.isShort()) {
		<-deaf
	}
	if short {
		_, _ = io.WriteString(client, "\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x3d\xce")
	}
}

func (p *proxy) isShort() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.short
}

func (p *proxy) get(field func() chan struct{}) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return field()
}

func (p *proxy) add(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	p.pairs[c] = true
	p.count++
	return true
}

func (p *proxy) remove(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, c)
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		_, _ = c.client.Close(), c.server.Close()
	}
}

// setDown closes all connections and refuses new ones, or accepts connections again.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cut()
	}
}

// watch returns a channel that is closed when a message is sent to the broker.
func (p *proxy) watch() (reached <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = make(chan struct{})
	return p.reached
}

// stall holds back data from the broker until release. Reached is closed when a
// message is sent to the broker.
func (p *proxy) stall() (reached <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached, p.held = make(chan struct{}), make(chan struct{})
	return p.reached, p.release
}

// stopReading holds back data to the broker until release. Reached is closed when
// the first bytes of a message arrive.
func (p *proxy) stopReading() (reached <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached, p.deaf = make(chan struct{}), make(chan struct{})
	return p.reached
}

// block simulates a broker that is short of memory: until release, it blocks each
// connection that publishes and reads nothing more from it.
func (p *proxy) block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf, p.short = make(chan struct{}), true
}

func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.short = false
	for _, gate := range []*chan struct{}{&p.held, &p.deaf} {
		if *gate != nil {
			close(*gate)
			*gate = nil
		}
	}
}

// connections returns the number of connections so far.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}
