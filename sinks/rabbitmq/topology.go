package rabbitmq

import (
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// Topology is what a sink creates where it isn't there: its exchange, a queue,
// and a binding of the two. All are durable.
type Topology struct {
	// ExchangeType is direct, fanout, topic or headers. Empty creates no
	// exchange.
	ExchangeType string

	// Queue is the queue's name. Empty creates no queue.
	Queue string

	// QueueType is classic, quorum or stream. Defaults to quorum.
	QueueType string

	// BindingKey is the routing key of the binding. With a topic exchange, "#"
	// takes everything.
	BindingKey string
}

var (
	exchangeTypes = []string{"direct", "fanout", "topic", "headers"}
	queueTypes    = []string{"classic", "quorum", "stream"}
)

func (t *Topology) check(o Options) error {
	switch {
	case t == nil:
		return nil
	case t.ExchangeType != "" && !slices.Contains(exchangeTypes, t.ExchangeType):
		return fmt.Errorf("the exchange type %q must be direct, fanout, topic or headers", t.ExchangeType)
	case t.QueueType != "" && !slices.Contains(queueTypes, t.QueueType):
		return fmt.Errorf("the queue type %q must be classic, quorum or stream", t.QueueType)
	case t.ExchangeType != "" && (o.Exchange == "" || isTemplate(o.Exchange)):
		return errors.New("an exchange can be created only if its name is set and the same for all messages")
	case t.BindingKey != "" && t.Queue == "":
		return errors.New("a binding needs the name of a queue")
	}
	return about("queue's name", checkShort(t.Queue))
}

func isTemplate(text string) bool {
	t, err := sinks.ParseTemplate(text)
	return err != nil || t.Places() > 0
}

// declare creates what the sink was asked to create. What is there in another
// shape is an error.
func (s *Sink) declare(c *amqp.Channel) error {
	t := s.options.Declare
	if t == nil {
		return nil
	}
	exchange, _ := s.fixedExchange()
	if t.ExchangeType != "" {
		if err := c.ExchangeDeclare(exchange, t.ExchangeType, true, false, false, false, nil); err != nil {
			return fmt.Errorf("create the exchange %q: %w", exchange, err)
		}
	}
	if t.Queue == "" {
		return nil
	}
	return t.declareQueue(c, exchange)
}

func (t *Topology) declareQueue(c *amqp.Channel, exchange string) error {
	kind := t.QueueType
	if kind == "" {
		kind = "quorum"
	}
	if _, err := c.QueueDeclare(t.Queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
		return fmt.Errorf("create the queue %q: %w", t.Queue, err)
	}
	if exchange == "" {
		return nil // the default exchange knows every queue by its name
	}
	if err := c.QueueBind(t.Queue, t.BindingKey, exchange, false, nil); err != nil {
		return fmt.Errorf("bind the queue %q to the exchange %q: %w", t.Queue, exchange, err)
	}
	return nil
}
