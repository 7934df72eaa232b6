package tracing_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/tracing"
	"github.com/rowrelay/rowrelay/sinks"
)

// The program writes and handles its messages in one process, on a database. Each handler's context has
// the span of its message, and the Writer stores the span of the context with which Write was called.
func TestHandlersContinueTheTraceOfTheWriter(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	db, err := sql.Open("sqlite", rowrelay.SQLiteFile(filepath.Join(t.TempDir(), "shop.db")))
	check(t, err)
	defer db.Close()
	app, err := rowrelay.New(db, rowrelay.SQLite, rowrelay.Options{
		Writer: outbox.Options{Headers: tracing.Headers},
		Relay:  relay.Options{Tracer: tracing.New(provider), Drain: true, Logger: slog.New(slog.DiscardHandler)},
	})
	check(t, err)
	check(t, app.Migrate(t.Context()))
	var plain, inTx, headers trace.SpanContext // the spans that the handlers got; Run returns after the handlers
	app.Handle("plain", func(ctx context.Context, _ sinks.Message) error {
		plain = trace.SpanContextFromContext(ctx)
		return nil
	})
	app.HandleTx("transaction", func(ctx context.Context, _ *sql.Tx, m sinks.Message) error {
		headers, inTx = tracing.SpanContext(m), trace.SpanContextFromContext(ctx)
		return nil
	})
	ctx, order := provider.Tracer("shop").Start(t.Context(), "order")
	tx, err := db.BeginTx(ctx, nil)
	check(t, err)
	check(t, app.Write(ctx, tx, outbox.Message{Topic: "plain"}, outbox.Message{Topic: "transaction"}))
	check(t, tx.Commit())
	order.End()
	check(t, app.Run(t.Context()))

	spans := byName(exporter)
	for _, c := range []struct {
		handled trace.SpanContext
		span    string
	}{{plain, "producer: send plain"}, {inTx, "producer: send transaction"}, {headers, "producer: send transaction"}} {
		sent := spans[c.span]
		if sent.Parent.SpanID() != order.SpanContext().SpanID() || c.handled.SpanID() != sent.SpanContext.SpanID() {
			t.Errorf("the handler got the span %v; the message was sent in %v with the parent %v, and written in %v", c.handled, sent.SpanContext, sent.Parent, order.SpanContext())
		}
	}
}
