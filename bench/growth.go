package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/hand"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
)

// growthWindow is the number of messages in a window. The first and the last window of a large
// backlog are also timed separately.
const growthWindow = 300_000

// growth drains backlogs of several sizes. The cost per message and the relay's memory should not
// grow with the size.
func growth(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, server := range s.up("postgres15", "mysql", "mariadb1011", "sqlite") {
		g := growthRun{server: server, rounds: s.rounds}
		if err := g.costs(ctx, s, report); err != nil {
			return err
		}
	}
	if len(s.up("postgres15")) == 0 {
		return nil
	}
	return memory(ctx, s, report)
}

type growthRun struct {
	server table.Server
	rounds int
}

// growthCase drains a backlog of one size, either by a relay or by the handwritten loop.
type growthCase struct {
	table.Server
	backlog     int
	byHand      bool
	first, last []float64 // µs per message in the windows
}

func (c *growthCase) String() string {
	name := fmt.Sprintf("%s, %s messages", c.Name, count(c.backlog))
	if c.byHand {
		name += ", the loop by hand"
	}
	return name
}

func (g growthRun) costs(ctx context.Context, s settings, report func(figure.Figure)) error {
	of := func(backlog int, byHand bool) *growthCase {
		return &growthCase{Server: g.server, backlog: backlog, byHand: byHand}
	}
	if err := g.compare(ctx, of(100_000, false), only([]*growthCase{of(10_000, false), of(1_000_000, false)}, s), report); err != nil {
		return err
	}
	if !s.long || g.server.Dialect.Name() != "postgres" {
		return nil
	}
	for _, byHand := range []bool{false, true} { // the handwritten loop shows the cost of the tables themselves
		if err := g.compare(ctx, of(100_000, byHand), only([]*growthCase{of(10_000_000, byHand)}, s), report); err != nil {
			return err
		}
	}
	return nil
}

func (g growthRun) compare(ctx context.Context, with *growthCase, those []*growthCase, report func(figure.Figure)) error {
	if len(those) == 0 {
		return nil
	}
	cases := append([]*growthCase{with}, those...)
	var contenders []figure.Contender
	for _, c := range cases {
		contenders = append(contenders, figure.Contender{Name: c.String(), Turn: c.turn})
	}
	values, err := figure.Turns(ctx, g.rounds, contenders...)
	if err != nil {
		return err
	}
	for i, c := range cases[1:] {
		report(c.figure(values[i+1], values[0]))
	}
	return nil
}

// count formats a number for the table of figures.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 1_000:
		return fmt.Sprintf("%d k", n/1_000)
	default:
		return fmt.Sprint(n)
	}
}

func (c *growthCase) figure(values, reference []float64) figure.Figure {
	ratio := figure.Ratio(values, reference)
	f := figure.Figure{
		What: c.String(), Ratio: ratio, Reference: fmt.Sprintf("100 k: %.1f µs", figure.Median(reference)),
		Value: fmt.Sprintf("%.1f µs per message", figure.Median(values)),
	}
	if len(c.first) > 0 {
		f.Value += fmt.Sprintf(" (first %s %.1f, last %.1f)", count(growthWindow), figure.Median(c.first), figure.Median(c.last))
	}
	if c.backlog > 100_000 && !c.byHand {
		f.Goal, f.Met = "≤ 1.20", ratio <= 1.2
	}
	return f
}

// turn fills a table, drains it, and returns the microseconds per message.
func (c *growthCase) turn(ctx context.Context) (float64, error) {
	d, err := filled(ctx, c.Server, table.Messages{Count: c.backlog, Payload: 256})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if c.byHand {
		took, _, err := hand.Drain(ctx, d, hand.Options{Keep: true, Batch: 500, Workers: 2})
		return micros(took, c.backlog), err
	}
	return c.byRelay(ctx, d)
}

func (c *growthCase) byRelay(ctx context.Context, d *table.Database) (float64, error) {
	var sink relays.Counter
	began := time.Now()
	_, stop, err := relays.Start(ctx, d, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: &sink}}})
	if err != nil {
		return 0, err
	}
	if err = c.watch(ctx, &sink, began); err == nil {
		err = relays.UntilEmpty(ctx, d)
	}
	took := time.Since(began)
	if stopped := stop(); err == nil {
		err = stopped
	}
	return micros(took, c.backlog), err
}

// watch waits until the backlog is delivered. For a large backlog it also times the first and the
// last window.
func (c *growthCase) watch(ctx context.Context, sink *relays.Counter, began time.Time) error {
	if c.backlog < 3*growthWindow {
		return sink.Wait(ctx, c.backlog)
	}
	if err := sink.Wait(ctx, growthWindow); err != nil {
		return err
	}
	c.first = append(c.first, micros(time.Since(began), growthWindow))
	if err := sink.Wait(ctx, c.backlog-growthWindow); err != nil {
		return err
	}
	began = time.Now()
	if err := sink.Wait(ctx, c.backlog); err != nil {
		return err
	}
	c.last = append(c.last, micros(time.Since(began), growthWindow))
	return nil
}

func micros(took time.Duration, messages int) float64 {
	return float64(took.Nanoseconds()) / 1e3 / float64(messages)
}

// filled creates a database with a backlog.
func filled(ctx context.Context, server table.Server, m table.Messages) (*table.Database, error) {
	d, err := server.Create(ctx)
	if err != nil {
		return nil, err
	}
	if err = d.Migrate(ctx); err == nil {
		err = d.Grow(ctx, m)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}
