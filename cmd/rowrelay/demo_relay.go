package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// newRelay is the relay of the demo: an ordinary one, less patient than usual.
func (d *demo) newRelay(ctx context.Context) (*relay.Relay, error) {
	store, err := openStoreOn(ctx, d.source, d.db, dialect.SQLite())
	if err != nil {
		return nil, err
	}
	sink, err := d.kinds.FromURL(d.endpoint.url())
	if err != nil {
		return nil, err
	}
	soon := relay.Backoff{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}
	return relay.New(store, relay.Options{
		Name:   "demo",
		Sinks:  map[string]relay.SinkOptions{"endpoint": {Sink: sink, Batch: 20, Backoff: soon, Reopen: soon, MaxAttempts: -1}},
		Logger: slog.New(slog.DiscardHandler),
	})
}
