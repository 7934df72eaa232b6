package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// beside measures the same work on two databases. One of them also has many rows that the work doesn't
// need.
type beside struct {
	loaded, empty *table.Database
}

// work is a measured operation on a database.
type work struct {
	what, unit string
	goal       float64 // the goal for the value divided by the value without the additional rows
	atMost     bool    // the goal is an upper bound
	do         func(ctx context.Context, d *table.Database) (float64, error)
}

func (w work) String() string { return w.what }

func rate(what string, do func(ctx context.Context, d *table.Database) (float64, error)) work {
	return work{what: what, unit: "/s", goal: 0.9, do: do}
}

// besides creates both databases, and calls the function `load`, which writes the additional rows to one of them.
func besides(ctx context.Context, load func(ctx context.Context, d *table.Database) error) (b beside, err error) {
	server := table.Servers["postgres15"]
	for _, d := range []**table.Database{&b.loaded, &b.empty} {
		if *d, err = server.Create(ctx); err == nil {
			err = (*d).Migrate(ctx)
		}
		if err != nil {
			b.Close()
			return b, err
		}
	}
	if err = load(ctx, b.loaded); err != nil {
		b.Close()
	}
	return b, err
}

// Close drops the databases.
func (b beside) Close() {
	for _, d := range []*table.Database{b.loaded, b.empty} {
		if d != nil {
			d.Close()
		}
	}
}

func (b beside) measure(ctx context.Context, rounds int, w work) (figure.Figure, error) {
	on := func(d *table.Database) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return w.do(ctx, d) }
	}
	values, err := figure.Turns(ctx, rounds,
		figure.Contender{Name: w.what, Turn: on(b.loaded)}, figure.Contender{Name: w.what + ", without them", Turn: on(b.empty)})
	if err != nil {
		return figure.Figure{}, err
	}
	ratio := figure.Ratio(values[0], values[1])
	f := figure.Figure{What: w.what, Value: figure.Spread(values[0], w.unit), Ratio: ratio, Reference: "without them " + figure.Spread(values[1], w.unit),
		Goal: fmt.Sprintf("≥ %.2f", w.goal), Met: ratio >= w.goal}
	if w.atMost {
		f.Goal, f.Met = fmt.Sprintf("≤ %.2f", w.goal), ratio <= w.goal
	}
	return f, nil
}

// drained fills a backlog, drains it and returns the rate. No row is purged during this time.
func drained(ctx context.Context, d *table.Database) (float64, error) {
	return drainedKeeping(ctx, d, 48*time.Hour)
}

// drainedBesidePurge drains a backlog while the janitor deletes rows that finished more than a day ago.
func drainedBesidePurge(ctx context.Context, d *table.Database) (float64, error) {
	return drainedKeeping(ctx, d, 24*time.Hour)
}

func drainedKeeping(ctx context.Context, d *table.Database, retention time.Duration) (float64, error) {
	if err := d.Fill(ctx, table.Messages{Count: backlog, Payload: 256}); err != nil {
		return 0, err
	}
	o := relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: discard.New()}}, Retention: retention}
	took, err := relays.Drain(ctx, d, backlog, o)
	return backlog / took.Seconds(), err
}

// requeued parks rows, requeues them, and waits until they are delivered.
func requeued(ctx context.Context, d *table.Database) (float64, error) {
	const rows = 20_000
	if err := d.Hold(ctx, "error", "again", rows); err != nil {
		return 0, err
	}
	store, err := sqlstore.Open(ctx, d.DB, d.Dialect, sqlstore.Options{})
	if err != nil {
		return 0, err
	}
	return delivered(ctx, d, rows, func(ctx context.Context) error {
		n, err := store.Requeue(ctx, storage.Filter{Topic: "again"})
		if err == nil && n != rows {
			err = fmt.Errorf("requeued %d of %d rows", n, rows)
		}
		return err
	})
}

// due writes deferred rows, makes them due, and waits until they are delivered.
func due(ctx context.Context, d *table.Database) (float64, error) {
	const rows = 50_000
	if err := d.Hold(ctx, "scheduled", "due", rows); err != nil {
		return 0, err
	}
	if err := d.Due(ctx, "due"); err != nil {
		return 0, err
	}
	return delivered(ctx, d, rows, func(context.Context) error { return nil })
}

// delivered returns the rate at which a relay delivers the rows that the function `begin` makes due.
func delivered(ctx context.Context, d *table.Database, rows int, begin func(context.Context) error) (float64, error) {
	var sink relays.Counter
	_, stop, err := relays.Start(ctx, d, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: &sink}}, Retention: 48 * time.Hour})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err = begin(ctx); err == nil {
		err = sink.Wait(ctx, rows)
	}
	took := time.Since(began)
	return float64(rows) / took.Seconds(), errors.Join(err, stop())
}
