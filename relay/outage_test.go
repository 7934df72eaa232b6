package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// breakable is a sink that is down while broken is set.
type breakable struct {
	recorder
	broken atomic.Bool
}

func (b *breakable) Open(context.Context) error {
	if b.broken.Load() {
		return errors.New("connection refused")
	}
	return nil
}

func (b *breakable) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if b.broken.Load() {
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "connection refused"))
	}
	return b.recorder.Send(ctx, batch)
}

func write(db *memstore.DB, topic, key string, n int) {
	for range n {
		db.Write(outbox.Message{Topic: topic, Key: key})
	}
}

func statusOf(t *testing.T, db *memstore.DB) map[storage.State]int64 {
	t.Helper()
	status, err := db.Store().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status.Counts
}

func TestOutageChargesNothing(t *testing.T) {
	onlyComputes(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &breakable{}
		sink.broken.Store(true)
		write(db, "orders", "k", 100)
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
		time.Sleep(time.Hour)
		if counts := statusOf(t, db); counts[storage.StatePending] != 100 {
			t.Errorf("during the outage: %v, want 100 pending", counts)
		}
		sink.broken.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 100 {
			t.Errorf("after the outage: %v, want 100 done", counts)
		}
		inOrder(t, sink.received)
		for _, m := range sink.received {
			if m.Attempt != 1 {
				t.Fatalf("message %d was charged %d attempts", m.Sequence, m.Attempt-1)
			}
		}
	})
}

func TestDownSinkDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, up, down := memstore.New(), &recorder{}, &breakable{}
		down.broken.Store(true)
		options := relay.Options{
			Sinks: map[string]relay.SinkOptions{
				"up": {Sink: up, Batch: 10, Buffer: 20}, "down": {Sink: down, Batch: 10, Buffer: 20},
			},
			Routes: []relay.Route{{Topic: "up", Sink: "up"}, {Topic: "down", Sink: "down"}},
		}
		_, stop := start(t, db.Store(), options)
		for i := range 500 {
			write(db, "down", fmt.Sprint("k", i%7), 3)
			write(db, "up", fmt.Sprint("k", i%7), 1)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		if n := len(up.ids()); n != 500 {
			t.Errorf("%d messages of the sink that is up were delivered, want 500", n)
		}
		if err := stop(); err != nil { // another relay takes over the skipped messages
			t.Error(err)
		}
		_, stop = start(t, db.Store(), options)
		write(db, "up", "k1", 1)
		time.Sleep(2 * time.Second)
		if n := len(up.ids()); n != 501 {
			t.Errorf("after the takeover %d messages were delivered, want 501", n)
		}
		down.broken.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(down.ids()); n != 1500 {
			t.Errorf("%d messages of the sink that was down were delivered, want 1500", n)
		}
		inOrder(t, up.received)
		inOrder(t, down.received)
	})
}

func TestFailingKeyDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	for _, order := range []sinks.Order{sinks.OrderNone, sinks.OrderPrefix} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testFailingKey(t, order) })
		})
	}
}

func testFailingKey(t *testing.T, order sinks.Order) {
	var heal atomic.Bool
	failed := map[string]bool{}
	sink := &recorder{order: order, answer: func(m sinks.Message) sinks.Outcome {
		if m.Key == "bad" && !heal.Load() {
			failed[m.ID] = true
			return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
		}
		return sinks.Ok("")
	}}
	db := memstore.New()
	options := to(sink)
	options["main"] = relay.SinkOptions{Sink: sink, Workers: 1, Buffer: 100, Batch: 50, MaxAttempts: -1}
	write(db, "orders", "bad", 5000)
	write(db, "orders", "good", 500)
	_, stop := start(t, db.Store(), relay.Options{Sinks: options})
	time.Sleep(10 * time.Minute)
	if n := len(sink.ids()); n != 500 {
		t.Errorf("%d messages were delivered while one key failed, want 500", n)
	}
	if order == sinks.OrderNone && len(failed) != 1 {
		t.Errorf("%d messages of the failing key were tried, want its first one", len(failed))
	}
	heal.Store(true)
	time.Sleep(10 * time.Minute)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := len(sink.ids()); n != 5500 {
		t.Errorf("%d messages were delivered in the end, want 5500", n)
	}
	inOrder(t, sink.received)
}

func TestParksAfterTheLastAttemptAndContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if m.Sequence == 1 {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "boom\x00")
			}
			return sinks.Ok("")
		}}
		db := memstore.New()
		write(db, "orders", "k", 3)
		options := map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: 3, JudgeAloneAfter: relay.JudgeAtOnce}}
		_, stop := start(t, db.Store(), relay.Options{Sinks: options})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		parked, err := db.Store().List(t.Context(), storage.Filter{State: storage.StateError})
		if err != nil || len(parked) != 1 {
			t.Fatalf("parked: %v, %v", parked, err)
		}
		if p := parked[0]; p.Attempts != 3 || p.LastError != "exhausted: server_error: boom�" {
			t.Errorf("parked after %d attempts with %q", p.Attempts, p.LastError)
		}
		if n := len(sink.ids()); n != 2 {
			t.Errorf("%d messages were delivered, want 2", n)
		}
	})
}

func TestUnroutedTopicWaitsAndIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink, alarms := memstore.New(), &recorder{}, &alarm{}
		options := relay.Options{Sinks: to(sink), Routes: []relay.Route{{Topic: "known", Sink: "main"}}, Observer: alarms}
		write(db, "unknown", "k", 3)
		write(db, "known", "k", 3)
		_, stop := start(t, db.Store(), options)
		time.Sleep(150 * time.Second)
		stop()
		if len(sink.ids()) != 3 {
			t.Errorf("delivered %d, want 3", len(sink.ids()))
		}
		if n := alarms.n.Load(); n < 2 || n > 4 {
			t.Errorf("%d alarms in two and a half minutes, want one a minute", n)
		}
		options.Routes = append(options.Routes, relay.Route{Topic: "unknown", Sink: "main"})
		_, stop = start(t, db.Store(), options)
		time.Sleep(5 * time.Second)
		stop()
		if len(sink.ids()) != 6 {
			t.Errorf("delivered %d after the route was added, want 6", len(sink.ids()))
		}
	})
}

type alarm struct {
	relay.NoObserver
	n atomic.Int32
}

func (a *alarm) Unrouted(string) { a.n.Add(1) }
