package rabbitmq_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func newSink(t testing.TB, options rabbitmq.Options) *rabbitmq.Sink {
	t.Helper()
	sink, err := rabbitmq.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

// TestConformance uses a classic queue and the default exchange. The messages' topic
// is the name of the queue.
func TestConformance(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		c := b.client(t)
		queue, full := c.queue("classic", nil), c.queue("classic", alwaysFull)
		h := harness(t, b, queue, rabbitmq.Options{})
		h.Topic, h.Astray = queue, func(m *sinks.Message) { m.Topic = full }
		return h
	})
}

// TestConformanceQuorum uses a quorum queue and answers for single messages. The
// routing key of a message is its id. A message without a binding goes through the
// alternate exchange to the queue.
func TestConformanceQuorum(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		c := b.client(t)
		queue, full := c.queue("quorum", nil), c.queue("classic", alwaysFull)
		others, nowhere := c.exchange("fanout", nil), c.exchange("fanout", nil)
		exchange := c.exchange("direct", amqp.Table{"alternate-exchange": others})
		c.bind(queue, "", others)
		h := harness(t, b, queue, rabbitmq.Options{Exchange: exchange, RoutingKey: "{id}", Connections: 3, Window: 10})
		h.Answer = func(id string, result sinks.Result) {
			switch result {
			case sinks.Retry:
				c.bind(full, id, exchange)
			case sinks.Reject:
				_ = c.ExchangeBind(nowhere, id, exchange, false, nil)
			case sinks.Delivered:
				_ = c.QueueUnbind(full, id, exchange, nil)
			}
		}
		return h
	})
}

// alwaysFull are the arguments of a classic queue that nacks all messages.
var alwaysFull = amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"}

func harness(t testing.TB, b *broker, queue string, options rabbitmq.Options) sinktest.Harness {
	t.Helper()
	p := newProxy(t, b.hosts[0])
	to := b.options(p.address())
	options.Hosts, options.Username, options.Password = to.Hosts, to.Username, to.Password
	box := &mailbox{client: b.client(t), queue: queue}
	return sinktest.Harness{
		Sink: newSink(t, options), Received: box.received, Stall: p.stall,
		Break: func() { p.setDown(true) }, Repair: func() { p.setDown(false) },
		Secrets: []string{to.Password.Reveal()},
	}
}
