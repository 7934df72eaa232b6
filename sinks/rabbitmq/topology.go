package rabbitmq

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// check creates the objects of [Options.Declare]. Then it detects two problems
// before messages are affected: a missing exchange, which would close the channel,
// and a broker that is out of memory or disk space. Steps that can close a channel use
// a temporary channel.
func (n *session) check(ctx context.Context) error {
	if err := n.blockedNow(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, n.wire.cut)
	defer stop()
	for _, step := range []func() error{n.checkTopology, func() error { return n.probe(ctx) }} {
		if err := step(); err != nil {
			return err
		}
	}
	n.checked.Store(true)
	return nil
}

func (n *session) checkTopology() error {
	exchange, fixed := n.sink.fixedExchange()
	if n.sink.options.Declare == nil && (exchange == "" || !fixed) {
		return nil // the default exchange always exists
	}
	c, err := n.connection.Channel()
	if err != nil {
		return err
	}
	if err := n.sink.declare(c); err != nil {
		return err
	}
	if exchange != "" && fixed {
		// A passive declaration compares only the name.
		if err := c.ExchangeDeclarePassive(exchange, amqp.ExchangeDirect, true, false, false, false, nil); err != nil {
			return fmt.Errorf("find the exchange %q: %w", exchange, err)
		}
	}
	return c.Close()
}

// fixedExchange returns the exchange, and whether it is the same for all messages.
func (s *Sink) fixedExchange() (name string, fixed bool) {
	return s.exchange.Texts()[0], s.exchange.Places() == 0
}

// probe publishes a message that no queue receives. A broker that is out of memory or
// disk space accepts connections, and blocks a connection only when the client
// publishes a message on it. With a real message instead of the probe, the outcome
// of that message would be unknown.
func (n *session) probe(ctx context.Context) error {
	c, err := n.openChannel()
	if err != nil {
		return err
	}
	confirmation, err := c.send(publishing{routingKey: "rowrelay.probe." + rand.Text(), publishing: amqp.Publishing{Body: []byte("probe")}}, false)
	if err != nil {
		return err
	}
	select {
	case <-confirmation.Done():
	case <-n.getsBlocked():
		n.abandon(c)
		return n.blockedNow()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case n.dead():
		return fmt.Errorf("publish a probe message: %w", c.why())
	case c.IsClosed():
		return nil // the broker closed the channel: this user may not publish to the default exchange, but the broker works
	}
	n.giveBack(c)
	return nil
}

// Topology describes the objects that a sink creates if they do not exist: its
// exchange, a queue, and a binding between them. All are durable.
type Topology struct {
	// ExchangeType is direct, fanout, topic or headers. Empty creates no
	// exchange.
	ExchangeType string

	// Queue is the queue's name. Empty creates no queue.
	Queue string

	// QueueType is classic, quorum or stream. Defaults to quorum.
	QueueType string

	// BindingKey is the routing key of the queue's binding. It is required unless
	// the exchange is the default, a fanout or a headers exchange. With a topic
	// exchange, "#" matches all routing keys.
	BindingKey string
}

var (
	exchangeTypes = []string{"direct", "fanout", "topic", "headers"}
	queueTypes    = []string{"classic", "quorum", "stream"}
)

func (t *Topology) check(o Options, exchange settings.Template) error {
	switch {
	case t == nil:
		return nil
	case t.ExchangeType != "" && !slices.Contains(exchangeTypes, t.ExchangeType):
		return fmt.Errorf("the exchange type %q must be direct, fanout, topic or headers", t.ExchangeType)
	case t.QueueType != "" && !slices.Contains(queueTypes, t.QueueType):
		return fmt.Errorf("the queue type %q must be classic, quorum or stream", t.QueueType)
	case t.ExchangeType != "" && (o.Exchange == "" || exchange.Places() > 0):
		return errors.New("an exchange can be created only if its name is set and the same for all messages")
	case t.BindingKey != "" && t.Queue == "":
		return errors.New("a binding needs the name of a queue")
	case t.Queue != "" && exchange.Places() > 0:
		return errors.New("a queue can be created only if all messages are published to the same exchange")
	case t.Queue != "" && o.Exchange != "" && t.BindingKey == "" && t.ExchangeType != "fanout" && t.ExchangeType != "headers":
		return fmt.Errorf("the queue %q would receive nothing: its binding to the exchange %q needs a key; # matches all routing keys of a topic exchange, and a fanout exchange ignores the key", t.Queue, o.Exchange)
	}
	return settings.PrefixError("queue's name", checkShort(t.Queue))
}

// declare creates the objects of [Options.Declare]. It returns an error if one of
// them already exists with other properties.
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

// checkDeclared checks the properties of the exchange and the queue that Open would create, if they exist already. To do this, it
// declares the existing ones again: this changes nothing, and the broker returns an error if a property differs.
func (n *session) checkDeclared(t *Topology, exchange string) error {
	if t.ExchangeType != "" {
		err := n.ifItExists(func(c *amqp.Channel) error {
			return c.ExchangeDeclarePassive(exchange, t.ExchangeType, true, false, false, false, nil)
		}, func(c *amqp.Channel) error {
			return c.ExchangeDeclare(exchange, t.ExchangeType, true, false, false, false, nil)
		})
		if err != nil {
			return fmt.Errorf("check the exchange %q: %w", exchange, err)
		}
	}
	if t.Queue == "" {
		return nil
	}
	err := n.ifItExists(func(c *amqp.Channel) error {
		_, err := c.QueueDeclarePassive(t.Queue, true, false, false, false, nil)
		return err
	}, t.createQueue)
	if err != nil {
		return fmt.Errorf("check the queue %q: %w", t.Queue, err)
	}
	return nil
}

// checkQueue returns an error if all messages of the sink go to one queue through the default exchange, but the queue doesn't exist
// and Open would not create it.
func (n *session) checkQueue(s *Sink) error {
	exchange, fixed := s.fixedExchange()
	queue := s.routingKey.Texts()[0]
	created := s.options.Declare != nil && s.options.Declare.Queue == queue
	if exchange != "" || !fixed || s.routingKey.Places() > 0 || created {
		return nil
	}
	c, err := n.connection.Channel()
	if err != nil {
		return err
	}
	if _, err := c.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
		return fmt.Errorf("find the queue %q: %w", queue, err)
	}
	return c.Close()
}

// ifItExists calls the function declare if the function find finds an object.
func (n *session) ifItExists(find, declare func(*amqp.Channel) error) error {
	c, err := n.connection.Channel()
	if err != nil {
		return err
	}
	var refused *amqp.Error
	if err := find(c); errors.As(err, &refused) && refused.Code == amqp.NotFound {
		return nil // the broker has already closed the channel
	} else if err != nil {
		return err
	}
	if err := declare(c); err != nil {
		return err
	}
	return c.Close()
}

func (t *Topology) createQueue(c *amqp.Channel) error {
	_, err := c.QueueDeclare(t.Queue, true, false, false, false, amqp.Table{"x-queue-type": cmp.Or(t.QueueType, "quorum")})
	return err
}

func (t *Topology) declareQueue(c *amqp.Channel, exchange string) error {
	if err := t.createQueue(c); err != nil {
		return fmt.Errorf("create the queue %q: %w", t.Queue, err)
	}
	if exchange == "" {
		return nil // the default exchange routes to every queue by its name
	}
	if err := c.QueueBind(t.Queue, t.BindingKey, exchange, false, nil); err != nil {
		return fmt.Errorf("bind the queue %q to the exchange %q: %w", t.Queue, exchange, err)
	}
	return nil
}
