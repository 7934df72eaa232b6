package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/hand"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

const backlog = 100_000

// drainCase pairs a server with a configuration for draining a backlog.
type drainCase struct {
	server  table.Server
	rows    bool // claim by rows
	keep    bool
	payload int
	batch   int
}

func (c drainCase) String() string {
	claim, kept := "lanes", "deleted"
	if c.rows {
		claim = "rows"
	}
	if c.keep {
		kept = "kept"
	}
	return fmt.Sprintf("%s, %s, %s, %d B, batches of %d", c.server.Name, claim, kept, c.payload, c.batch)
}

func (c drainCase) goal() float64 {
	if c.server.Dialect.Name() == "postgres" {
		return 0.85
	}
	return 0.8
}

func drain(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, c := range drainCases(s) {
		figures, err := c.measure(ctx, s.rounds)
		if err != nil {
			return err
		}
		for _, f := range figures {
			report(f)
		}
	}
	return nil
}

func drainCases(s settings) (cases []drainCase) {
	for _, name := range []string{"postgres15", "postgres18", "mysql", "mariadb1011", "sqlite"} {
		server := table.Servers[name]
		if server.Missing() || s.servers != "" && !strings.Contains(s.servers, name) {
			continue
		}
		for _, keep := range []bool{true, false} {
			for _, payload := range []int{256, 1024} {
				cases = append(cases, drainCase{server: server, keep: keep, payload: payload, batch: 500})
			}
			cases = append(cases, drainCase{server: server, rows: true, keep: keep, payload: 256, batch: 500})
		}
	}
	return only(cases, s)
}

// only returns the cases that the settings select.
func only[T fmt.Stringer](all []T, s settings) (some []T) {
	for _, c := range all {
		if strings.Contains(c.String(), s.only) {
			some = append(some, c)
		}
	}
	return some
}

func (c drainCase) measure(ctx context.Context, rounds int) ([]figure.Figure, error) {
	contenders := []figure.Contender{
		{Name: "rowrelay, " + c.String(), Turn: c.rate(c.byRelay)},
		{Name: "by hand, " + c.String(), Turn: c.rate(c.byHand)},
	}
	if c.readsNatively() {
		contenders = append(contenders, figure.Contender{Name: "by hand through pgx, " + c.String(), Turn: c.rate(c.byHandNatively)})
	}
	values, err := figure.Turns(ctx, rounds, contenders...)
	if err != nil {
		return nil, err
	}
	f := c.figure(values[0], values[1], "by hand ")
	f.Goal, f.Met = fmt.Sprintf("≥ %.2f", c.goal()), f.Ratio >= c.goal()
	figures := []figure.Figure{f}
	if c.readsNatively() {
		f := c.figure(values[0], values[2], "by hand through pgx ")
		f.What += ", of a loop through pgx"
		figures = append(figures, f)
	}
	return figures, nil
}

func (c drainCase) figure(values, by []float64, reference string) figure.Figure {
	ratio := figure.Ratio(values, by)
	return figure.Figure{What: c.String(), Value: figure.Spread(values, "/s"), Ratio: ratio, Reference: reference + figure.Spread(by, "/s")}
}

// readsNatively reports whether the relay reads through pgx instead of database/sql. If it does, a
// handwritten loop through pgx is measured, too.
func (c drainCase) readsNatively() bool { return c.server.Dialect.Name() == "postgres" && !c.rows }

// rate returns a turn, that is, a function that creates a table with a backlog, drains it with the function `drain`,
// and returns the rate.
func (c drainCase) rate(drain func(ctx context.Context, d *table.Database) (time.Duration, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		d, err := c.server.Create(ctx)
		if err != nil {
			return 0, err
		}
		defer d.Close()
		if err := d.Migrate(ctx); err != nil {
			return 0, err
		}
		if c.rows {
			err = d.IndexRows(ctx)
		}
		if err != nil {
			return 0, err
		}
		if err := d.Fill(ctx, table.Messages{Count: backlog, Payload: c.payload}); err != nil {
			return 0, err
		}
		took, err := drain(ctx, d)
		return backlog / took.Seconds(), err
	}
}

func (c drainCase) byRelay(ctx context.Context, d *table.Database) (time.Duration, error) {
	o := relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: discard.New(), Batch: c.batch}}}
	if !c.keep {
		o.Retention = relay.KeepNothing
	}
	if c.rows {
		o.Claim = storage.ByRows
	}
	return relays.Drain(ctx, d, backlog, o)
}

func (c drainCase) byHand(ctx context.Context, d *table.Database) (time.Duration, error) {
	return c.byLoop(ctx, d, hand.Options{Keep: c.keep, Rows: c.rows})
}

func (c drainCase) byHandNatively(ctx context.Context, d *table.Database) (time.Duration, error) {
	return c.byLoop(ctx, d, hand.Options{Keep: c.keep, Native: true})
}

func (c drainCase) byLoop(ctx context.Context, d *table.Database, o hand.Options) (time.Duration, error) {
	o.Batch, o.Workers = c.batch, 2
	took, rows, err := hand.Drain(ctx, d, o)
	if err == nil && rows != backlog {
		err = fmt.Errorf("the loop found %d of %d rows", rows, backlog)
	}
	return took, err
}
