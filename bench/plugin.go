package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/relays"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/file"
)

// startedAsPlugin reports whether a relay has started this program as its plug-in.
func startedAsPlugin() bool { return os.Getenv("ROWRELAY_PLUGIN") != "" }

func servePlugin() { plugins.ServeKind(file.Kind()) }

// pluginCase compares the file sink as a plug-in with the same sink in the process, in one
// configuration.
type pluginCase struct {
	name   string
	server string // the server whose backlog a relay drains to the sink; empty: no relay, the sink alone
	sends  int    // concurrent calls
	synced bool
}

func (c pluginCase) String() string { return c.name }

func pluginScene(ctx context.Context, s settings, report func(figure.Figure)) error {
	cases := []pluginCase{
		{name: "file sink alone, 2 sends at a time", sends: 2, synced: true},
		{name: "file sink alone, 1 send at a time", sends: 1, synced: true},
		{name: "file sink alone, 4 sends at a time", sends: 4, synced: true},
		{name: "file sink alone, not synced, 2 at a time", sends: 2},
		{name: "file sink in a relay, PostgreSQL 15", server: "postgres15", synced: true},
	}
	for _, c := range only(cases, s) {
		if c.server != "" && table.Servers[c.server].Missing() {
			continue
		}
		values, err := figure.Turns(ctx, s.rounds,
			figure.Contender{Name: "plug-in, " + c.name, Turn: c.turn(true)},
			figure.Contender{Name: "inside, " + c.name, Turn: c.turn(false)})
		if err != nil {
			return err
		}
		ratio := figure.Ratio(values[0], values[1])
		report(figure.Figure{
			What: c.name, Value: figure.Spread(values[0], "/s"),
			Ratio: ratio, Reference: "inside " + figure.Spread(values[1], "/s"), Goal: "≥ 0.80", Met: ratio >= 0.8,
		})
	}
	return nil
}

// turn returns a function that measures how many messages per second the sink accepts.
func (c pluginCase) turn(plugin bool) func(context.Context) (float64, error) {
	return func(ctx context.Context) (rate float64, err error) {
		folder, err := os.MkdirTemp("", "bench")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(folder)
		sink, err := c.sink(plugin, filepath.Join(folder, "out.jsonl"))
		if err != nil {
			return 0, err
		}
		if err := sink.Open(ctx); err != nil { // before the measurement, so that the start of a plug-in's process doesn't count
			return 0, err
		}
		if c.server != "" {
			return c.drained(ctx, sink)
		}
		defer func() { err = errors.Join(err, sink.Close(ctx)) }()
		return c.alone(ctx, sink)
	}
}

func (c pluginCase) sink(plugin bool, path string) (sinks.Sink, error) {
	if !plugin {
		return file.New(file.Options{Path: path, NoSync: !c.synced})
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return plugins.New(plugins.Options{
		Path: program, Logger: slog.New(slog.DiscardHandler), Config: map[string]string{"path": path, "sync": fmt.Sprint(c.synced)},
	})
}

// alone sends 400 batches of 500 messages of 300 bytes to the sink. Before that it sends 200 batches without
// measuring them, because a new process still has to allocate its memory.
func (c pluginCase) alone(ctx context.Context, sink sinks.Sink) (float64, error) {
	const batches = 400
	if _, err := c.send(ctx, sink, batches/2); err != nil {
		return 0, err
	}
	return c.send(ctx, sink, batches)
}

// send sends batches to the sink concurrently, and returns the messages per second that the sink
// accepts.
func (c pluginCase) send(ctx context.Context, sink sinks.Sink, batches int) (float64, error) {
	batch := pluginBatch()
	failed := make(chan error, c.sends)
	began := time.Now()
	var sends sync.WaitGroup
	for range c.sends {
		sends.Go(func() {
			for range batches / c.sends {
				if o := sink.Send(ctx, batch)[0]; o.Result != sinks.Delivered {
					failed <- fmt.Errorf("outcome %+v", o)
					return
				}
			}
		})
	}
	sends.Wait()
	took := time.Since(began)
	close(failed)
	return float64(batches*len(batch)) / took.Seconds(), <-failed
}

func pluginBatch() []sinks.Message {
	batch := make([]sinks.Message, 500)
	for i := range batch {
		batch[i] = sinks.Message{
			Message: outbox.Message{
				ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", i), Topic: "orders", Key: fmt.Sprintf("customer-%d", i%50),
				Payload: bytes.Repeat([]byte("x"), 300), Headers: map[string]string{"x-trace": "0123456789abcdef"},
			},
			Sequence: int64(i), Attempt: 1, CreatedAt: time.Now(),
		}
	}
	return batch
}

// drained returns the rate at which a relay delivers a backlog to the sink.
func (c pluginCase) drained(ctx context.Context, sink sinks.Sink) (float64, error) {
	return drainCase{server: table.Servers[c.server], keep: true, payload: 300}.rate(
		func(ctx context.Context, d *table.Database) (time.Duration, error) {
			began := time.Now()
			_, stop, err := relays.Start(ctx, d, relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: sink, Batch: 500}}})
			if err != nil {
				return 0, err
			}
			err = relays.UntilEmpty(ctx, d)
			return time.Since(began), errors.Join(err, stop())
		})(ctx)
}
