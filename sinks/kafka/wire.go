package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
)

// wire is a pool of connections to brokers, each for one request at a time. It
// stands in the place of kafka-go's Transport, which keeps goroutines of its own,
// goes on writing after a context has ended, and doesn't tell whether a request
// that failed has gone out.
type wire struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	tls      *tls.Config    // nil: without
	login    sasl.Mechanism // nil: without
	clientID string
	timeout  time.Duration // for a connection to be made, all of it

	mu   sync.Mutex
	idle map[string][]*conn // by address, the one used last at the end
}

func newWire(o Options) *wire {
	w := &wire{dial: o.Dial, clientID: o.ClientID, timeout: o.RequestTimeout, tls: o.TLS.Clone(), idle: map[string][]*conn{}}
	if build := mechanisms[o.SASL]; build != nil {
		w.login = build(o.Username, o.Password.Reveal())
	}
	return w
}

// wireError is an error of the connection, as against a broker's answer.
type wireError struct {
	arrived bool // something of the request has gone out: it may have been obeyed
	err     error
}

func (e *wireError) Error() string { return e.err.Error() }
func (e *wireError) Unwrap() error { return e.err }

// mayHaveArrived says that a failed request may have been obeyed.
func mayHaveArrived(err error) bool {
	failed := (*wireError)(nil)
	return !errors.As(err, &failed) || failed.arrived
}

// RoundTrip sends a request to the broker at this address. Its errors are
// wireErrors.
func (w *wire) RoundTrip(ctx context.Context, to net.Addr, request kafkago.Request) (kafkago.Response, error) {
	c, err := w.take(ctx, to.String())
	if err != nil {
		return nil, &wireError{err: err}
	}
	response, err := c.roundTrip(ctx, request)
	if err != nil {
		c.close()
		w.drop(to.String()) // the others to it are likely to be dead too
		return nil, err
	}
	w.giveBack(to.String(), c)
	return response, nil
}

func (w *wire) take(ctx context.Context, address string) (*conn, error) {
	for c := w.pop(address); c != nil; c = w.pop(address) {
		if c.usable() {
			return c, nil
		}
		c.close()
	}
	return w.connect(ctx, address)
}

func (w *wire) pop(address string) *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := w.idle[address]
	if len(idle) == 0 {
		return nil
	}
	c := idle[len(idle)-1]
	w.idle[address] = idle[:len(idle)-1]
	return c
}

// giveBack keeps a connection, and closes those that nobody has needed for long.
func (w *wire) giveBack(address string, c *conn) {
	c.usedAt = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := append(w.idle[address], c)
	for c.usedAt.Sub(idle[0].usedAt) > longestIdle {
		idle[0].close()
		idle = slices.Delete(idle, 0, 1)
	}
	w.idle[address] = idle
}

// drop closes the idle connections to an address.
func (w *wire) drop(address string) {
	for c := w.pop(address); c != nil; c = w.pop(address) {
		c.close()
	}
}

// closeIdle closes the connections that no Send uses.
func (w *wire) closeIdle() {
	w.mu.Lock()
	idle := w.idle
	w.idle = map[string][]*conn{}
	w.mu.Unlock()
	for _, connections := range idle {
		for _, c := range connections {
			c.close()
		}
	}
}

// connect makes a connection that is ready for requests.
func (w *wire) connect(ctx context.Context, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	raw, err := w.dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c, err := w.greet(ctx, raw, address)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return c, nil
}

// greet does what comes before the first request.
func (w *wire) greet(ctx context.Context, raw net.Conn, address string) (*conn, error) {
	link, err := w.secured(ctx, raw, address)
	if err != nil {
		return nil, err
	}
	c := newConn(raw, link, w.clientID)
	if err := c.agree(); err != nil {
		return nil, err
	}
	if w.login == nil {
		return c, nil
	}
	return c, c.logIn(ctx, w.login)
}

func (w *wire) secured(ctx context.Context, raw net.Conn, address string) (net.Conn, error) {
	if w.tls == nil {
		return raw, nil
	}
	config := w.tls
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config = config.Clone()
		config.ServerName = host
	}
	link := tls.Client(raw, config)
	if err := link.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake (does the broker expect TLS here?): %w", err)
	}
	return link, nil
}
