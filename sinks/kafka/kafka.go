// Package kafka is a sink that writes each message as a record to an Apache
// Kafka topic. README.md has the settings, what is promised, and what each error
// leads to.
//
// It uses the protocol and the Client of github.com/segmentio/kafka-go, with
// connections and metadata of its own: so it knows whether a request has gone
// out, a Send that is over leaves nothing behind that still writes, and a moved
// leader is found at once.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Sink writes messages to Kafka. Its methods may be called concurrently. It
// starts no goroutine that outlives a Send.
type Sink struct {
	options  Options
	topic    settings.Template
	brokers  *wire
	client   *kafkago.Client
	cluster  *cluster
	gates    sync.Map      // to partitions: a chan struct{} of each partition
	slots    chan struct{} // one for each record batch under way
	redactor settings.Redactor
	events   *cloudevents.Encoder
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Ordered = (*Sink)(nil)
	_ sinks.Checker = (*Sink)(nil)
)

// New returns a sink that writes to a cluster. It makes no connection. The error
// has all that is wrong with the options, and shows no secret.
func New(options Options) (*Sink, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	topic, _ := parseTopic(options.Topic) // checked before
	events, err := cloudevents.New(cloudevents.Kafka, options.CloudEvents)
	if err != nil {
		return nil, fmt.Errorf("make a kafka sink: %w", err)
	}
	brokers := newWire(options)
	// The Client tells the broker to wait for its replicas for half of this time.
	client := &kafkago.Client{Transport: brokers, Timeout: options.RequestTimeout}
	return &Sink{
		options:  options,
		topic:    topic,
		brokers:  brokers,
		client:   client,
		cluster:  newCluster(client, options.Brokers),
		slots:    make(chan struct{}, options.Concurrency),
		redactor: settings.NewRedactor(options.Password),
		events:   events,
	}, nil
}

// Destination is the brokers, and the topic as it is written in the settings.
func (s *Sink) Destination() string {
	return "kafka " + strings.Join(s.options.Brokers, ",") + ", topic " + s.options.Topic
}

// Open asks a broker for the topic that the settings name, or for nothing where
// they name none. So a cluster that is out of reach, a wrong login and a missing
// topic are found before anything is sent.
func (s *Sink) Open(ctx context.Context) error { return s.open(ctx, s.topics) }

// Check does what Open does, and creates no topic. One that would be created may be missing.
func (s *Sink) Check(ctx context.Context) error {
	return s.open(ctx, func(ctx context.Context, names []string) (map[string]*topic, error) {
		topics, err := s.cluster.fetch(ctx, names)
		maps.DeleteFunc(topics, func(_ string, t *topic) bool {
			return s.options.CreateTopics && errors.Is(t.err, kafkago.UnknownTopicOrPartition)
		})
		return topics, err
	})
}

func (s *Sink) open(ctx context.Context, ask func(context.Context, []string) (map[string]*topic, error)) error {
	s.brokers.closeIdle() // after an outage they may be dead, and not know it
	s.cluster.forget()
	topics, err := ask(ctx, append([]string{}, s.fixed()...))
	if err != nil {
		return s.openError(s.troubled(ctx, err))
	}
	for _, t := range topics {
		if t.err != nil && !s.options.ParkUnknownTopics {
			return s.openError(s.topicTrouble(t))
		}
	}
	return nil
}

// fixed is the topic that all messages go to; nil if they name their own.
func (s *Sink) fixed() []string {
	if s.topic.Places() == 0 {
		return s.topic.Texts()
	}
	return nil
}

// Close closes the connections.
func (s *Sink) Close(context.Context) error {
	s.brokers.closeIdle()
	return nil
}

// Order promises that what is delivered is a prefix of the batch within each
// key.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send writes the messages in record batches, one a partition at a time and
// several partitions at once.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Cancelled())
	}
	r := newRun(s, batch)
	r.until = time.Now().Add(s.options.LeaderTimeout)
	if r.address(ctx) {
		r.work(ctx)
	}
	r.apart(ctx)
	return r.outcomes
}
