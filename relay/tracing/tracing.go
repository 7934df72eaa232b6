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
// the writers' spans. Spans contain topics and ids of messages, and no keys, payloads or answers. This
// is the only package that imports OpenTelemetry; it doesn't need the SDK.
package tracing

import (
	"context"
	"maps"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
)

// w3c writes a span's context to the headers of a message, and reads it from them.
var w3c propagation.TraceContext

// Headers returns the context of the span in ctx as headers of a message, or no headers if ctx has no
// span. Set outbox.Options.Headers to it.
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
	return &Tracer{tracer: provider.Tracer("github.com/rowrelay/rowrelay/relay/tracing")}
}

// Claimed makes the span of a read or a claim that has returned these messages.
func (t *Tracer) Claimed(began time.Time, messages []sinks.Message) {
	t.past("claim", began, messages, nil)
}

// Settled makes the span of a settlement.
func (t *Tracer) Settled(began time.Time, messages []sinks.Message, err error) {
	t.past("settle", began, messages, err)
}

// past records a span for an operation that has ended.
func (t *Tracer) past(operation string, began time.Time, messages []sinks.Message, err error) {
	_, span := t.tracer.Start(context.Background(), operation, trace.WithNewRoot(), trace.WithTimestamp(began),
		trace.WithLinks(links(messages)...), trace.WithAttributes(about(operation, len(messages))...))
	if err != nil {
		span.SetStatus(codes.Error, operation+" failed")
	}
	span.End()
}

// Send starts a span for the batch and, in the writers' traces, a span for each message whose headers
// have a context. It writes the context of the message's span to these headers, and the context of the
// batch's span to the headers of the other messages. The sink gets the context of the batch's span, or
// of the message's span if the batch has one message. Send doesn't change the headers of a message with
// a BatchRef, because the destination may have received the batch already, and must recognize it.
func (t *Tracer) Send(ctx context.Context, sink string, batch []sinks.Message) (context.Context, func([]sinks.Outcome)) {
	ctx, whole := t.tracer.Start(ctx, "send "+sink, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithLinks(links(batch)...), trace.WithAttributes(append(about("send", len(batch)), attribute.String("rowrelay.sink", sink))...))
	spans := make([]trace.Span, len(batch))
	for i := range batch {
		m, out := &batch[i], ctx
		if writer := SpanContext(*m); writer.IsValid() {
			out, spans[i] = t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, writer), "send "+m.Topic, trace.WithSpanKind(trace.SpanKindProducer),
				trace.WithLinks(trace.Link{SpanContext: whole.SpanContext()}), trace.WithAttributes(append(about("send", 1), attribute.String("rowrelay.sink", sink),
					attribute.String("messaging.destination.name", m.Topic), attribute.String("messaging.message.id", m.ID), attribute.Int("rowrelay.attempt", m.Attempt))...))
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
		delivered := 0
		for i, outcome := range outcomes {
			if outcome.Result == sinks.Delivered {
				delivered++
			}
			if spans[i] != nil {
				end(spans[i], outcome)
			}
		}
		whole.SetAttributes(attribute.Int("rowrelay.delivered", delivered))
		if len(outcomes) > 0 && delivered < len(outcomes) {
			whole.SetStatus(codes.Error, "not all was delivered")
		}
		whole.End()
	}
}

// end records the outcome of a message in its span, and ends the span. An unsent message doesn't count
// as failed.
func end(span trace.Span, outcome sinks.Outcome) {
	span.SetAttributes(attribute.String("rowrelay.result", outcome.Result.String()))
	if outcome.Reason != sinks.ReasonNone {
		span.SetAttributes(attribute.String("rowrelay.reason", string(outcome.Reason)))
	}
	if outcome.Result != sinks.Delivered && outcome.Result != sinks.Unsent {
		span.SetStatus(codes.Error, string(outcome.Reason))
	}
	span.End()
}

func about(operation string, messages int) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "rowrelay"), attribute.String("messaging.operation.name", operation),
		attribute.Int("messaging.batch.message_count", messages),
	}
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
