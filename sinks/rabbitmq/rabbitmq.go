// Package rabbitmq is a sink that publishes each message to RabbitMQ, over AMQP
// 0-9-1 and with the broker's confirmation. README.md has what arrives, what is
// promised, and what each trouble leads to.
//
// # Order
//
// The sink promises [sinks.OrderPrefix]. A channel keeps the order of what is
// published on it, and yet several messages of one key can't be in flight at
// once: the first can be nacked by a full queue or returned as unroutable when
// the ones behind it have arrived. So of each key one message at a time is in
// flight, and the next follows when the broker has confirmed it; messages of
// other keys, and without a key, fill the window meanwhile. A connection that
// dies takes at most one message of a key with it, of which nobody knows whether it
// arrived, and none behind it has been sent.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
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

// Options say where messages are published and how. Only Hosts is required.
type Options struct {
	// Hosts are the nodes of one cluster, as host or host:port; the port is
	// 5672 by default, and 5671 with TLS. A connection that is lost is made
	// again to the next of them.
	Hosts []string

	// VirtualHost defaults to "/".
	VirtualHost string

	// Username and Password log in. Without either, guest and guest do, whom a
	// broker lets in from its own machine only.
	Username string
	Password settings.Secret

	// TLS makes the connections over TLS: own roots, a client certificate. Nil
	// connects without.
	TLS *tls.Config

	// External logs in by the client certificate instead of a password.
	External bool

	// Exchange is the exchange to publish to, the default one if empty, and
	// RoutingKey the routing key, [DefaultRoutingKey] if empty. Both are
	// templates: {topic}, {key}, {id} and {header:NAME} stand for what the
	// message has, {{ and }} for braces.
	Exchange   string
	RoutingKey string

	// Unroutable lets messages that no queue receives pass as delivered.
	// Otherwise they are rejected.
	Unroutable bool

	// Transient asks the broker not to write messages to its disk.
	Transient bool

	// ContentType is that of messages without a Content-Type header. Defaults
	// to application/json for a JSON object or array, and to
	// application/octet-stream for any other payload.
	ContentType string

	// Expiration is how long a message may wait in a queue before the broker
	// drops or dead-letters it, in whole milliseconds. Zero sets no limit.
	Expiration time.Duration

	// Priority sets AMQP's priority to the message's, cut to 0 to 255.
	Priority bool

	// Declare is what the sink creates on each new connection where it isn't
	// there. Nil creates nothing.
	Declare *Topology

	// CloudEvents makes the messages CloudEvents; off by default.
	CloudEvents cloudevents.Options

	// Connections is how many connections are kept, 1 to 16. A key always goes
	// through the same one. Defaults to [DefaultConnections].
	Connections int

	// Window is how many messages may be unconfirmed on a channel, 1 to 1000.
	// Each Send under way has a channel of its own on each connection. Defaults
	// to [DefaultWindow].
	Window int

	// ConnectTimeout is how long one node may take to answer, up to the end of
	// the login. Defaults to [DefaultConnectTimeout].
	ConnectTimeout time.Duration

	// Heartbeat is how often both sides show that they live, in whole seconds.
	// A node that is silent for one and a half is given up. Defaults to
	// [DefaultHeartbeat].
	Heartbeat time.Duration
}

// Sink publishes messages to RabbitMQ. Its methods may be called concurrently.
type Sink struct {
	options    Options
	exchange   settings.Template
	routingKey settings.Template
	events     *cloudevents.Encoder
	redactor   settings.Redactor
	links      []*connection
	full       *full
	seed       maphash.Seed
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Ordered = (*Sink)(nil)
	_ sinks.Checker = (*Sink)(nil)
)

// New returns a sink. It connects to nothing. The error has all that is wrong
// with the options, and shows no secret.
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
		redactor: redactor, seed: maphash.MakeSeed(), full: &full{closed: map[destination]*closure{}},
	}
	for number := range options.Connections {
		s.links = append(s.links, newConnection(s, number))
	}
	return s, nil
}

// Destination is the hosts, and the virtual host, exchange and routing key as they are written in the settings.
func (s *Sink) Destination() string {
	o := s.options
	return fmt.Sprintf("rabbitmq %s, virtual host %s, exchange %q, routing key %s", strings.Join(o.Hosts, ","), o.VirtualHost, o.Exchange, o.RoutingKey)
}

// Order promises that what is delivered is a prefix of the batch within each
// key.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Open connects, creates what it was asked to create, and checks that the
// exchange is there and that the broker takes messages. Its errors wrap a
// [sinks.OpenError].
func (s *Sink) Open(ctx context.Context) error {
	for _, l := range s.links {
		if err := l.open(ctx); err != nil {
			return fmt.Errorf("open the rabbitmq sink: %w", s.unavailable(err))
		}
	}
	return nil
}

// Check does what Open does over one connection, and creates nothing. An exchange that Open would
// create may be missing.
func (s *Sink) Check(ctx context.Context) error {
	looking := *s
	if t := s.options.Declare; t != nil && t.ExchangeType != "" {
		looking.exchange, _ = settings.ParseTemplate("") // the default exchange is always there
	}
	looking.options.Declare = nil
	l := newConnection(&looking, 0)
	defer l.close(ctx)
	if err := l.open(ctx); err != nil {
		return fmt.Errorf("check the rabbitmq sink: %w", s.unavailable(err))
	}
	return nil
}

// Close says good-bye to the broker, for at most two seconds.
func (s *Sink) Close(ctx context.Context) error {
	var closing sync.WaitGroup
	for _, l := range s.links {
		closing.Go(func() { l.close(ctx) })
	}
	closing.Wait()
	return nil
}
