package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rowrelay/rowrelay/bench/cpu"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/steady"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
)

const (
	hourRate  = 1_000  // messages a second
	hourBurst = 50_000 // messages of a burst; in each part the relay drains one burst in addition to the load
	hourParts = 30     // number of parts into which the run is divided; the report compares the first and the last tenth of the parts
)

// hourRun runs a steady load, and meanwhile measures the relay and the sizes of the tables.
type hourRun struct {
	*table.Database
	clock    steady.Clock
	relay    *relay.Relay
	meter    cpu.Meter
	part     time.Duration
	snapshot bool // a snapshot is held open from one third to one half of the run
	parts    []hourPart
}

// hourPart has the measurements of one part of the run.
type hourPart struct {
	p50, p99 time.Duration // latencies of the steady load before the burst
	capacity float64       // messages per second of the burst
	cost     float64       // µs of CPU per message of the burst, including the server's
	hot      table.Size
	done     table.Size
	kept     int64 // the number of delivered rows in the server's statistics
}

func hour(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, snapshot := range []bool{false, true} {
		name := "PostgreSQL 15"
		if snapshot {
			name += ", a snapshot held open for a sixth of the time"
		}
		if len(only([]text{text(name)}, s)) == 0 {
			continue
		}
		h := &hourRun{part: s.duration / hourParts, snapshot: snapshot}
		if err := h.run(ctx); err != nil {
			return err
		}
		h.report(name+", "+s.duration.String()+" of "+fmt.Sprint(hourRate)+"/s", report)
	}
	return nil
}

// text is a figure's name as a fmt.Stringer, so that the flag -only can select it.
type text string

func (t text) String() string { return string(t) }

func (h *hourRun) run(ctx context.Context) (err error) {
	if h.Database, err = table.Servers["postgres15"].Create(ctx); err != nil {
		return err
	}
	defer h.Close()
	if err := h.Migrate(ctx); err != nil {
		return err
	}
	if h.meter, err = cpu.Of(ctx, h.Database); err != nil {
		return err
	}
	// The retention is a tenth of the run's time. So for most of the run the janitor deletes
	// rows as fast as the load writes them.
	o := relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: &h.clock}},
		Poll: 20 * time.Millisecond, Retention: max(10*time.Second, 3*h.part)}
	r, stop, err := relays.Start(ctx, h.Database, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	loaded := make(chan error, 1)
	writer := steady.Writer{Rate: hourRate, Every: 20 * time.Millisecond, Payload: 256, Written: r.Wake}
	go func() { loaded <- writer.Run(ctx, h.Database) }()
	h.relay = r
	err = h.watch(ctx)
	cancel()
	return errors.Join(err, <-loaded, stop())
}

func (h *hourRun) watch(ctx context.Context) error {
	release := func() {}
	defer func() { release() }()
	for n := range hourParts {
		var err error
		switch {
		case h.snapshot && n == hourParts/3:
			release, err = h.holdSnapshot(ctx)
		case n == hourParts/2:
			release()
		}
		if err == nil {
			err = h.watchPart(ctx)
		}
		if err != nil {
			return err
		}
		p := h.parts[n]
		fmt.Fprintf(os.Stderr, "  part %d: p50 %v, p99 %v, burst %.0f/s (%.1f µs each), hot %s, done %s of %d rows\n", n+1,
			p.p50.Round(10*time.Microsecond), p.p99.Round(10*time.Microsecond), p.capacity, p.cost, p.hot, p.done, p.kept)
	}
	return nil
}

// watchPart measures one part of the run, with a burst two seconds before the part ends.
func (h *hourRun) watchPart(ctx context.Context) error {
	began := time.Now()
	h.clock.Take()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(h.part - 2*time.Second):
	}
	took := h.clock.Take()
	p := hourPart{p50: steady.Quantile(took, 0.5), p99: steady.Quantile(took, 0.99)}
	var err error
	if p.hot, err = h.SizeOf(ctx, "outbox"); err != nil {
		return err
	}
	if p.done, err = h.SizeOf(ctx, "outbox_done"); err != nil {
		return err
	}
	if p.kept, err = h.Estimate(ctx, "outbox_done"); err != nil {
		return err
	}
	p.capacity, p.cost, err = h.burst(ctx)
	h.parts = append(h.parts, p)
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(began.Add(h.part))):
	}
	return err
}

// burst writes many messages in one transaction. It returns the rate at which they were delivered
// while the load continued, and the CPU per message of the burst.
func (h *hourRun) burst(ctx context.Context) (rate, cost float64, err error) {
	before := h.clock.Others()
	if err := h.Burst(ctx, hourBurst); err != nil {
		return 0, 0, err
	}
	used, err := h.meter.Used()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	h.relay.Wake()
	err = until(ctx, func() bool { return h.clock.Others() >= before+hourBurst })
	rate = hourBurst / time.Since(began).Seconds()
	after, problem := h.meter.Used()
	return rate, float64((after - used).Microseconds()) / hourBurst, errors.Join(err, problem)
}

// holdSnapshot opens a transaction with a snapshot. Until the transaction ends, the server can't
// remove row versions that become dead.
func (h *hourRun) holdSnapshot(ctx context.Context) (release func(), err error) {
	conn, err := h.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM outbox_lanes"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return func() {
		if conn != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			_ = conn.Close()
			conn = nil
		}
	}, nil
}

// report compares the last tenth of the run with the first tenth, and the tables' sizes at the end with the sizes
// half-way through the run.
func (h *hourRun) report(name string, report func(figure.Figure)) {
	capacity := h.each(func(p hourPart) float64 { return p.capacity })
	tail := h.each(func(p hourPart) float64 { return p.p99.Seconds() * 1e3 })
	middle := h.each(func(p hourPart) float64 { return p.p50.Seconds() * 1e3 })
	const tenth = hourParts / 10
	first, last := figure.Median(capacity[:tenth]), figure.Median(capacity[hourParts-tenth:])
	report(figure.Figure{What: name + ": bursts, last tenth", Value: fmt.Sprintf("%.0f /s", last), Ratio: last / first,
		Reference: fmt.Sprintf("first tenth %.0f /s", first), Goal: "≥ 0.90", Met: last >= 0.9*first})
	cost := h.each(func(p hourPart) float64 { return p.cost })
	first, last = figure.Median(cost[:tenth]), figure.Median(cost[hourParts-tenth:])
	report(figure.Figure{What: name + ": CPU per message of bursts, last tenth", Value: fmt.Sprintf("%.1f µs", last), Ratio: last / first,
		Reference: fmt.Sprintf("first tenth %.1f µs", first), Goal: "≤ 1.10", Met: last <= 1.1*first})
	first, last = figure.Median(tail[:tenth]), figure.Median(tail[hourParts-tenth:])
	report(figure.Figure{What: name + ": p99, last tenth", Ratio: last / first,
		Value:     fmt.Sprintf("%.1f ms (p50 %.1f)", last, figure.Median(middle[hourParts-tenth:])),
		Reference: fmt.Sprintf("first tenth %.1f ms (p50 %.1f)", first, figure.Median(middle[:tenth]))})
	for _, t := range []struct {
		table string
		size  func(hourPart) table.Size
	}{{"outbox", func(p hourPart) table.Size { return p.hot }}, {"outbox_done", func(p hourPart) table.Size { return p.done }}} {
		sizes := h.each(func(p hourPart) float64 { return float64(t.size(p).Table+t.size(p).Indexes) / (1 << 20) })
		half, end := sizes[hourParts/2-1], sizes[hourParts-1]
		report(figure.Figure{What: name + ": " + t.table + " and its indexes, end", Value: fmt.Sprintf("%.0f MiB", end), Ratio: end / half,
			Reference: fmt.Sprintf("half-way %.0f MiB", half), Goal: "≤ 1.10", Met: end <= 1.1*half})
	}
}

func (h *hourRun) each(value func(hourPart) float64) (values []float64) {
	for _, p := range h.parts {
		values = append(values, value(p))
	}
	return values
}
