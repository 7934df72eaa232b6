package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy passes the bytes of connections to a server. While it is stalled, it holds the server's answers back.
type proxy struct {
	listener net.Listener
	server   string // the server's address

	mu      sync.Mutex
	reached chan struct{} // closed at the first published message; nil if the proxy isn't stalled
	release chan struct{}
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &proxy{listener: listener, server: server}
	t.Cleanup(func() { check(t, listener.Close()) })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.pass(client)
		}
	}()
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", strings.TrimPrefix(p.server, "nats://"))
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		defer func() { _ = server.Close() }()
		p.copy(server, client, p.published)
	}()
	p.copy(client, server, p.answered)
}

// copy copies bytes, and calls a function before it writes them.
func (p *proxy) copy(to io.Writer, from io.Reader, before func([]byte)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		before(buffer[:n])
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) published(data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reached != nil && bytes.Contains(data, []byte("HPUB ")) {
		close(p.reached)
		p.reached = nil
	}
}

func (p *proxy) answered([]byte) {
	p.mu.Lock()
	release := p.release
	p.mu.Unlock()
	if release != nil {
		<-release
	}
}

// stall holds back the server's answers. The channel reached is closed when a message was published.
func (p *proxy) stall() (reached <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached, p.release = make(chan struct{}), make(chan struct{})
	return p.reached, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.release)
		p.release = nil
	}
}
