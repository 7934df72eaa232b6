package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/bench/cpu"
	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/hand"
	"github.com/rowrelay/rowrelay/bench/load"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
)

// latencyCase pairs a server with a rate of messages.
type latencyCase struct {
	server table.Server
	rate   int // messages a second
	poll   bool
}

func (c latencyCase) String() string { return fmt.Sprintf("%s, %d/s", c.server.Name, c.rate) }

// count returns the number of messages to write: enough for six seconds at low rates, and for four
// seconds at other rates.
func (c latencyCase) count() int { return c.rate * map[bool]int{true: 6, false: 4}[c.rate < 200] }

func latency(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, c := range only(latencyCases(s), s) {
		if err := c.measure(ctx, s.rounds, report); err != nil {
			return err
		}
	}
	return nil
}

func latencyCases(s settings) (cases []latencyCase) {
	for _, server := range s.up("postgres15") {
		for _, rate := range []int{10, 50, 200, 1000, 5000} {
			cases = append(cases, latencyCase{server, rate, true})
		}
	}
	for _, server := range s.up("postgres18", "mysql", "mariadb1011", "sqlite") {
		cases = append(cases, latencyCase{server, 200, true})
	}
	return cases
}

// wakening is a relay or a loop, together with the way in which it learns of new messages.
type wakening struct {
	name    string
	options outbox.Options
	trigger bool // plain INSERTs notify relays through the table's trigger
	// start starts the relay or loop, and returns a function to call after each commit.
	start func(ctx context.Context, d *table.Database, tell func(id string)) (after func(), stop func() error, err error)

	took        []float64 // the latencies of all rounds, in milliseconds
	cpu         []float64 // one value per round, as a share of a core
	slip        time.Duration
	rate        float64 // the lowest rate that a round reached; 0: no round has ended
	byRelay     bool
	noReference bool
}

func (c latencyCase) wakenings() []*wakening {
	all := []*wakening{
		{name: "no relay", start: nobody, noReference: true},
		{name: "a loop every ms", start: everyMillisecond},
		{name: "Wake", start: woken, byRelay: true},
	}
	if c.server.Dialect.Name() == "postgres" {
		all = append(all, &wakening{name: "NOTIFY", start: notified, options: outbox.Options{Notify: true, NotifyInterval: c.notifyInterval()}, byRelay: true},
			&wakening{name: "plain INSERTs, trigger", start: notified, trigger: true, byRelay: true})
	}
	if c.poll {
		all = append(all, &wakening{name: "poll", start: polling, byRelay: true})
	}
	return all
}

// notifyInterval returns the shortest interval between notifications. At low rates each message
// sends a notification, because a message without one would wait for the next notification.
func (c latencyCase) notifyInterval() time.Duration {
	if c.rate <= 200 {
		return 0
	}
	return time.Millisecond
}

func (c latencyCase) measure(ctx context.Context, rounds int, report func(figure.Figure)) error {
	all := c.wakenings()
	var contenders []figure.Contender
	for _, w := range all {
		contenders = append(contenders, figure.Contender{Name: c.String() + ", " + w.name, Turn: func(ctx context.Context) (float64, error) { return c.turn(ctx, w) }})
	}
	if _, err := figure.Turns(ctx, rounds, contenders...); err != nil {
		return err
	}
	writers := figure.Median(all[0].cpu)
	loop := all[1].cpuOver(writers)
	for _, w := range all[1:] {
		report(c.figure(w, writers, loop, all[1].percentiles()))
	}
	return nil
}

// cpuOver returns the median CPU of the rounds minus the CPU of the writers, in percent of a core.
func (w *wakening) cpuOver(writers float64) float64 {
	return 100 * max(0, figure.Median(w.cpu)-writers)
}

func (w *wakening) percentiles() string {
	slices.Sort(w.took)
	at := func(q float64) float64 { return w.took[min(len(w.took)-1, int(q*float64(len(w.took))))] }
	if len(w.took) < 2000 {
		return fmt.Sprintf("%.1f, %.1f, – ms", at(0.5), at(0.99))
	}
	return fmt.Sprintf("%.1f, %.1f, %.1f ms", at(0.5), at(0.99), at(0.999))
}

func (c latencyCase) figure(w *wakening, writers, loop float64, reference string) figure.Figure {
	used := w.cpuOver(writers)
	f := figure.Figure{What: fmt.Sprintf("%s, %s", c, w.name), Value: fmt.Sprintf("%s, %.1f %% CPU", w.percentiles(), used)}
	if w.rate < 0.95*float64(c.rate) {
		f.Value += fmt.Sprintf(" (only %.0f/s could be written)", w.rate)
	} else if w.slip > time.Millisecond {
		f.Value += fmt.Sprintf(" (written up to %.1f ms late)", float64(w.slip.Microseconds())/1000)
	}
	if !w.byRelay {
		return f
	}
	f.Ratio, f.Reference = share(used, loop), fmt.Sprintf("the CPU of a loop every ms (%.1f %%; %s)", loop, reference)
	p50, p99 := w.took[len(w.took)/2], w.took[len(w.took)*99/100]
	switch usual := c.server.Name == "PostgreSQL 15" && c.rate >= 50 && c.rate <= 1000; {
	case usual && w.trigger:
		f.Goal, f.Met = "p50 ≤ 2 ms", p50 <= 2
	case usual && w.name == "poll":
		f.Goal, f.Met = "p50 ≤ 5, p99 ≤ 20 ms, CPU ≤ 1/2", p50 <= 5 && p99 <= 20 && f.Ratio <= 1./2
	case c.rate == 200 && c.server.Dialect.Name() == "postgres" && w.name != "poll":
		f.Goal, f.Met = "p50 ≤ 2, p99 ≤ 5 ms, CPU ≤ 1/3", p50 <= 2 && p99 <= 5 && f.Ratio <= 1./3
	}
	return f
}

// share divides a contender's CPU by the loop's CPU. It returns 1 if the loop's CPU was too small
// to be measured.
func share(used, loop float64) float64 {
	if loop <= 0 {
		return 1
	}
	return used / loop
}

// turn writes messages for a few seconds, and records the latencies. It returns their 99th
// percentile.
func (c latencyCase) turn(ctx context.Context, w *wakening) (p99 float64, err error) {
	d, err := c.server.Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return 0, err
	}
	if w.trigger {
		if err := d.NotifyByTrigger(ctx); err != nil {
			return 0, err
		}
	}
	meter, err := cpu.Of(ctx, d)
	if err != nil {
		return 0, err
	}
	watch := load.NewStopwatch(c.count())
	after, stop, err := w.start(ctx, d, watch.Answered)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	<-time.After(1500 * time.Millisecond) // by then the relay has its lanes and listens
	took, used, err := c.write(ctx, d, w, watch, after, meter)
	if err != nil {
		return 0, err
	}
	w.cpu = append(w.cpu, used.Seconds()/took.Seconds())
	if w.noReference {
		return 0, nil
	}
	times := watch.Took()[c.rate/2:] // without the first half second, because a relay that polls and was idle finds the first messages late
	w.took = append(w.took, times...)
	slices.Sort(times)
	fmt.Fprintf(os.Stderr, "  CPU %.1f %%, %.0f/s written, up to %v late\n", 100*used.Seconds()/took.Seconds(), w.rate, w.slip)
	return times[len(times)*99/100], nil
}

func (c latencyCase) write(ctx context.Context, d *table.Database, w *wakening, watch *load.Stopwatch, after func(), meter cpu.Meter) (took, used time.Duration, err error) {
	writer, err := outbox.NewWriter(d.Dialect, w.options)
	if err != nil {
		return 0, 0, err
	}
	workers := 8
	if d.Dialect.Name() == "sqlite" {
		workers = 1
	}
	d.DB.SetMaxOpenConns(workers)
	d.DB.SetMaxIdleConns(workers)
	before, err := meter.Used()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	kept, err := load.Schedule{Rate: float64(c.rate), Count: c.count(), Workers: workers}.Run(ctx, func(ctx context.Context, n int) error {
		if err := writeOne(ctx, d, writer, n); err != nil {
			return err
		}
		watch.Committed(n)
		after()
		return nil
	})
	if err == nil && !w.noReference {
		err = watch.Wait(ctx)
	}
	took = time.Since(began)
	usedThen, usedErr := meter.Used()
	if w.slip = max(w.slip, kept.Slip); w.rate == 0 || kept.Rate < w.rate {
		w.rate = kept.Rate
	}
	return took, usedThen - before, errors.Join(err, usedErr)
}

func writeOne(ctx context.Context, d *table.Database, writer *outbox.Writer, n int) error {
	tx, err := d.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := writer.Write(ctx, tx, outbox.Message{ID: load.ID(n), Topic: "orders", Key: fmt.Sprintf("customer-%d", n%5000), Payload: make([]byte, 256)}); err != nil {
		return err
	}
	return tx.Commit()
}

func nobody(context.Context, *table.Database, func(string)) (func(), func() error, error) {
	return func() {}, func() error { return nil }, nil
}

func everyMillisecond(ctx context.Context, d *table.Database, tell func(string)) (func(), func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- hand.Poll(ctx, d, time.Millisecond, tell) }()
	return func() {}, func() error { cancel(); return <-ended }, nil
}

func woken(ctx context.Context, d *table.Database, tell func(string)) (func(), func() error, error) {
	r, stop, err := relays.Start(ctx, d, telling(tell))
	if err != nil {
		return nil, nil, err
	}
	return r.Wake, stop, nil
}

func notified(ctx context.Context, d *table.Database, tell func(string)) (func(), func() error, error) {
	listener, err := relaypgx.NewListener(d.URL, relaypgx.ListenerOptions{})
	if err != nil {
		return nil, nil, err
	}
	o := telling(tell)
	o.Listener = listener
	_, stop, err := relays.Start(ctx, d, o)
	return func() {}, stop, err
}

func polling(ctx context.Context, d *table.Database, tell func(string)) (func(), func() error, error) {
	_, stop, err := relays.Start(ctx, d, telling(tell))
	return func() {}, stop, err
}

func telling(tell func(string)) relay.Options {
	return relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: relays.Arrivals{Tell: tell}}}}
}
