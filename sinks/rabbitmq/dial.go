package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
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
	config := amqp.Config{
		Vhost: s.options.VirtualHost, Heartbeat: s.options.Heartbeat, FrameSize: frameSize, Locale: "en_US",
		SASL:       []amqp.Authentication{s.login()},
		Properties: amqp.Table{"product": "rowrelay", "connection_name": "rowrelay"},
	}
	if s.options.TLS == nil {
		return amqp.Open(w, config)
	}
	trust := s.options.TLS.Clone()
	if trust.ServerName == "" {
		trust.ServerName, _, _ = net.SplitHostPort(address) // it is made of both
	}
	secured := tls.Client(w, trust)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("agree on TLS: %w", err)
	}
	return amqp.Open(secured, config)
}

func (s *Sink) login() amqp.Authentication {
	if s.options.External {
		return &amqp.ExternalAuth{}
	}
	return &amqp.PlainAuth{Username: s.options.Username, Password: s.options.Password.Reveal()}
}
