package brokers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// RabbitMQVariable is the environment variable with the broker's URL.
const RabbitMQVariable = "ROWRELAY_TEST_RABBITMQ"

// Queues are a [Target] in RabbitMQ.
type Queues struct {
	names       []string
	publishers  Publishers
	connections []*amqp.Connection // the first connection is used for everything except the bare publisher
	channel     *amqp.Channel

	once       sync.Once // Publish opens its channel only once
	confirming *amqp.Channel
	failed     error
}

// Publishers configures a bare publisher: the number of connections, of channels per connection,
// and of messages in flight per channel.
type Publishers struct{ Connections, Channels, Window int }

// NewQueues creates durable queues of a type. It makes classic queues lazy, like all classic
// queues since RabbitMQ 3.12. A classic queue that isn't lazy keeps a backlog in the heap of its
// process, so the broker spends most of its time on garbage collection.
func NewQueues(count int, kind string, p Publishers) (*Queues, error) {
	q := &Queues{publishers: p}
	for range 1 + p.Connections {
		connection, err := amqp.Dial(os.Getenv(RabbitMQVariable))
		if err != nil {
			return nil, errors.Join(err, q.hangUp())
		}
		q.connections = append(q.connections, connection)
	}
	var err error
	if q.channel, err = q.connections[0].Channel(); err != nil {
		return nil, errors.Join(err, q.hangUp())
	}
	for range count {
		name := "rowrelay-bench-" + strings.ToLower(rand.Text())[:10]
		if _, err := q.channel.QueueDeclare(name, true, false, false, false, arguments(kind)); err != nil {
			return nil, errors.Join(err, q.hangUp())
		}
		q.names = append(q.names, name)
	}
	return q, nil
}

func arguments(kind string) amqp.Table {
	if kind == amqp.QueueTypeClassic {
		return amqp.Table{amqp.QueueTypeArg: kind, "x-queue-mode": "lazy"}
	}
	return amqp.Table{amqp.QueueTypeArg: kind}
}

func (q *Queues) Kind() sinks.Kind   { return rabbitmq.Kind() }
func (q *Queues) URL() string        { return os.Getenv(RabbitMQVariable) + "?" }
func (q *Queues) Topic(n int) string { return q.names[n%len(q.names)] }

// Produce distributes the messages over the channels.
func (q *Queues) Produce(ctx context.Context, messages []sinks.Message) error {
	total := q.publishers.Connections * q.publishers.Channels
	failed := make([]error, total)
	var channels sync.WaitGroup
	for at := range total {
		channels.Go(func() {
			share := messages[len(messages)*at/total : len(messages)*(at+1)/total]
			failed[at] = q.publish(ctx, q.connections[1+at/q.publishers.Channels], share)
		})
	}
	channels.Wait()
	return errors.Join(failed...)
}

// publish publishes messages without waiting for each confirmation: the number of unconfirmed
// messages may reach the window.
func (q *Queues) publish(ctx context.Context, connection *amqp.Connection, messages []sinks.Message) error {
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	window := make(chan *amqp.DeferredConfirmation, q.publishers.Window)
	for i := range messages {
		if len(window) == cap(window) && !(<-window).Wait() {
			return errNack
		}
		confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", messages[i].Topic, true, false, publishing(&messages[i]))
		if err != nil {
			return err
		}
		window <- confirmation
	}
	for len(window) > 0 {
		if !(<-window).Wait() {
			return errNack
		}
	}
	return channel.Close()
}

// Publish publishes a payload to the first queue and waits for its confirmation, like a program
// that has only one message. It may be called concurrently.
func (q *Queues) Publish(ctx context.Context, payload []byte) error {
	q.once.Do(func() {
		if q.confirming, q.failed = q.connections[1].Channel(); q.failed == nil {
			q.failed = q.confirming.Confirm(false)
		}
	})
	if q.failed != nil {
		return q.failed
	}
	confirmation, err := q.confirming.PublishWithDeferredConfirmWithContext(ctx, "", q.names[0], true, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, ContentType: "application/octet-stream", Body: payload})
	if err != nil {
		return err
	}
	if taken, err := confirmation.WaitContext(ctx); err != nil || !taken {
		return errors.Join(err, errNack)
	}
	return nil
}

var errNack = errors.New("the broker has refused a message (nack)")

func publishing(m *sinks.Message) amqp.Publishing {
	return amqp.Publishing{
		MessageId: m.ID, DeliveryMode: amqp.Persistent, ContentType: "application/octet-stream", Timestamp: m.CreatedAt, Body: m.Payload,
		Headers: amqp.Table{"rowrelay-topic": m.Topic, "rowrelay-key": m.Key, "rowrelay-attempt": int32(1)},
	}
}

// Count returns the number of messages in the queues. It waits, because the broker counts
// confirmed messages with a delay.
func (q *Queues) Count(ctx context.Context) (count int, err error) {
	for last := -1; count != last; {
		time.Sleep(50 * time.Millisecond)
		last, count = count, 0
		for _, name := range q.names {
			state, err := q.channel.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return 0, fmt.Errorf("count the queue %s: %w", name, err)
			}
			count += state.Messages
		}
	}
	return count, ctx.Err()
}

func (q *Queues) Close() error {
	var problems []error
	for _, name := range q.names {
		_, err := q.channel.QueueDelete(name, false, false, false)
		problems = append(problems, err)
	}
	return errors.Join(append(problems, q.hangUp())...)
}

func (q *Queues) hangUp() error {
	var problems []error
	for _, c := range q.connections {
		problems = append(problems, c.Close())
	}
	return errors.Join(problems...)
}
