package tracing_test

import (
	"context"
	"fmt"
	"log/slog"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/tracing"
	"github.com/rowrelay/rowrelay/rowrelaytest"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// A handler continues the trace of the message's writer. In a program the provider is
// otel.GetTracerProvider(), and the Writer has outbox.Options{Headers: tracing.Headers}.
func Example() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	shop := provider.Tracer("shop")

	ctx, order := shop.Start(context.Background(), "place an order")
	table := rowrelaytest.NewOutbox()
	if err := table.Write(ctx, nil, outbox.Message{Topic: "orders", Headers: tracing.Headers(ctx)}); err != nil {
		panic(err)
	}
	order.End()

	handler := func(ctx context.Context, m sinks.Message) error {
		ctx, bill := shop.Start(trace.ContextWithRemoteSpanContext(ctx, tracing.SpanContext(m)), "bill")
		defer bill.End()
		_ = ctx // pass it to the functions that the handler calls
		return nil
	}
	r, err := relay.New(table.Store(), relay.Options{
		Tracer: tracing.New(provider), Drain: true, Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]relay.SinkOptions{"billing": {Sink: inproc.Func(handler)}},
	})
	if err == nil {
		err = r.Run(context.Background())
	}
	if err != nil {
		panic(err)
	}
	for _, span := range exporter.GetSpans() {
		if span.SpanContext.TraceID() == order.SpanContext().TraceID() {
			fmt.Println(span.Name)
		}
	}
	// Output:
	// place an order
	// bill
	// send orders
}
