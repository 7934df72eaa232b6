package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// recorder is a sink that records the messages that it receives, and answers as configured.
type recorder struct {
	answer func(sinks.Message) sinks.Outcome // nil: delivered
	delay  time.Duration
	order  sinks.Order

	mu       sync.Mutex
	received []sinks.Message
}

func (r *recorder) Open(context.Context) error  { return nil }
func (r *recorder) Close(context.Context) error { return nil }
func (r *recorder) Order() sinks.Order          { return r.order }

func (r *recorder) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if r.delay > 0 {
		time.Sleep(r.delay)
	}
	outcomes := make([]sinks.Outcome, len(batch))
	for i, m := range batch {
		outcomes[i] = sinks.Ok("")
		if r.answer != nil {
			outcomes[i] = r.answer(m)
		}
		r.mu.Lock()
		if outcomes[i].Result == sinks.Delivered {
			r.received = append(r.received, m)
		}
		r.mu.Unlock()
	}
	return outcomes
}

func (r *recorder) ids() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []int64
	for _, m := range r.received {
		ids = append(ids, m.Sequence)
	}
	return ids
}

// decade is the bound for back-offs that shall not end within a test. It is so long because a relay draws each wait at random
// between zero and the bound.
const decade = 90_000 * time.Hour

// start runs a relay until stop is called. stop returns the result of Run.
func start(t *testing.T, store storage.Store, options relay.Options) (r *relay.Relay, stop func() error) {
	t.Helper()
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := relay.New(store, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() error { cancel(); return <-done }
}

func to(sink sinks.Sink) map[string]relay.SinkOptions {
	return map[string]relay.SinkOptions{"main": {Sink: sink}}
}

// judging returns the options of a single sink, with JudgeAtOnce.
func judging(sink sinks.Sink) map[string]relay.SinkOptions {
	return map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: relay.JudgeAtOnce}}
}

func TestDeliversCommittedMessagesInOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []sinks.Order{sinks.OrderNone, sinks.OrderPrefix} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{order: order, delay: time.Millisecond}
				for i := range 1000 {
					tx := db.Begin()
					tx.Insert(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i%10)})
					if i%2 == 0 {
						tx.Rollback()
					}
					tx.Commit()
				}
				_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
				time.Sleep(5 * time.Second)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if n := len(sink.ids()); n != 500 {
					t.Fatalf("delivered %d messages, want 500", n)
				}
				inOrder(t, sink.received)
				status, _ := db.Store().Status(t.Context())
				if status.Counts[storage.StateDone] != 500 || status.Counts[storage.StatePending] != 0 {
					t.Errorf("counts after the run: %v", status.Counts)
				}
			})
		})
	}
}

func (r *recorder) all() []sinks.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

// inOrder checks that the messages of each key arrived in the order of their ids.
func inOrder(t *testing.T, received []sinks.Message) {
	t.Helper()
	last := map[string]int64{}
	for _, m := range received {
		if m.Key != "" && m.Sequence <= last[m.Key] {
			t.Errorf("key %s: message %d arrived after message %d", m.Key, m.Sequence, last[m.Key])
		}
		last[m.Key] = m.Sequence
	}
}
