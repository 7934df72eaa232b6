// Package tracing traces messages with OpenTelemetry, from the writer to the consumers.
//
// The writer stores the context of its span with each message, in the W3C headers traceparent and
// tracestate:
//
//	outbox.Options{Headers: tracing.Headers}
//
// The relay uses a [Tracer]:
//
//	relay.Options{Tracer: tracing.New(otel.GetTracerProvider())}
//
// The relay then sends each message in a span that is a child of the writer's span, and passes the
// span's context on in the message's headers. The batch that contains the message, the read that
// brought it into memory and the settlement of its outcome have spans in separate traces, with links to
// the writers' spans.
//
// # Spans
//
// The names, kinds and attributes follow OpenTelemetry's semantic conventions for messaging. The
// name of a span ends with the destination if all its messages have the same destination.
//
//   - "claim orders", of the type receive, is a call that read or claimed messages of the topic orders.
//   - "send orders", of the type send, is either a batch, with the kind CLIENT and the number of
//     messages, or one message, with the kind PRODUCER, its id, and for Kafka the partition and offset.
//   - "settle orders", of the type settle, is a call that wrote outcomes.
//
// The messaging.system of a send is the broker's name ("kafka" or "rabbitmq"). For other sinks, for claims and
// for settlements it is "rowrelay", and the destination is the topic. The error.type of a send is the
// reason of the outcome, one of the constants of package sinks that begin with Reason. The error.type of a
// settlement is the Go type of its error. Other attributes are rowrelay.sink (the sink's name),
// rowrelay.attempt, rowrelay.result (of a message) and rowrelay.delivered (the number of delivered messages in a batch).
// Spans contain topics and ids of messages, but no keys, headers, payloads or sinks' answers. If the name of the
// destination depends on a key or header, the span has a messaging.destination.template instead of the name.
//
// This is the only package that imports OpenTelemetry; it doesn't need the SDK.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
)

// w3c writes the context of a span to the headers of a message, and reads a context from headers.
var w3c propagation.TraceContext

// Headers returns the context of the span in ctx as headers of a message, or no headers if ctx has no
// span. Set outbox.Options.Headers to this function.
func Headers(ctx context.Context) map[string]string {
	headers := propagation.MapCarrier{}
	w3c.Inject(ctx, headers)
	return headers
}

// SpanContext returns the span context in the headers of a message. A handler uses it as the parent of
// its span.
func SpanContext(m sinks.Message) trace.SpanContext {
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier(m.Headers)))
}

// mostLinks is the maximum number of links of a span. SDKs have the same limit by default.
const mostLinks = 128

// Tracer makes the spans of a relay. Several relays may share one Tracer.
type Tracer struct{ tracer trace.Tracer }

var _ relay.Tracer = (*Tracer)(nil)

// New returns a tracer that makes its spans with the provider.
func New(provider trace.TracerProvider) *Tracer {
	return &Tracer{tracer: provider.Tracer("github.com/rowrelay/rowrelay/relay/tracing", trace.WithSchemaURL(semconv.SchemaURL))}
}

// Claimed makes the span of a read or a claim that has returned these messages.
func (t *Tracer) Claimed(began time.Time, messages []sinks.Message) {
	t.past("claim", semconv.MessagingOperationTypeReceive, began, messages, nil)
}

// Settled makes the span of a settlement.
func (t *Tracer) Settled(began time.Time, messages []sinks.Message, err error) {
	t.past("settle", semconv.MessagingOperationTypeSettle, began, messages, err)
}

// past records a span for a completed operation on the table.
func (t *Tracer) past(operation string, kind attribute.KeyValue, began time.Time, messages []sinks.Message, err error) {
	to := common(addresses(nil, messages))
	_, span := t.tracer.Start(context.Background(), named(operation, to), trace.WithNewRoot(), trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithLinks(links(messages)...), trace.WithAttributes(about(operation, kind, to)...), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(messages))))
	if err != nil {
		span.SetAttributes(semconv.ErrorTypeKey.String(typeOf(err)))
		span.SetStatus(codes.Error, operation+" failed")
	}
	span.End()
}

// typeOf returns the Go type of the innermost error, because the outer ones only add text.
func typeOf(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return fmt.Sprintf("%T", err)
}

// Send starts a span for the batch and, in the writers' traces, a span for each message whose headers
// have a context. It writes the context of a message's span to the message's headers or, if the message
// has no span, the context of the batch's span. The sink gets the context of the batch's span, or
// of the message's span if the batch has one message. Send doesn't change the headers of a message with
// a BatchRef, because the destination may have received the batch already, and must recognize it.
func (t *Tracer) Send(ctx context.Context, sink string, to sinks.Sink, batch []sinks.Message) (context.Context, func([]sinks.Outcome)) {
	const operation = "send"
	kind, ofSink := semconv.MessagingOperationTypeSend, attribute.String("rowrelay.sink", sink)
	targets := addresses(to, batch)
	all := common(targets)
	ctx, whole := t.tracer.Start(ctx, named(operation, all), trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links(batch)...),
		trace.WithAttributes(about(operation, kind, all)...), trace.WithAttributes(ofSink, semconv.MessagingBatchMessageCount(len(batch))))
	spans := make([]trace.Span, len(batch))
	for i := range batch {
		m, out := &batch[i], ctx
		if writer := SpanContext(*m); writer.IsValid() {
			out, spans[i] = t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, writer), named(operation, targets[i]), trace.WithSpanKind(trace.SpanKindProducer),
				trace.WithLinks(trace.Link{SpanContext: whole.SpanContext()}), trace.WithAttributes(about(operation, kind, targets[i])...),
				trace.WithAttributes(ofSink, semconv.MessagingMessageID(m.ID), semconv.MessagingMessageBodySize(len(m.Payload)), attribute.Int("rowrelay.attempt", m.Attempt)))
		}
		if m.BatchRef == (sinks.BatchRef{}) {
			headers := propagation.MapCarrier(maps.Clone(m.Headers))
			if headers == nil {
				headers = propagation.MapCarrier{}
			}
			w3c.Inject(out, headers)
			m.Headers = headers
		}
		if len(batch) == 1 {
			ctx = out
		}
	}
	return ctx, func(outcomes []sinks.Outcome) {
		delivered, failure := 0, sinks.Outcome{Result: sinks.Delivered}
		for i, outcome := range outcomes {
			switch {
			case outcome.Result == sinks.Delivered:
				delivered++
			case failure.Result == sinks.Delivered || failure.Result == sinks.Unsent: // prefer the failure of a message that was sent, since it may be the reason why others are unsent
				failure = outcome
			}
			if spans[i] != nil {
				end(spans[i], targets[i], outcome)
			}
		}
		whole.SetAttributes(attribute.Int("rowrelay.delivered", delivered))
		if failure.Result != sinks.Delivered {
			whole.SetAttributes(errorType(failure))
			whole.SetStatus(codes.Error, "not all messages were delivered")
		}
		whole.End()
	}
}

// end records the outcome of a message in its span, and ends the span. An unsent message has no error.
func end(span trace.Span, to sinks.Address, outcome sinks.Outcome) {
	span.SetAttributes(attribute.String("rowrelay.result", outcome.Result.String()))
	switch outcome.Result {
	case sinks.Delivered:
		if to.System == "kafka" {
			span.SetAttributes(place(outcome.Receipt)...)
		}
	case sinks.Unsent:
	default:
		span.SetAttributes(errorType(outcome))
		span.SetStatus(codes.Error, string(outcome.Reason))
	}
	span.End()
}

func errorType(failure sinks.Outcome) attribute.KeyValue {
	return semconv.ErrorTypeKey.String(cmp.Or(string(failure.Reason), semconv.ErrorTypeOther.Value.AsString()))
}

// place returns the partition and the offset in a receipt of the Kafka sink. If the record was written by
// an earlier send, its offset is unknown.
func place(receipt string) (known []attribute.KeyValue) {
	partition, offset, found := strings.Cut(receipt, "/")
	if !found {
		return nil
	}
	known = append(known, semconv.MessagingDestinationPartitionID(partition))
	if n, err := strconv.Atoi(offset); err == nil {
		known = append(known, semconv.MessagingKafkaOffset(n))
	}
	return known
}

// addresses returns the address of each message. For a sink that isn't a broker, and for the table (a nil sink), the
// destination is the topic.
func addresses(sink sinks.Sink, messages []sinks.Message) []sinks.Address {
	all := make([]sinks.Address, len(messages))
	broker, is := sink.(sinks.Addressing)
	for i := range messages {
		if is {
			all[i] = broker.Address(messages[i].Topic)
		}
		if all[i].System == "" {
			all[i] = sinks.Address{System: "rowrelay", Name: messages[i].Topic}
		}
	}
	return all
}

// common returns the address that all messages share. If they have different addresses, it returns only the
// system of the first address.
func common(all []sinks.Address) sinks.Address {
	for _, each := range all {
		if each != all[0] {
			return sinks.Address{System: all[0].System}
		}
	}
	if len(all) == 0 {
		return sinks.Address{System: "rowrelay"}
	}
	return all[0]
}

// named returns the name of a span: the operation, and the destination if it is known.
func named(operation string, to sinks.Address) string {
	return strings.TrimSuffix(operation+" "+to.Name, " ")
}

func about(operation string, kind attribute.KeyValue, to sinks.Address) []attribute.KeyValue {
	known := []attribute.KeyValue{semconv.MessagingSystemKey.String(to.System), semconv.MessagingOperationName(operation), kind}
	template := strings.Contains(to.Name, "{")
	if template {
		known = append(known, semconv.MessagingDestinationTemplate(to.Name))
	} else if to.Name != "" {
		known = append(known, semconv.MessagingDestinationName(to.Name))
	}
	if to.RoutingKey != "" && !template {
		known = append(known, semconv.MessagingRabbitMQDestinationRoutingKey(to.RoutingKey))
	}
	return known
}

// links returns links to the spans of the messages' writers, without duplicates.
func links(messages []sinks.Message) (all []trace.Link) {
	known := map[trace.SpanID]bool{}
	for _, m := range messages {
		if writer := SpanContext(m); writer.IsValid() && !known[writer.SpanID()] {
			known[writer.SpanID()] = true
			if all = append(all, trace.Link{SpanContext: writer}); len(all) == mostLinks {
				break
			}
		}
	}
	return all
}
