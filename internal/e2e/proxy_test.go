package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy connects relays to a server, and can cut their connections.
type proxy struct {
	listener net.Listener

	mu     sync.Mutex
	once   string // the target of the next connection; if it is empty, the field target is used
	target string
	open   map[net.Conn]bool // open connections, of clients and to servers
}

// newProxy listens at an address until the end of the test.
func newProxy(t *testing.T, at, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", at)
	check(t, err)
	p := &proxy{listener: listener, target: target, open: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() { p.accept(&running) })
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		running.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept(running *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		running.Go(func() { p.serve(client) })
	}
}

// serve copies bytes in both directions until either side ends the connection or cut is
// called.
func (p *proxy) serve(client net.Conn) {
	defer p.end(client)
	server, err := net.Dial("tcp", p.leads())
	if err != nil {
		return
	}
	defer p.end(server)
	p.add(client, server)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

func (p *proxy) leads() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if once := p.once; once != "" {
		p.once = ""
		return once
	}
	return p.target
}

// first sets another target for the next connection only.
func (p *proxy) first(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.once = target
}

// redirect sets another target for all further connections.
func (p *proxy) redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *proxy) add(connections ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range connections {
		p.open[c] = true
	}
}

func (p *proxy) end(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	_ = c.Close()
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}
