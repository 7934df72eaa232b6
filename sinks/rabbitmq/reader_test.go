package rabbitmq_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
)

// seen is a message as RabbitMQ's management API returns it. Reading through this API
// makes the tests independent of the client library.
type seen struct {
	Exchange   string         `json:"exchange"`
	RoutingKey string         `json:"routing_key"`
	Payload    string         `json:"payload"`
	Properties map[string]any `json:"properties"`
}

func (b *broker) seen(t testing.TB, queue string, count int) []seen {
	t.Helper()
	var messages []seen
	b.api(t, "POST", "/api/queues/%2F/"+queue+"/get", map[string]any{"count": count, "ackmode": "ack_requeue_false", "encoding": "auto"}, &messages)
	if len(messages) != count {
		t.Fatalf("the queue has %d messages, want %d", len(messages), count)
	}
	return messages
}

func TestPropertiesAndHeaders(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue, exchange := c.queue("classic", amqp.Table{"x-max-priority": 10}), c.exchange("topic", nil)
	c.bind(queue, "orders.*.de", exchange)
	options := b.options()
	options.Exchange, options.RoutingKey, options.Connections = exchange, "{topic}.{header:country}", 1
	options.Expiration, options.Priority = time.Hour, true
	first, second := to("orders.paid", "größe 7", "country", "de", "Content-Type", "text/plain; charset=utf-8", "empty", "", "rowrelay-dead-letter-reason", "refused"), to("orders.sent", "", "country", "de")
	first.Priority, first.Payload, first.Attempt = 5, []byte("hëllo"), 3
	second.Priority, second.Payload = -7, nil
	expect(t, opened(t, options).Send(t.Context(), []sinks.Message{first, second}), always("delivered"))
	want := []seen{
		{exchange, "orders.paid.de", "hëllo", map[string]any{
			"message_id": first.ID, "delivery_mode": 2.0, "content_type": "text/plain; charset=utf-8", "timestamp": 1767225600.0,
			"expiration": "3600000", "priority": 5.0,
			"headers": map[string]any{"rowrelay-topic": "orders.paid", "rowrelay-key": "größe 7", "rowrelay-attempt": 3.0, "country": "de", "empty": "", "rowrelay-dead-letter-reason": "refused"},
		}},
		{exchange, "orders.sent.de", "", map[string]any{
			"message_id": second.ID, "delivery_mode": 2.0, "timestamp": 1767225600.0, "expiration": "3600000",
			"headers": map[string]any{"rowrelay-topic": "orders.sent", "rowrelay-attempt": 1.0, "rowrelay-payload": "null", "country": "de"},
		}},
	}
	got := b.seen(t, queue, 2)
	delete(got[1].Properties, "priority") // RabbitMQ 4 returns a zero, RabbitMQ 3 no priority
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("message %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
}

func TestTransient(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", nil)
	options := b.options()
	options.Transient, options.ContentType = true, "application/x-own"
	expect(t, opened(t, options).Send(t.Context(), []sinks.Message{to(queue, "")}), always("delivered"))
	p := b.seen(t, queue, 1)[0].Properties
	if p["delivery_mode"] != 1.0 || p["content_type"] != "application/x-own" || p["expiration"] != nil {
		t.Errorf("properties %v", p)
	}
}

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue := b.client(t).queue("classic", nil)
	for _, mode := range []cloudevents.Mode{cloudevents.Binary, cloudevents.Structured} {
		options := b.options()
		options.CloudEvents = cloudevents.Options{Mode: mode, Source: "/shop", Type: "order.paid"}
		m := to(queue, "42")
		expect(t, opened(t, options).Send(t.Context(), []sinks.Message{m}), always("delivered"))
		got := b.seen(t, queue, 1)[0]
		event := got.Properties["headers"].(map[string]any)
		id, contentType, prefix := m.ID, "application/json", "cloudEvents:"
		if mode == cloudevents.Structured {
			event, contentType, prefix = nil, "application/cloudevents+json", ""
			if err := json.Unmarshal([]byte(got.Payload), &event); err != nil {
				t.Fatal(err)
			}
		}
		if event[prefix+"id"] != id || event[prefix+"type"] != "order.paid" || event[prefix+"source"] != "/shop" || got.Properties["message_id"] != id {
			t.Errorf("%s: the event is %v", mode, event)
		}
		if text := fmt.Sprint(got.Properties["content_type"]); text != contentType && text != contentType+"; charset=UTF-8" {
			t.Errorf("%s: the content type is %q", mode, text)
		}
	}
}

// TestSingleActiveConsumer: the single active consumer of a quorum queue gets the
// messages of each key in order.
func TestSingleActiveConsumer(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue := c.queue("quorum", amqp.Table{"x-single-active-consumer": true})
	active, err := c.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client(t).Consume(queue, "", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	sink := opened(t, b.options())
	batch := many(200, func(i int) sinks.Message { return to(queue, fmt.Sprint("key ", i%7)) })
	expect(t, sink.Send(t.Context(), batch), always("delivered"))
	last, at := map[string]int{}, map[string]int{}
	for i, m := range batch {
		at[m.ID] = i
	}
	for range batch {
		d := <-active
		if key := fmt.Sprint(d.Headers["rowrelay-key"]); at[d.MessageId] < last[key] {
			t.Errorf("of %q, message %d came after %d", key, at[d.MessageId], last[key])
		} else {
			last[key] = at[d.MessageId]
		}
	}
}
