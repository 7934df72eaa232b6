package tracing_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
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

// destination is where a sink sends a message. Its function receive returns the headers of the message that a
// consumer receives.
type destination struct {
	sink    string // its URL
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
					sent := spans["send orders"]
					if sent.Parent.SpanID() != parent.SpanID() || sent.SpanKind != trace.SpanKindProducer {
						t.Errorf("the send isn't the producer's: %+v", sent)
					}
					parent = sent.SpanContext
					for _, name := range []string{"claim", "send main", "settle"} {
						if span, ok := spans[name]; !ok || len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != producer.SpanContext().SpanID() {
							t.Errorf("the span %q isn't linked to the producer's: %+v", name, span)
						}
					}
				}
				got := spans["consume"]
				if got.SpanContext.TraceID() != producer.SpanContext().TraceID() || got.Parent.SpanID() != parent.SpanID() {
					t.Errorf("the consumer's span is in the trace %s below %s, want %s below %s",
						got.SpanContext.TraceID(), got.Parent.SpanID(), producer.SpanContext().TraceID(), parent.SpanID())
				}
			})
		}
	}
}

func overHTTP(t *testing.T) destination {
	got := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(server.Close)
	return destination{server.URL, func(*testing.T) propagation.TextMapCarrier { return propagation.HeaderCarrier(<-got) }}
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
	return destination{"kafka://" + broker + "/" + topic, func(t *testing.T) propagation.TextMapCarrier {
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
	return destination{address + separator + "routing_key=" + queue.Name, func(*testing.T) propagation.TextMapCarrier {
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
		sent, came := spans["send "+topic], tracing.SpanContext(got[topic])
		if sent.SpanContext.TraceID() != writer.TraceID() || came.SpanID() != sent.SpanContext.SpanID() || came.TraceState().String() != "shop=1" {
			t.Errorf("%s: came with %v, was sent in %v, written in %v", topic, came, sent.SpanContext, writer)
		}
	}
	if whole := spans["send main"]; tracing.SpanContext(got["alone"]).SpanID() != whole.SpanContext.SpanID() || len(whole.Links) != 2 {
		t.Errorf("what was written without a trace came with %v; the batch is %+v", tracing.SpanContext(got["alone"]), whole)
	}
	if good, bad := spans["send good"].Status.Code, spans["send bad"].Status; good != codes.Unset || bad.Code != codes.Error || bad.Description != "refused" {
		t.Errorf("the spans' states are %v and %v", good, bad)
	}
}

// The headers of a planned batch don't change, because a deduplicating sink must recognize the batch if it is sent again.
func TestAPlannedBatchKeepsItsHeaders(t *testing.T) {
	t.Parallel()
	provider := sdk.NewTracerProvider()
	ctx, _ := provider.Tracer("shop").Start(t.Context(), "write")
	headers := tracing.Headers(ctx)
	batch := []sinks.Message{{Message: outbox.Message{Headers: headers}, BatchRef: sinks.BatchRef{Batch: "b", Size: 1}}}
	_, end := tracing.New(provider).Send(t.Context(), "main", batch)
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
	_, end := tracing.New(provider).Send(t.Context(), "main", []sinks.Message{{Message: outbox.Message{Headers: headers}}})
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

func byName(exporter *tracetest.InMemoryExporter) map[string]tracetest.SpanStub {
	spans := map[string]tracetest.SpanStub{}
	for _, span := range exporter.GetSpans() {
		spans[span.Name] = span
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
