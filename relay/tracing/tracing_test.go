package tracing_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/relay/tracing"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/inproc"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// destination is a place to which a sink sends a message. Its function receive consumes the message there, and returns
// the message's headers.
type destination struct {
	sink    string        // its URL
	address sinks.Address // the address that the spans show
	receive func(t *testing.T) propagation.TextMapCarrier
}

// Over each transport, a consumer's span is in the trace of the message's producer. Its parent is the span
// of the send if the relay is traced, and otherwise the producer's span.
func TestConsumerJoinsTheTraceOfTheProducer(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) destination{"http": overHTTP, "kafka": overKafka, "kafka in memory": overFakeKafka, "rabbitmq": overRabbitMQ} {
		for _, traced := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the relay traced %v", name, traced), func(t *testing.T) {
				t.Parallel()
				to, exporter := open(t), tracetest.NewInMemoryExporter()
				provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
				shop := provider.Tracer("shop")
				ctx, producer := shop.Start(t.Context(), "order")
				db := memstore.New()
				db.Write(outbox.Message{ID: "0195c0de-0000-7000-8000-000000000001", Topic: "orders", Key: "42", Payload: []byte("{}"), Headers: tracing.Headers(ctx)})
				producer.End()
				options := relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sinkOf(t, to.sink)}}, Drain: true}
				if traced {
					options.Tracer = tracing.New(provider)
				}
				run(t, db, options)
				_, consumer := shop.Start(propagation.TraceContext{}.Extract(t.Context(), to.receive(t)), "consume")
				consumer.End()

				spans := byName(exporter)
				parent := spans["order"].SpanContext
				if traced {
					batch := "send " + to.address.Name
					sent := spans["producer: "+batch]
					if sent.Parent.SpanID() != parent.SpanID() {
						t.Errorf("the send's parent isn't the producer's span: %+v", sent)
					}
					checkAddress(t, sent, to.address)
					checkAddress(t, spans[batch], to.address)
					checkAddress(t, spans["claim orders"], sinks.Address{System: "rowrelay", Name: "orders"})
					parent = sent.SpanContext
					for _, name := range []string{"claim orders", batch, "settle orders"} {
						if span, ok := spans[name]; !ok || len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != producer.SpanContext().SpanID() {
							t.Errorf("the span %q isn't linked to the producer's span: %+v", name, span)
						}
					}
				}
				got := spans["consume"]
				if got.SpanContext.TraceID() != producer.SpanContext().TraceID() || got.Parent.SpanID() != parent.SpanID() {
					t.Errorf("the consumer's span is in the trace %s with the parent %s, want the trace %s and the parent %s",
						got.SpanContext.TraceID(), got.Parent.SpanID(), producer.SpanContext().TraceID(), parent.SpanID())
				}
			})
		}
	}
}

// checkAddress checks the attributes of a span that show the message's destination. The first record of a Kafka
// topic with one partition has the offset 0.
func checkAddress(t *testing.T, span tracetest.SpanStub, want sinks.Address) {
	t.Helper()
	got := attributes(span)
	expected := map[string]string{"messaging.system": want.System, "messaging.destination.name": want.Name, "messaging.rabbitmq.destination.routing_key": want.RoutingKey}
	if want.System == "kafka" && span.SpanKind == trace.SpanKindProducer {
		expected["messaging.destination.partition.id"], expected["messaging.kafka.offset"] = "0", "0"
	}
	for key, value := range expected {
		if got[key] != value {
			t.Errorf("the span %q has %s = %q, want %q", span.Name, key, got[key], value)
		}
	}
}

func overHTTP(t *testing.T) destination {
	got := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(server.Close)
	return destination{server.URL, sinks.Address{System: "rowrelay", Name: "orders"}, func(*testing.T) propagation.TextMapCarrier { return propagation.HeaderCarrier(<-got) }}
}

func overFakeKafka(t *testing.T) destination {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	check(t, err)
	t.Cleanup(cluster.Close)
	return fromKafka(cluster.ListenAddrs()[0], "orders")
}

func overKafka(t *testing.T) destination {
	broker, _, _ := strings.Cut(server(t, "ROWRELAY_TEST_KAFKA"), ",")
	topic := fmt.Sprint("tracing-", time.Now().UnixNano())
	client := &kafkago.Client{Addr: kafkago.TCP(broker), Timeout: 5 * time.Minute}
	answer, err := client.CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}})
	check(t, err)
	check(t, answer.Errors[topic])
	return fromKafka(broker, topic)
}

func fromKafka(broker, topic string) destination {
	return destination{"kafka://" + broker + "/" + topic, sinks.Address{System: "kafka", Name: topic}, func(t *testing.T) propagation.TextMapCarrier {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		reader := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{broker}, Topic: topic, MaxWait: 100 * time.Millisecond})
		defer reader.Close()
		m, err := reader.ReadMessage(ctx)
		check(t, err)
		headers := propagation.MapCarrier{}
		for _, h := range m.Headers {
			headers[h.Key] = string(h.Value)
		}
		return headers
	}}
}

func overRabbitMQ(t *testing.T) destination {
	address := server(t, "ROWRELAY_TEST_RABBITMQ")
	connection, err := amqp.Dial(address)
	check(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	check(t, err)
	queue, err := channel.QueueDeclare("", false, false, true, false, nil)
	check(t, err)
	letters, err := channel.Consume(queue.Name, "", true, true, false, false, nil)
	check(t, err)
	separator := "?"
	if strings.Contains(address, "?") {
		separator = "&"
	}
	return destination{address + separator + "routing_key=" + queue.Name, sinks.Address{System: "rabbitmq", Name: queue.Name, RoutingKey: queue.Name}, func(*testing.T) propagation.TextMapCarrier {
		headers := propagation.MapCarrier{}
		for name, value := range (<-letters).Headers {
			headers[name] = fmt.Sprint(value)
		}
		return headers
	}}
}

// Each message of a batch continues the trace of its writer. A message without a writer's trace continues
// the trace of the batch. Each span has the outcome of its message.
func TestEachMessageOfABatchHasItsOwnTrace(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	db, written := memstore.New(), map[string]trace.SpanContext{}
	for _, topic := range []string{"good", "bad"} {
		ctx, span := provider.Tracer("shop").Start(t.Context(), "write "+topic)
		m := outbox.Message{Topic: topic, Headers: tracing.Headers(ctx)}
		m.Headers["tracestate"] = "shop=1"
		db.Write(m)
		written[topic] = span.SpanContext()
	}
	db.Write(outbox.Message{Topic: "alone"})
	got := map[string]sinks.Message{}
	handler := func(_ context.Context, batch []sinks.Message) error {
		errs := make(inproc.Errors, len(batch))
		for i, m := range batch {
			if got[m.Topic] = m; m.Topic == "bad" {
				errs[i] = inproc.Permanent(fmt.Errorf("no"))
			}
		}
		return errs
	}
	run(t, db, relay.Options{Drain: true, Tracer: tracing.New(provider), Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Batch(handler, inproc.BatchOptions{}), JudgeAloneAfter: relay.JudgeAtOnce}}})
	spans := byName(exporter)
	for topic, writer := range written {
		sent, came := spans["producer: send "+topic], tracing.SpanContext(got[topic])
		if sent.SpanContext.TraceID() != writer.TraceID() || came.SpanID() != sent.SpanContext.SpanID() || came.TraceState().String() != "shop=1" {
			t.Errorf("%s: the handler got the span %v; the message was sent in %v and written in %v", topic, came, sent.SpanContext, writer)
		}
	}
	if whole := spans["send"]; tracing.SpanContext(got["alone"]).SpanID() != whole.SpanContext.SpanID() || len(whole.Links) != 2 {
		t.Errorf("for the message without a trace the handler got the span %v; the batch's span is %+v", tracing.SpanContext(got["alone"]), whole)
	}
	if good, bad := spans["producer: send good"].Status.Code, spans["producer: send bad"].Status; good != codes.Unset || bad.Code != codes.Error || bad.Description != "refused" {
		t.Errorf("the spans' states are %v and %v", good, bad)
	}
}

// The spans have the names, kinds and attributes of OpenTelemetry's conventions for messaging.
func TestSpansFollowTheConventions(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	ctx, _ := provider.Tracer("shop").Start(t.Context(), "write")
	message := func(topic, id string) sinks.Message {
		return sinks.Message{Message: outbox.Message{ID: id, Topic: topic, Key: "private", Payload: []byte("{}"), Headers: tracing.Headers(ctx)}, Attempt: 2}
	}
	orders := []sinks.Message{message("orders", "1"), message("orders", "2"), message("orders", "3")}
	tracer := tracing.New(provider)
	tracer.Claimed(time.Now(), orders)
	tracer.Settled(time.Now(), []sinks.Message{message("orders", "1"), message("paid", "4")}, fmt.Errorf("settle: %w", context.DeadlineExceeded))
	_, end := tracer.Send(t.Context(), "main", broker{sinks.Address{System: "kafka", Name: "shop.orders"}}, orders)
	end([]sinks.Outcome{sinks.Ok("3/17"), {Result: sinks.Unsent}, sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "no answer")})
	_, end = tracer.Send(t.Context(), "keyed", broker{sinks.Address{System: "rabbitmq", Name: "shop:{key}", RoutingKey: "{key}"}}, orders[:1])
	end([]sinks.Outcome{{}}) // the zero Outcome is a Retry without a reason
	_, end = tracer.Send(t.Context(), "again", broker{sinks.Address{System: "kafka", Name: "again"}}, orders[:1])
	end([]sinks.Outcome{sinks.Ok("3/?")})

	batch := map[string]string{"rowrelay.sink": "main", "messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name": "shop.orders", "messaging.batch.message_count": "3", "rowrelay.delivered": "1", "error.type": "timeout"}
	one := func(id string, more ...string) map[string]string {
		all := map[string]string{"rowrelay.sink": "main", "messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
			"messaging.destination.name": "shop.orders", "messaging.message.id": id, "messaging.message.body.size": "2", "rowrelay.attempt": "2"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
			if more[i+1] == "" {
				delete(all, more[i])
			}
		}
		return all
	}
	for _, want := range []struct {
		name       string
		kind       trace.SpanKind
		attributes map[string]string
	}{
		{"claim orders", trace.SpanKindClient, map[string]string{"messaging.system": "rowrelay", "messaging.operation.name": "claim", "messaging.operation.type": "receive",
			"messaging.destination.name": "orders", "messaging.batch.message_count": "3"}},
		{"settle", trace.SpanKindClient, map[string]string{"messaging.system": "rowrelay", "messaging.operation.name": "settle", "messaging.operation.type": "settle",
			"messaging.batch.message_count": "2", "error.type": "context.deadlineExceededError"}},
		{"send shop.orders", trace.SpanKindClient, batch},
		{"send shop.orders", trace.SpanKindProducer, one("1", "rowrelay.result", "delivered", "messaging.destination.partition.id", "3", "messaging.kafka.offset", "17")},
		{"send shop.orders", trace.SpanKindProducer, one("2", "rowrelay.result", "unsent")},
		{"send shop.orders", trace.SpanKindProducer, one("3", "rowrelay.result", "retry", "error.type", "timeout")},
		{"send shop:{key}", trace.SpanKindProducer, one("1", "rowrelay.result", "retry", "error.type", "_OTHER", "rowrelay.sink", "keyed", "messaging.system", "rabbitmq",
			"messaging.destination.name", "", "messaging.destination.template", "shop:{key}")},
		{"send again", trace.SpanKindProducer, one("1", "rowrelay.result", "delivered", "rowrelay.sink", "again", "messaging.destination.name", "again", "messaging.destination.partition.id", "3")},
	} {
		if !slices.ContainsFunc(exporter.GetSpans(), func(span tracetest.SpanStub) bool {
			return span.Name == want.name && span.SpanKind == want.kind && maps.Equal(attributes(span), want.attributes)
		}) {
			t.Errorf("no span is a %v %q with %v", want.kind, want.name, want.attributes)
		}
	}
	if t.Failed() {
		for _, span := range exporter.GetSpans() {
			t.Logf("%v %q: %v", span.SpanKind, span.Name, attributes(span))
		}
	}
}

// broker is a sink with an address.
type broker struct{ address sinks.Address }

func (b broker) Address(string) sinks.Address                        { return b.address }
func (broker) Open(context.Context) error                            { return nil }
func (broker) Send(context.Context, []sinks.Message) []sinks.Outcome { return nil }
func (broker) Close(context.Context) error                           { return nil }

func attributes(span tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, each := range span.Attributes {
		all[string(each.Key)] = each.Value.String()
	}
	return all
}

// Send doesn't change the headers of a batch with a BatchRef, because a deduplicating sink must recognize the batch if it is sent
// again.
func TestAPlannedBatchKeepsItsHeaders(t *testing.T) {
	t.Parallel()
	provider := sdk.NewTracerProvider()
	ctx, _ := provider.Tracer("shop").Start(t.Context(), "write")
	headers := tracing.Headers(ctx)
	batch := []sinks.Message{{Message: outbox.Message{Headers: headers}, BatchRef: sinks.BatchRef{Batch: "b", Size: 1}}}
	_, end := tracing.New(provider).Send(t.Context(), "main", nil, batch)
	end(sinks.All(1, sinks.Ok("")))
	if batch[0].Headers["traceparent"] != headers["traceparent"] {
		t.Errorf("the headers are %v, want %v", batch[0].Headers, headers)
	}
}

// Send doesn't change the map of a message's headers, which the relay keeps. It replaces the map.
func TestHeadersAreNotChanged(t *testing.T) {
	t.Parallel()
	provider := sdk.NewTracerProvider()
	ctx, _ := provider.Tracer("shop").Start(t.Context(), "write")
	headers := tracing.Headers(ctx)
	before := headers["traceparent"]
	_, end := tracing.New(provider).Send(t.Context(), "main", nil, []sinks.Message{{Message: outbox.Message{Headers: headers}}})
	end(sinks.All(1, sinks.Ok("")))
	if headers["traceparent"] != before || len(tracing.Headers(t.Context())) != 0 {
		t.Errorf("the headers are %v, were %s", headers, before)
	}
}

func run(t *testing.T, db *memstore.DB, options relay.Options) {
	t.Helper()
	r, err := relay.New(db.Store(), options)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	check(t, r.Run(ctx))
	status, err := db.Store().Status(t.Context())
	check(t, err)
	if status.Counts[storage.StateDone] == 0 {
		t.Fatalf("nothing was delivered: %v", status.Counts)
	}
}

func sinkOf(t *testing.T, url string) sinks.Sink {
	t.Helper()
	registry, err := sinks.NewRegistry(httpsink.Kind(), kafka.Kind(), rabbitmq.Kind())
	check(t, err)
	sink, err := registry.FromURL(url)
	check(t, err)
	return sink
}

// byName returns the spans by name. The names of producers' sends begin with "producer: ", because batches have the
// same names.
func byName(exporter *tracetest.InMemoryExporter) map[string]tracetest.SpanStub {
	spans := map[string]tracetest.SpanStub{}
	for _, span := range exporter.GetSpans() {
		name := span.Name
		if span.SpanKind == trace.SpanKindProducer {
			name = "producer: " + name
		}
		spans[name] = span
	}
	return spans
}

func server(t *testing.T, variable string) string {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" && os.Getenv("REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not set: deploy/servers/servers up brings the server up", variable)
	}
	if address == "" {
		t.Skipf("%s is not set: deploy/servers/servers up brings the server up", variable)
	}
	return address
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
