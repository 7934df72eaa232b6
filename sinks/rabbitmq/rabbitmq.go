// Package rabbitmq is a sink that publishes each message to RabbitMQ over
// AMQP 0-9-1, with publisher confirms. README.md describes the published messages,
// the guarantees and the outcome of each error.
//
// # Order
//
// The sink guarantees [sinks.OrderPrefix]. A channel preserves the order of the
// messages that are published on it. Nevertheless, the sink can't have several
// messages of a key in flight: if the broker nacks the first message because a queue is
// full, or returns it as unroutable, the later ones may already have arrived. So each key
// has at most one message in flight, and the sink publishes the next one when the broker
// has confirmed the previous one. Meanwhile it publishes messages of other keys and without
// a key. If a connection breaks, the outcome of at most one message of each key is
// unknown, and no later message of that key was sent.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Defaults of [Options].
const (
	DefaultRoutingKey     = "{topic}"
	DefaultConnections    = 2
	DefaultWindow         = 256
	DefaultConnectTimeout = 10 * time.Second
	DefaultHeartbeat      = 10 * time.Second
)

// Options configure a [Sink]. Only Hosts is required.
type Options struct {
	// Hosts are the nodes of one cluster, as host or host:port. The port defaults to
	// 5672, or 5671 with TLS. If a connection is lost, the sink opens another one to
	// the next host.
	Hosts []string

	// VirtualHost defaults to "/".
	VirtualHost string

	// Username and Password are the login. If both are empty, both default to
	// guest. By default, brokers accept this user only from their own machine.
	Username string
	Password settings.Secret

	// TLS is the TLS configuration of the connections, for example with root
	// certificates and a client certificate. Nil connects without TLS.
	TLS *tls.Config

	// External logs in with the client certificate instead of a password (SASL
	// EXTERNAL).
	External bool

	// Exchange is the exchange to publish to. If it is empty, messages go to the
	// default exchange. RoutingKey defaults to [DefaultRoutingKey]. Both are
	// templates: the message's values replace {topic}, {key}, {id} and
	// {header:NAME}; {{ and }} stand for braces.
	Exchange   string
	RoutingKey string

	// Unroutable counts a message as delivered even if no queue receives it. By
	// default such a message is rejected.
	Unroutable bool

	// Transient publishes messages as transient, so that the broker doesn't write
	// them to its disk.
	Transient bool

	// ContentType is the content type of messages without a Content-Type header.
	// Defaults to application/json for a JSON object or array, and to
	// application/octet-stream for any other payload.
	ContentType string

	// Expiration is how long a message may wait in a queue before the broker
	// drops or dead-letters it, in whole milliseconds. Zero sets no limit.
	Expiration time.Duration

	// Priority sets the AMQP priority to the message's priority, limited to the
	// range 0 to 255.
	Priority bool

	// Declare describes objects that the sink creates on each new connection if they
	// don't exist. Nil creates nothing.
	Declare *Topology

	// CloudEvents configures messages in the CloudEvents format; off by default.
	CloudEvents cloudevents.Options

	// Connections is the number of connections, 1 to 16. All messages of a key go
	// through the same connection. Defaults to [DefaultConnections].
	Connections int

	// Window is the maximum number of unconfirmed messages on a channel, 1 to 1000.
	// Each running Send has its own channel on each connection. Defaults to
	// [DefaultWindow].
	Window int

	// ConnectTimeout limits the time to connect to one node, including the login.
	// Defaults to [DefaultConnectTimeout].
	ConnectTimeout time.Duration

	// Heartbeat is the interval of the heartbeats that both sides send, in whole
	// seconds. The sink closes a connection on which it receives nothing for one and
	// a half intervals. Defaults to [DefaultHeartbeat].
	Heartbeat time.Duration
}

// Sink publishes messages to RabbitMQ. Its methods may be called concurrently.
type Sink struct {
	options    Options
	exchange   settings.Template
	routingKey settings.Template
	events     *cloudevents.Encoder
	secrets    *atomic.Pointer[secrets]
	links      []*connection
	full       *full
	seed       maphash.Seed
}

var (
	_ sinks.Sink      = (*Sink)(nil)
	_ sinks.Ordered   = (*Sink)(nil)
	_ sinks.Checker   = (*Sink)(nil)
	_ sinks.Renewable = (*Sink)(nil)
)

// New returns a sink. It makes no connection. The error lists every problem with the
// options, and contains no secret.
func New(options Options) (*Sink, error) {
	redactor := settings.NewRedactor(options.Password)
	options = options.withDefaults()
	exchange, routingKey, err := options.check()
	if err != nil {
		return nil, fmt.Errorf("make a rabbitmq sink: %w", err)
	}
	events, err := cloudevents.New(cloudevents.AMQP, options.CloudEvents)
	if err != nil {
		return nil, fmt.Errorf("make a rabbitmq sink: %w", err)
	}
	s := &Sink{
		options: options, exchange: exchange, routingKey: routingKey, events: events,
		secrets: &atomic.Pointer[secrets]{}, seed: maphash.MakeSeed(), full: &full{closed: map[destination]*closure{}},
	}
	s.secrets.Store(&secrets{username: options.Username, password: options.Password, tls: options.TLS, redactor: redactor})
	for number := range options.Connections {
		s.links = append(s.links, newConnection(s, number))
	}
	return s, nil
}

// secrets has the login and certificates of connections. It is immutable.
type secrets struct {
	username string
	password settings.Secret
	tls      *tls.Config
	redactor settings.Redactor
	previous settings.Redactor // removes the secrets that the last Renew replaced
}

// Renew takes over the login and certificates of another Sink for new connections. Each existing connection is closed when
// the Sends that use it have ended. It implements [sinks.Renewable].
func (s *Sink) Renew(with sinks.Sink) {
	renewed := *with.(*Sink).secrets.Load()
	renewed.previous = s.secrets.Load().redactor
	s.secrets.Store(&renewed)
}

// Destination returns the hosts, the virtual host, and the configured exchange and routing key, including
// their placeholders.
func (s *Sink) Destination() string {
	o := s.options
	return fmt.Sprintf("rabbitmq %s, virtual host %s, exchange %q, routing key %s", strings.Join(o.Hosts, ","), o.VirtualHost, o.Exchange, o.RoutingKey)
}

// Address returns the exchange and the routing key. As OpenTelemetry specifies, the name has both, separated by a colon, or only
// the routing key for the default exchange.
func (s *Sink) Address(topic string) sinks.Address {
	routingKey := s.routingKey.WithTopic(topic) // isn't empty
	name := routingKey
	if exchange := s.exchange.WithTopic(topic); exchange != "" {
		name = exchange + ":" + routingKey
	}
	return sinks.Address{System: "rabbitmq", Name: name, RoutingKey: routingKey}
}

// Order returns [sinks.OrderPrefix].
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Open connects, creates the objects of [Options.Declare], and checks that the
// exchange exists and that the broker accepts messages. Its errors wrap a
// [sinks.OpenError].
func (s *Sink) Open(ctx context.Context) error {
	for _, l := range s.links {
		if err := l.open(ctx); err != nil {
			return fmt.Errorf("open the rabbitmq sink: %w", s.unavailable(err))
		}
	}
	return nil
}

// Check connects once. It checks that the exchange exists or that Open would create it, and that existing objects of
// [Options.Declare] have the right properties. If all messages go to one queue through the default exchange, it checks that this queue
// exists or that Open would create it. It creates and publishes nothing, so unlike Open it doesn't notice if the
// broker is out of memory or disk space.
func (s *Sink) Check(ctx context.Context) error {
	looking := *s
	if t := s.options.Declare; t != nil && t.ExchangeType != "" {
		looking.exchange, _ = settings.ParseTemplate("") // the default exchange always exists
	}
	looking.options.Declare = nil
	n, _, err := looking.dial(ctx, 0)
	if err == nil {
		stop := context.AfterFunc(ctx, n.wire.cut)
		exchange, _ := s.fixedExchange()
		if err = n.checkTopology(); err == nil && s.options.Declare != nil {
			err = n.checkDeclared(s.options.Declare, exchange)
		}
		if err == nil {
			err = n.checkQueue(s)
		}
		stop()
		n.close(ctx)
	}
	if err != nil {
		return fmt.Errorf("check the rabbitmq sink: %w", s.unavailable(err))
	}
	return nil
}

// Close closes the connections. It waits at most two seconds for the broker.
func (s *Sink) Close(ctx context.Context) error {
	var closing sync.WaitGroup
	for _, l := range s.links {
		closing.Go(func() { l.close(ctx) })
	}
	closing.Wait()
	return nil
}
