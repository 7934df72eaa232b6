package main

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/bench/peers"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// drainer is a system that delivers a backlog: rowrelay, or another outbox or queue (a peer).
type drainer interface {
	fmt.Stringer
	create(ctx context.Context, d *table.Database) error
	write(ctx context.Context, d *table.Database, count int) error
	start(ctx context.Context, d *table.Database, handle peers.Handler) (stop func() error, err error)
	untilDone(ctx context.Context, d *table.Database) error
}

// drainers returns rowrelay in two configurations and, on PostgreSQL, the peers.
func drainers(server table.Server) []drainer {
	all := []drainer{own{keep: true}, own{}}
	if server.Dialect.Name() != "postgres" {
		return all
	}
	for _, p := range []peers.Peer{peers.River{}, peers.Oagudo{}, peers.Watermill{Delete: true}} {
		all = append(all, other{p})
	}
	return all
}

// own is the [drainer] for rowrelay.
type own struct{ keep bool }

func (o own) String() string {
	if o.keep {
		return "rowrelay, kept"
	}
	return "rowrelay, deleted"
}

func (own) create(ctx context.Context, d *table.Database) error { return d.Migrate(ctx) }

func (own) write(ctx context.Context, d *table.Database, count int) error {
	return d.Write(ctx, table.Messages{Count: count, Payload: peersPayload})
}

func (o own) start(ctx context.Context, d *table.Database, handle peers.Handler) (stop func() error, err error) {
	options := relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: handling{handle: handle}}}}
	if !o.keep {
		options.Retention = relay.KeepNothing
	}
	_, stop, err = relays.Start(ctx, d, options)
	return stop, err
}

func (own) untilDone(ctx context.Context, d *table.Database) error { return relays.UntilEmpty(ctx, d) }

// handling is a sink that calls a handler.
type handling struct {
	discard.Sink
	handle peers.Handler
}

func (h handling) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	for i := range batch {
		if err := h.handle(ctx, batch[i].Payload); err != nil {
			return sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, err.Error()))
		}
	}
	return sinks.All(len(batch), sinks.Ok(""))
}

// other is the [drainer] for a peer.
type other struct{ peers.Peer }

func (o other) String() string { return o.Name() }

func (o other) create(ctx context.Context, d *table.Database) error { return o.Create(ctx, d) }

func (o other) write(ctx context.Context, d *table.Database, count int) error {
	return peers.Write(ctx, o.Peer, d, count, peersPayload)
}

func (o other) start(ctx context.Context, d *table.Database, handle peers.Handler) (stop func() error, err error) {
	return o.Start(ctx, d, handle)
}

func (o other) untilDone(ctx context.Context, d *table.Database) error {
	return peers.UntilDone(ctx, o.Peer, d)
}
