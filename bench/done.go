package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/steady"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

const (
	// The delivered rows of a day at 1,000 messages a second take 40 GB. A tenth of the rows shows
	// the same effects. With -long the table has all rows of a day, with payloads of only 64 bytes, and takes 22 GB.
	doneDay    = 86_400_000
	doneScaled = doneDay / 10
	doneSmall  = 64

	// doneHours is the number of past hours over which the times of delivery are spread. With a
	// retention of a day, the rows of the first two hours may be purged.
	doneHours = 26
)

// done measures work on a table with the delivered rows of a day, and the rate at which a purge deletes the rows
// past the retention.
func done(ctx context.Context, s settings, report func(figure.Figure)) error {
	rows, payload, name := doneScaled, 256, "with 8.6 M done: "
	if s.long {
		rows, payload, name = doneDay, doneSmall, fmt.Sprintf("with a day of done rows (86 M of %d B): ", doneSmall)
	}
	tailed := work{what: name + "p99 of " + count(hourRate) + "/s", unit: "ms", goal: 1.2, atMost: true, do: tail}
	cases := only([]work{rate(name+"a backlog drained", drained), rate(name+"20 k requeued", requeued), tailed,
		rate(name+"a backlog drained during a purge", drainedBesidePurge)}, s)
	if len(s.up("postgres15")) == 0 || len(cases) == 0 {
		return nil
	}
	b, err := besides(ctx, func(ctx context.Context, d *table.Database) error { return d.Finish(ctx, rows, payload, doneHours) })
	if err != nil {
		return err
	}
	defer b.Close()
	for _, c := range cases {
		f, err := b.measure(ctx, s.rounds, c)
		if err != nil {
			return err
		}
		report(f)
	}
	return purged(ctx, s, b.loaded, report)
}

// tail returns the 99th percentile of the delivery times of a steady load, in ms.
func tail(ctx context.Context, d *table.Database) (float64, error) {
	var clock steady.Clock
	r, stop, err := relays.Start(ctx, d, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: &clock}}, Retention: 48 * time.Hour})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	err = steady.Writer{Rate: hourRate, Every: 20 * time.Millisecond, Payload: 256, Written: r.Wake}.Run(ctx, d)
	took := steady.Quantile(clock.Take(), 0.99)
	return took.Seconds() * 1e3, errors.Join(err, stop())
}

// purged measures the purge alone. It calls Purge as the janitor does.
func purged(ctx context.Context, s settings, d *table.Database, report func(figure.Figure)) error {
	store, err := sqlstore.Open(ctx, d.DB, d.Dialect, sqlstore.Options{})
	if err != nil {
		return err
	}
	var rates []float64
	for range s.rounds {
		began, rows := time.Now(), 0
		for time.Since(began) < 3*time.Second {
			n, err := store.Purge(ctx, time.Hour, 1000)
			if err != nil {
				return err
			}
			rows += n
		}
		rates = append(rates, float64(rows)/time.Since(began).Seconds())
	}
	rate := figure.Median(rates)
	report(figure.Figure{What: "done rows purged, one batch after another", Value: figure.Spread(rates, "/s"), Goal: "≥ 10000 /s", Met: rate >= 10_000})
	return nil
}
