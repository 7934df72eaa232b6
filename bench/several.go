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
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// severalRelays share the lanes of one table. On a machine with few cores they can't be faster than
// one relay, but they shouldn't be much slower.
type severalRelays struct{ relays int }

func (c severalRelays) String() string {
	return fmt.Sprintf("PostgreSQL 15, kept, 256 B, %d relays", c.relays)
}

func several(ctx context.Context, s settings, report func(figure.Figure)) error {
	if len(s.up("postgres15")) == 0 {
		return nil
	}
	cases := []severalRelays{{1}, {2}, {4}}
	var contenders []figure.Contender
	for _, c := range cases {
		contenders = append(contenders, figure.Contender{Name: c.String(), Turn: c.rate})
	}
	values, err := figure.Turns(ctx, s.rounds, contenders...)
	if err != nil {
		return err
	}
	for i, c := range cases {
		f := figure.Figure{What: c.String(), Value: figure.Spread(values[i], "/s")}
		if i > 0 {
			f.Ratio, f.Reference = figure.Ratio(values[i], values[0]), "one relay "+figure.Spread(values[0], "/s")
		}
		report(f)
	}
	return nil
}

// rate waits until the lanes are distributed over the relays, commits a backlog in one transaction,
// and returns the rate at which it is delivered.
func (c severalRelays) rate(ctx context.Context) (perSecond float64, err error) {
	d, err := table.Servers["postgres15"].Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return 0, err
	}
	var all []*relay.Relay
	for range c.relays {
		r, stop, err := relays.Start(ctx, d, relay.Options{Lease: 2 * time.Second, Sinks: map[string]relay.SinkOptions{"sink": {Sink: discard.New()}}})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		all = append(all, r)
	}
	if err := c.shared(ctx, d); err != nil {
		return 0, err
	}
	if err := d.Burst(ctx, backlog); err != nil {
		return 0, err
	}
	began := time.Now()
	for _, r := range all {
		r.Wake()
	}
	err = relays.UntilEmpty(ctx, d)
	return backlog / time.Since(began).Seconds(), err
}

// shared waits until all relays have the same number of lanes.
func (c severalRelays) shared(ctx context.Context, d *table.Database) error {
	for {
		var holders, fewest int
		err := d.DB.QueryRowContext(ctx, "SELECT count(*), COALESCE(min(lanes), 0) FROM"+
			" (SELECT count(*) AS lanes FROM outbox_lanes WHERE owner IS NOT NULL GROUP BY owner) AS held").Scan(&holders, &fewest)
		if err != nil || holders == c.relays && fewest == storage.Lanes/c.relays {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
