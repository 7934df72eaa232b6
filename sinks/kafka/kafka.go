// Package kafka is a sink that writes each message as a record to an Apache
// Kafka topic. README.md describes the settings, the guarantees and the outcome
// of each error.
//
// The sink uses the protocol and the Client of github.com/segmentio/kafka-go, but
// manages connections and metadata itself. Therefore the sink knows whether a request
// was written to the connection, finds the new leader of a partition immediately, and writes
// nothing after a Send has returned.
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

// Sink writes messages to Kafka. Its methods may be called concurrently. No
// goroutine outlives the Send that started it.
type Sink struct {
	options Options
	topic   settings.Template
	brokers *wire
	client  *kafkago.Client
	cluster *cluster
	gates   sync.Map      // by topicPartition: a chan struct{}, the semaphore of the partition
	slots   chan struct{} // semaphore: one slot for each record batch in flight
	events  *cloudevents.Encoder
	schemas *schemas // adds the frame of Confluent's schema registry to values; nil if values get no frame
}

var (
	_ sinks.Sink      = (*Sink)(nil)
	_ sinks.Ordered   = (*Sink)(nil)
	_ sinks.Checker   = (*Sink)(nil)
	_ sinks.Renewable = (*Sink)(nil)
)

// New returns a sink that writes to a cluster. It makes no connection. The error
// lists every problem with the options, and contains no secret.
func New(options Options) (*Sink, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	topic, _ := parseTopic(options.Topic) // options.check has parsed it already
	events, err := cloudevents.New(cloudevents.Kafka, options.CloudEvents)
	if err != nil {
		return nil, fmt.Errorf("make a kafka sink: %w", err)
	}
	brokers := newWire(options)
	// The Client asks brokers to wait for their replicas for half of Timeout.
	client := &kafkago.Client{Transport: brokers, Timeout: options.RequestTimeout}
	return &Sink{
		options: options,
		topic:   topic,
		brokers: brokers,
		client:  client,
		cluster: newCluster(client, options.Brokers),
		slots:   make(chan struct{}, options.Concurrency),
		events:  events,
		schemas: newSchemas(options),
	}, nil
}

// Destination returns the brokers and the configured topic, including its placeholders.
func (s *Sink) Destination() string {
	return "kafka " + strings.Join(s.options.Brokers, ",") + ", topic " + s.options.Topic
}

// Address returns Kafka's topic.
func (s *Sink) Address(topic string) sinks.Address {
	return sinks.Address{System: "kafka", Name: s.topic.WithTopic(topic)}
}

// Open requests the topic's metadata from a broker, so that the sink finds an unreachable
// cluster, a wrong login or a missing topic before it sends anything. If the topic depends
// on the message, the request contains no topic.
func (s *Sink) Open(ctx context.Context) error { return s.open(ctx, s.topics) }

// Check does what Open does, but creates no topic. If a topic is missing that Open would create, Check
// reports no error.
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
	s.brokers.closeIdle() // after an outage, idle connections may be broken
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
	return s.openRegistry(ctx)
}

// openRegistry looks up the schema if all messages have the same subject.
func (s *Sink) openRegistry(ctx context.Context) error {
	if s.schemas == nil || s.schemas.registry == nil {
		return nil
	}
	s.schemas.registry.retry()
	if !s.schemas.registry.single {
		return nil
	}
	subject, _ := s.schemas.subjectOf(nil, strings.Join(s.fixed(), ""))
	_, err := s.schemas.registry.get(ctx, subject)
	if failed := (*schemaError)(nil); errors.As(err, &failed) {
		return s.openError(failed.outcome)
	}
	return nil
}

// fixed returns the topic that all messages go to, or nil if the topic depends on the message.
func (s *Sink) fixed() []string {
	if s.topic.Places() == 0 {
		return s.topic.Texts()
	}
	return nil
}

// Close closes the sink's connections.
func (s *Sink) Close(context.Context) error {
	s.brokers.closeIdle()
	s.brokers.held().source.Close()
	return nil
}

// Renew takes over the logins and certificates of another Sink for new connections and for requests to the schema
// registry. It implements [sinks.Renewable].
func (s *Sink) Renew(with sinks.Sink) {
	other := with.(*Sink)
	s.brokers.renew(other.brokers.held())
	if s.schemas != nil && s.schemas.registry != nil {
		s.schemas.registry.renew(other.schemas.registry)
	}
}

// Order returns [sinks.OrderPrefix].
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send writes the messages in record batches. Each partition has one record batch
// in flight at a time; several partitions are written concurrently.
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
