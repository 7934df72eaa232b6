package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// opened returns an open sink that is closed after the test.
func opened(t testing.TB, options rabbitmq.Options) *rabbitmq.Sink {
	t.Helper()
	sink := newSink(t, options)
	t.Cleanup(func() { _ = sink.Close(context.Background()) })
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sink
}

// to returns a message for a queue.
func to(queue, key string, headers ...string) sinks.Message {
	m := sinks.Message{Message: outbox.Message{ID: outbox.NewID(), Topic: queue, Key: key, Payload: []byte(`{"a":1}`)}, Attempt: 1, CreatedAt: time.Unix(1767225600, 0)}
	for i := 0; i < len(headers); i += 2 {
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[headers[i]] = headers[i+1]
	}
	return m
}

func many(n int, make func(i int) sinks.Message) []sinks.Message {
	batch := []sinks.Message{}
	for i := range n {
		batch = append(batch, make(i))
	}
	return batch
}

// expect compares outcomes with the wanted ones, which are written like "reject
// unroutable".
func expect(t testing.TB, outcomes []sinks.Outcome, want func(i int) string) {
	t.Helper()
	for i, o := range outcomes {
		if got := strings.TrimSpace(o.Result.String() + " " + string(o.Reason)); got != want(i) {
			t.Errorf("message %d: %s (%s), want %s", i, got, o.Detail, want(i))
		}
	}
}

func always(want string) func(int) string { return func(int) string { return want } }

func each(want ...string) func(int) string { return func(i int) string { return want[i] } }

// count returns how often each message arrived, by id.
func (b *mailbox) count() map[string]int {
	count := map[string]int{}
	for _, m := range b.received() {
		count[m.ID]++
	}
	return count
}

// TestUnroutable: the broker also confirms messages that it returns, and the library
// drops returns that are not received in time. No returned message may count as
// delivered, even if many messages of a window are returned.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue := c.queue("classic", nil)
	for _, connections := range []int{1, 3} {
		options := b.options()
		options.Connections, options.Window = connections, 1000
		sink := opened(t, options)
		batch := many(3000, func(i int) sinks.Message {
			if i%3 == 0 {
				return to(queue, "")
			}
			return to("no such queue", fmt.Sprint("key ", i))
		})
		outcomes := sink.Send(t.Context(), batch)
		expect(t, outcomes, func(i int) string {
			if i%3 == 0 {
				return "delivered"
			}
			return "reject unroutable"
		})
		if want := `no queue receives it: the broker returned it from the exchange "" for the routing key "no such queue": 312 NO_ROUTE`; outcomes[1].Detail != want {
			t.Errorf("detail %q", outcomes[1].Detail)
		}
	}
	if got := len((&mailbox{client: c, queue: queue}).count()); got != 2000 {
		t.Errorf("%d arrived, want 2000", got)
	}
}

func TestUnroutableIsDeliveredWithoutMandatory(t *testing.T) {
	t.Parallel()
	options := theBroker(t).options()
	options.Unroutable = true
	expect(t, opened(t, options).Send(t.Context(), []sinks.Message{to("no such queue", "")}), always("delivered"))
}

// TestTwoMessagesWithOneID: returned messages are matched by their id. The sink must not
// confuse messages that have the same id.
func TestTwoMessagesWithOneID(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", nil)
	options := b.options()
	options.Connections = 1
	batch := []sinks.Message{to(queue, "a"), to("no such queue", "b"), to(queue, "c")}
	batch[1].ID, batch[2].ID = batch[0].ID, batch[0].ID
	expect(t, opened(t, options).Send(t.Context(), batch), func(i int) string { return []string{"delivered", "reject unroutable", "delivered"}[i] })
}

// TestNackHoldsItsKey: the broker nacks the third message of a key, because its queue
// is full. The sink must not send the fourth, which goes to another queue.
func TestNackHoldsItsKey(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue, full := c.queue("quorum", nil), c.queue("classic", alwaysFull)
	options := b.options()
	options.RoutingKey = "{header:to}"
	batch := many(5, func(i int) sinks.Message {
		return to("topic", "key", "to", []string{queue, queue, full, queue, queue}[i])
	})
	expect(t, opened(t, options).Send(t.Context(), batch), func(i int) string {
		return []string{"delivered", "delivered", "retry server_error", "unsent blocked", "unsent blocked"}[i]
	})
	if got := len((&mailbox{client: c, queue: queue}).count()); got != 2 {
		t.Errorf("%d arrived, want 2", got)
	}
}

// TestMessageThatClosesTheChannelIsIsolated: the broker closes the channel because of
// a message, and doesn't name it. Only that message is rejected, at any position. The
// others arrive, at most twice.
func TestMessageThatClosesTheChannelIsIsolated(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	for name, poison := range map[string][]int{"first": {0}, "middle": {37}, "last": {99}, "two": {20, 60}, "neighbours": {50, 51}, "all": nil} {
		t.Run(name, func(t *testing.T) {
			queue, exchange := c.queue("classic", nil), c.exchange("fanout", nil)
			c.bind(queue, "", exchange)
			options := b.options()
			options.Exchange, options.Connections = "{header:to}", 1
			isPoison := func(i int) bool { return poison == nil || slices.Contains(poison, i) }
			batch := many(100, func(i int) sinks.Message {
				if isPoison(i) {
					return to("t", fmt.Sprint("key ", i), "to", "no such exchange")
				}
				return to("t", fmt.Sprint("key ", i), "to", exchange)
			})
			if poison == nil {
				batch = batch[:5]
			}
			expect(t, opened(t, options).Send(t.Context(), batch), func(i int) string {
				if isPoison(i) {
					return "reject unroutable"
				}
				return "delivered"
			})
			count := (&mailbox{client: c, queue: queue}).count()
			for i, m := range batch {
				if got := count[m.ID]; !isPoison(i) && (got < 1 || got > 2) {
					t.Errorf("message %d arrived %d times", i, got)
				}
			}
		})
	}
}

// TestMissingExchange: Open notices that the exchange of all messages doesn't exist.
func TestMissingExchange(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	options := b.options()
	options.Exchange = name()
	sink := newSink(t, options)
	t.Cleanup(func() { _ = sink.Close(context.Background()) })
	unavailable(t, sink.Open(t.Context()), sinks.ReasonConfig, "404, \"NOT_FOUND - no exchange", "Exception (404)")
	expect(t, sink.Send(t.Context(), []sinks.Message{to("t", ""), to("t", "")}), always("unavailable config"))
	c := b.client(t)
	if err := c.ExchangeDeclare(options.Exchange, "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.ExchangeDelete(options.Exchange, false, false) })
	c.bind(c.queue("classic", nil), "", options.Exchange)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, sink.Send(t.Context(), []sinks.Message{to("t", ""), to("t", "")}), always("delivered"))
}

// unavailable checks that an error of Open has a reason and one of the texts.
func unavailable(t testing.TB, err error, reason sinks.Reason, texts ...string) {
	t.Helper()
	var u *sinks.OpenError
	if !errors.As(err, &u) || u.Reason != reason {
		t.Errorf("Open: %v (%+v), want %s", err, u, reason)
		return
	}
	if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(u.Detail, text) }) {
		t.Errorf("Open: %v, want %q", err, texts)
	}
}

// TestExchangeIsDeletedWhileOpen: the exchange is deleted while the sink is open. No
// message is lost or rejected, and only the messages in flight are charged, once.
func TestExchangeIsDeletedWhileOpen(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	options := b.options()
	options.Exchange, options.Connections = c.exchange("fanout", nil), 1
	sink := opened(t, options)
	if err := c.ExchangeDelete(options.Exchange, false, false); err != nil {
		t.Fatal(err)
	}
	batch := many(10, func(i int) sinks.Message { return to("t", fmt.Sprint(i/2)) })
	for i, o := range sink.Send(t.Context(), batch) {
		inFlight := o.Result == sinks.Retry && o.Reason == sinks.ReasonUnknown && i > 0 && i%2 == 0
		unavailable := o.Result == sinks.Unavailable && o.Reason == sinks.ReasonConfig
		if !unavailable && !inFlight && (i == 0 || o.Result != sinks.Unsent) {
			t.Errorf("message %d: %+v", i, o)
		}
	}
	unavailable(t, sink.Open(t.Context()), sinks.ReasonConfig, "NOT_FOUND")
	expect(t, sink.Send(t.Context(), batch), always("unavailable config"))
}

// TestMessagesThatAMQPCannotCarry: the sink rejects these messages before it sends
// them. Otherwise the library would close the connection, or the broker the channel.
func TestMessagesThatAMQPCannotCarry(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue := c.queue("classic", nil)
	p := newProxy(t, b.hosts[0])
	options := b.options(p.address())
	options.Connections, options.RoutingKey = 1, "{header:to}"
	sink := opened(t, options)
	long := strings.Repeat("x", 256)
	for name, test := range map[string]struct {
		change func(*sinks.Message)
		want   string
		detail string
	}{
		"routing key":       {func(m *sinks.Message) { m.Headers["to"] = long }, "reject invalid", "the routing key has 256 bytes, but AMQP allows at most 255"},
		"no routing key":    {func(m *sinks.Message) { delete(m.Headers, "to") }, "reject invalid", `the routing key needs the message's header to, which is missing`},
		"no id":             {func(m *sinks.Message) { m.ID = "" }, "reject invalid", "the id is empty"},
		"long id":           {func(m *sinks.Message) { m.ID = long }, "reject invalid", "the id has 256 bytes, but AMQP allows at most 255"},
		"header's name":     {func(m *sinks.Message) { m.Headers[long] = "v" }, "reject invalid", "has a name of 256 bytes"},
		"no header's name":  {func(m *sinks.Message) { m.Headers[""] = "v" }, "reject invalid", `the header "" has no name`},
		"own header":        {func(m *sinks.Message) { m.Headers["Rowrelay-Key"] = "v" }, "reject invalid", `the header "Rowrelay-Key" belongs to the sink`},
		"CC":                {func(m *sinks.Message) { m.Headers["CC"] = "v" }, "reject invalid", `the header "CC" must be a list of routing keys`},
		"BCC":               {func(m *sinks.Message) { m.Headers["BCC"] = "v" }, "reject invalid", `the header "BCC" must be a list of routing keys`},
		"content type":      {func(m *sinks.Message) { m.Headers["content-type"] = long }, "reject invalid", `the header "content-type" has 256 bytes`},
		"headers too large": {func(m *sinks.Message) { m.Headers["x"] = strings.Repeat("x", 128<<10) }, "reject too_large", "131072 bytes"},
		"headers just fit":  {func(m *sinks.Message) { m.Headers["x"] = strings.Repeat("x", 127<<10) }, "delivered", ""},
		"id just fits":      {func(m *sinks.Message) { m.ID = long[1:] }, "delivered", ""},
	} {
		batch := []sinks.Message{to("t", "", "to", queue), to("t", "key", "to", queue), to("t", "key", "to", queue)}
		test.change(&batch[1])
		outcomes := sink.Send(t.Context(), batch)
		if got := outcomes[1]; !strings.Contains(got.Detail, test.detail) {
			t.Errorf("%s: detail %q, want %q", name, got.Detail, test.detail)
		}
		expect(t, outcomes, func(i int) string {
			switch {
			case i == 1:
				return test.want
			case i == 2 && test.want != "delivered":
				return "unsent blocked"
			}
			return "delivered"
		})
	}
	if p.connections() != 1 {
		t.Errorf("the sink used %d connections, want 1", p.connections())
	}
}

// TestTooLarge: RabbitMQ 4 accepts messages up to 16 MiB, and RabbitMQ 3.10 up to 128 MiB.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", amqp.Table{"x-max-length": 2})
	batch := []sinks.Message{to(queue, "a"), to(queue, "b"), to(queue, "c")}
	batch[1].Payload = make([]byte, 16<<20+1)
	var overview struct {
		Version string `json:"rabbitmq_version"`
	}
	b.api(t, "GET", "/api/overview", nil, &overview)
	expect(t, opened(t, b.options()).Send(t.Context(), batch), func(i int) string {
		if i == 1 && !strings.HasPrefix(overview.Version, "3.") {
			return "reject too_large"
		}
		return "delivered"
	})
}

// TestFullQueueBehindAFanOutExchange: one of two queues behind an exchange is full. The duplicates in the other queue are
// limited to the messages that were first in flight, and one message per pause.
func TestFullQueueBehindAFanOutExchange(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	for name, key := range map[string]string{"one routing key": "all", "a routing key by topic": "{topic}"} {
		t.Run(name, func(t *testing.T) {
			exchange, open, full := c.exchange("fanout", nil), c.queue("classic", nil), c.queue("classic", alwaysFull)
			c.bind(open, "", exchange)
			c.bind(full, "", exchange)
			options := b.options()
			options.Exchange, options.RoutingKey = exchange, key
			sink, batch := opened(t, options), many(20, func(i int) sinks.Message { return to("orders", fmt.Sprint("k", i)) })
			const sends, pauses = 100, 10
			for range sends { // like a relay without back-off
				if err := sink.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				for i, o := range sink.Send(t.Context(), batch) {
					if o.Result == sinks.Delivered || o.Result == sinks.Reject || o.RetryAfter <= 0 {
						t.Fatalf("message %d: %+v", i, o)
					}
				}
			}
			if got := len((&mailbox{client: c, queue: open}).received()); got > len(batch)+pauses {
				t.Errorf("%d messages arrived %d times in %d sends", len(batch), got, sends)
			}
		})
	}
}

// TestTwoFullQueues: each of several full queues is recognised, although their messages are nacked in turn. If the sink didn't
// remember a queue's first nack, it would count each nack as a first one and charge the message an attempt, until the message is
// parked.
func TestTwoFullQueues(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	one, two := c.queue("classic", alwaysFull), c.queue("classic", alwaysFull)
	sink := opened(t, b.options())
	send := func() []sinks.Outcome { return sink.Send(t.Context(), []sinks.Message{to(one, "a"), to(two, "b")}) }
	expect(t, send(), always("retry server_error"))
	for i, outcome := range send() {
		if outcome.Result == sinks.Retry {
			t.Errorf("queue %d, second nack: %+v, want that its messages wait uncharged", i+1, outcome)
		}
	}
}

// TestFullQueueHoldsUpNoOther: messages for other queues are delivered, and those for the full queue when it has room again.
func TestFullQueueHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue, full := c.queue("classic", nil), c.queue("classic", alwaysFull)
	sink := opened(t, b.options())
	both := func() []sinks.Message {
		return many(6, func(i int) sinks.Message { return to([]string{queue, full}[i%2], fmt.Sprint("k", i)) })
	}
	expect(t, sink.Send(t.Context(), []sinks.Message{to(full, "a"), to(full, "b")}), always("unavailable throttled"))
	for range 5 {
		expect(t, sink.Send(t.Context(), both()), func(i int) string { return []string{"delivered", "unsent busy"}[i%2] })
	}
	if _, err := c.QueueDelete(full, false, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.QueueDeclare(full, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for ctx.Err() == nil { // until the pause of the destination ends
		outcomes := sink.Send(ctx, []sinks.Message{to(full, "a")})
		if outcomes[0].Result == sinks.Delivered {
			return
		}
		if outcomes[0].Result != sinks.Unsent {
			t.Fatalf("got %+v", outcomes[0])
		}
	}
	t.Error("the queue has room again, but gets no messages")
}
