package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

const stuckKey = "stuck"

// refuser is a sink that refuses the messages of one key while its field `shut` is true, either with a rejection or
// with an error after which the relay retries. It checks that the messages of the key arrive in order.
type refuser struct {
	discard.Sink
	parks  bool // reject the message, so that it is parked
	shut   atomic.Bool
	others atomic.Int64 // number of delivered messages of other keys
	passed atomic.Int64 // number of delivered messages of the refused key
	last   atomic.Int64
	wrong  atomic.Int64
}

// Order returns OrderPrefix: a part of a batch may be accepted.
func (*refuser) Order() sinks.Order { return sinks.OrderPrefix }

func (g *refuser) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	outcomes := g.Sink.Send(ctx, batch)
	refused := false
	for i, m := range batch {
		switch {
		case m.Key != stuckKey:
			g.others.Add(1)
		case refused:
			outcomes[i] = sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, "")
		case g.shut.Load():
			refused = true
			if g.parks {
				outcomes[i] = sinks.Fail(sinks.Reject, sinks.ReasonRefused, "shut")
				break
			}
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonServerError, "shut")
		case m.Sequence <= g.last.Swap(m.Sequence):
			g.wrong.Add(1)
			fallthrough
		default:
			g.passed.Add(1)
		}
	}
	return outcomes
}

// stuckRun is a table with many messages of one key. The first of them is retried repeatedly, or
// is parked; either way it blocks the key.
type stuckRun struct {
	*table.Database
	holds      bool
	sink       refuser
	relay      *relay.Relay
	heap, rate []float64 // one value per turn
}

// stuck measures how much 100,000 messages behind a blocked key slow down other messages, and how
// fast the messages of the key are delivered after the key is unblocked. In one case a message
// that is retried blocks the key, in the other a message that is parked with OnPark: HoldKey.
func stuck(ctx context.Context, s settings, report func(figure.Figure)) error {
	for what, holds := range map[string]bool{"100 k behind a stuck key": false, "100 k behind a parked message": true} {
		if len(only([]text{text(what)}, s)) == 0 {
			continue
		}
		shut, open := stuckRun{holds: holds}, stuckRun{holds: holds}
		values, err := figure.Turns(ctx, s.rounds,
			figure.Contender{Name: what, Turn: func(ctx context.Context) (float64, error) { return shut.turn(ctx, backlog) }},
			figure.Contender{Name: "one message behind it", Turn: func(ctx context.Context) (float64, error) { return open.turn(ctx, 2) }})
		if err != nil {
			return err
		}
		ratio := figure.Ratio(values[0], values[1])
		report(figure.Figure{What: what + ": 100 k other messages", Value: figure.Spread(values[0], "/s"), Ratio: ratio,
			Reference: "one message behind it " + figure.Spread(values[1], "/s"), Goal: "≥ 0.90", Met: ratio >= 0.9})
		memory := figure.Median(shut.heap) - figure.Median(open.heap)
		report(figure.Figure{What: what + ": memory of the blocked messages", Value: fmt.Sprintf("%.1f MiB", memory), Goal: "≤ 4 MiB", Met: memory <= 4})
		report(figure.Figure{What: what + ": once the key is unblocked", Value: figure.Spread(shut.rate, "/s, in order")})
	}
	return nil
}

// turn waits until a relay has passed over the blocked messages, and returns the rate at which
// messages of other keys are delivered after that.
func (r *stuckRun) turn(ctx context.Context, behind int) (rate float64, err error) {
	if r.Database, err = filled(ctx, table.Servers["postgres15"], table.Messages{Count: behind, Payload: 256, Key: func(int) string { return stuckKey }}); err != nil {
		return 0, err
	}
	defer r.Close()
	r.sink = refuser{parks: r.holds}
	r.sink.shut.Store(true)
	o := relay.SinkOptions{Sink: &r.sink, MaxAttempts: -1, Backoff: relay.Backoff{Min: 100 * time.Millisecond, Max: 200 * time.Millisecond}}
	if r.holds {
		o.OnPark, o.JudgeAloneAfter, o.ParkRateLimit = relay.HoldKey, relay.JudgeAtOnce, -1
	}
	started, stop, err := relays.Start(ctx, r.Database, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": o}})
	if err != nil {
		return 0, err
	}
	r.relay = started
	if _, err = r.others(ctx, 1000); err == nil { // these messages arrive only after the relay has passed over the blocked messages
		rate, err = r.others(ctx, backlog)
	}
	r.heap = append(r.heap, heap())
	if err == nil {
		err = r.goOn(ctx, behind)
	}
	return rate, errors.Join(err, stop())
}

// others writes messages of other keys, and returns the rate of their delivery.
func (r *stuckRun) others(ctx context.Context, rows int) (rate float64, err error) {
	before := r.sink.others.Load()
	if err := r.Burst(ctx, rows); err != nil {
		return 0, err
	}
	began := time.Now()
	r.relay.Wake()
	err = until(ctx, func() bool { return r.sink.others.Load() >= before+int64(rows) })
	return float64(rows) / time.Since(began).Seconds(), err
}

// goOn unblocks the key, and measures the rate at which its messages are delivered.
func (r *stuckRun) goOn(ctx context.Context, behind int) error {
	sink := &r.sink
	sink.shut.Store(false)
	if r.holds {
		store, err := sqlstore.Open(ctx, r.DB, r.Dialect, sqlstore.Options{})
		if err != nil {
			return err
		}
		if n, err := store.Requeue(ctx, storage.Filter{Key: stuckKey}); err != nil || n != 1 {
			return fmt.Errorf("requeued %d messages, want only the message that holds the key: %v", n, err)
		}
	}
	if err := until(ctx, func() bool { return sink.passed.Load() >= 1 }); err != nil {
		return err
	}
	began := time.Now()
	if err := until(ctx, func() bool { return sink.passed.Load() >= int64(behind) }); err != nil {
		return err
	}
	r.rate = append(r.rate, float64(behind)/time.Since(began).Seconds())
	if wrong := sink.wrong.Load(); wrong > 0 {
		return fmt.Errorf("%d messages of one key arrived out of order", wrong)
	}
	return nil
}

// heap returns the reachable memory of this process in MiB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

func until(ctx context.Context, so func() bool) error {
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
