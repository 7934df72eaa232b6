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

func TestCompetingRelaysDeliverEachRowOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{delay: time.Millisecond}
		write(db, "orders", "k", 2000)
		var stops []func() error
		for i := range 5 {
			_, stop := start(t, db.Store(), relay.Options{Name: fmt.Sprint("r", i), Claim: storage.ByRows,
				Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 20, Workers: 2}}})
			stops = append(stops, stop)
		}
		time.Sleep(time.Minute)
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		if n := len(sink.ids()); n != 2000 {
			t.Errorf("%d deliveries, want 2000", n)
		}
	})
}

func TestRowsOfADeadRelayAreClaimedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		write(db, "orders", "", 10)
		if err := db.Store().SetClaimMode(t.Context(), storage.ByRows); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Store().Claim(t.Context(), storage.ClaimRequest{Relay: "dead", Token: "x", TTL: 15 * time.Second, Limit: 10, Pick: storage.Oldest}); err != nil {
			t.Fatal(err)
		}
		sink := &recorder{}
		_, stop := start(t, db.Store(), relay.Options{Claim: storage.ByRows, Sinks: to(sink)})
		time.Sleep(14 * time.Second)
		if len(sink.ids()) != 0 {
			t.Error("rows were delivered although their claim had not ended")
		}
		time.Sleep(3 * time.Second)
		if len(sink.ids()) != 10 {
			t.Errorf("%d rows delivered after the claim ended, want 10", len(sink.ids()))
		}
		stop()
	})
}

func TestRowsWithASlowHandlerAreNotClaimedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		write(db, "orders", "", 6)
		sink := &recorder{delay: 50 * time.Second}
		options := map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 1, Workers: 2, Timeout: time.Hour}}
		_, stop := start(t, db.Store(), relay.Options{Name: "a", Claim: storage.ByRows, Sinks: options})
		_, stop2 := start(t, db.Store(), relay.Options{Name: "b", Claim: storage.ByRows, Sinks: options})
		time.Sleep(10 * time.Minute)
		stop()
		stop2()
		if n := len(sink.ids()); n != 6 {
			t.Errorf("%d deliveries, want 6", n)
		}
	})
}

func TestByRowsDownSinkDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, up, down := memstore.New(), &recorder{}, &breakable{}
		down.broken.Store(true)
		write(db, "down", "", 300)
		write(db, "up", "", 300)
		write(db, "unknown", "", 3)
		_, stop := start(t, db.Store(), relay.Options{Claim: storage.ByRows,
			Sinks:  map[string]relay.SinkOptions{"up": {Sink: up, Batch: 10, Buffer: 20}, "down": {Sink: down, Batch: 10, Buffer: 20}},
			Routes: []relay.Route{{Topic: "up", Sink: "up"}, {Topic: "down", Sink: "down"}}})
		time.Sleep(time.Minute)
		if n := len(up.ids()); n != 300 {
			t.Errorf("%d messages of the sink that is up delivered, want 300", n)
		}
		down.broken.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(down.ids()); n != 300 {
			t.Errorf("%d messages of the sink that was down delivered, want 300", n)
		}
		if counts := statusOf(t, db); counts[storage.StatePending] != 3 || counts[storage.StateClaimed] != 0 {
			t.Errorf("at the end: %v, want the 3 without a route pending", counts)
		}
	})
}

func TestStopByRowsGivesClaimsBackUncharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &waiter{}
		write(db, "orders", "", 50)
		_, stop := start(t, db.Store(), relay.Options{Claim: storage.ByRows, DrainTimeout: time.Second,
			Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 5}}})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		rows, err := db.Store().List(t.Context(), storage.Filter{Limit: 100})
		if err != nil || len(rows) != 50 {
			t.Fatal(len(rows), err)
		}
		for _, row := range rows {
			if row.State != storage.StatePending || row.Attempts != 0 {
				t.Errorf("row %d is %s after %d attempts", row.ID, row.State, row.Attempts)
			}
		}
	})
}

func TestTransactionalHandlerNeedsASQLStore(t *testing.T) {
	t.Parallel()
	if _, err := relay.New(memstore.New().Store(), relay.Options{Sinks: to(txSink{})}); err == nil {
		t.Error("New accepted a transactional handler with a store that isn't over a SQL database")
	}
}

type txSink struct{ sinks.TxSink }

func TestConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), memstore.New()
		c, err := relay.NewConsumer(db.Store(), relay.ConsumerOptions{MaxAttempts: 2, Backoff: relay.Backoff{Min: time.Second, Max: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := c.Receive(waiting, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Receive from an empty table: %v", err)
		}
		db.Write(outbox.Message{Topic: "a"}, outbox.Message{Topic: "b"}, outbox.Message{Topic: "c", AvailableAt: time.Now().Add(time.Hour)}, outbox.Message{Topic: "d"})
		got, err := c.Receive(ctx, 10)
		if err != nil || len(got) != 3 {
			t.Fatalf("received %d, %v; want 3", len(got), err)
		}
		if err := errors.Join(got[0].Done(ctx, "receipt"), got[1].Retry(ctx, "later"), got[2].Extend(ctx, 10*time.Minute)); err != nil {
			t.Error(err)
		}
		if err := got[0].Done(ctx, ""); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("a second answer: %v", err)
		}
		again, err := c.Receive(ctx, 10)
		if err != nil || len(again) != 1 || again[0].Topic != "b" || again[0].Attempt != 2 {
			t.Fatalf("received again: %v, %v", again, err)
		}
		if err := errors.Join(again[0].Retry(ctx, "no"), got[2].Park(ctx, "never"), c.Close(ctx)); err != nil {
			t.Error(err)
		}
		counts := statusOf(t, db)
		if counts[storage.StateDone] != 1 || counts[storage.StateError] != 2 || counts[storage.StateScheduled] != 1 {
			t.Errorf("at the end: %v", counts)
		}
	})
}

func TestRowsAreDeliveredInTheOrderOfPick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		for i := range 9 {
			db.Write(outbox.Message{Topic: "orders", Priority: int16(i % 3)})
		}
		_, stop := start(t, db.Store(), relay.Options{Claim: storage.ByRows, Pick: storage.Priority,
			Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Workers: 1}}})
		time.Sleep(time.Second)
		stop()
		if got, want := fmt.Sprint(sink.ids()), "[3 6 9 2 5 8 1 4 7]"; got != want {
			t.Errorf("delivered %s, want %s", got, want)
		}
	})
}

// A consumer doesn't receive messages of a paused topic.
func TestConsumerSkipsPausedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), memstore.New()
		store := db.Store()
		c, err := relay.NewConsumer(db.Store(), relay.ConsumerOptions{Name: "c"})
		if err != nil {
			t.Fatal(err)
		}
		db.Write(outbox.Message{Topic: "a"}, outbox.Message{Topic: "b"})
		pause := storage.Control{Kind: storage.PauseTopic, Name: "a"}
		if err := store.SetControl(ctx, pause, 0); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Receive(ctx, 10); err != nil || len(got) != 1 || got[0].Topic != "b" {
			t.Errorf("while a topic is paused: %v, %v", got, err)
		}
		if _, err := store.LiftControl(ctx, pause); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Receive(ctx, 10); err != nil || len(got) != 1 || got[0].Topic != "a" {
			t.Errorf("after the topic was resumed: %v, %v", got, err)
		}
		// A paused consumer leaves messages to other relays and consumers, if any are active.
		db.Write(outbox.Message{Topic: "b"})
		if err := store.SetControl(ctx, storage.Control{Kind: storage.PauseRelay, Name: "c"}, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Heartbeat(ctx, storage.Identity{Name: "other", Claim: storage.ByRows}, time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if got, err := c.Receive(waiting, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the consumer is paused and a relay is active: %v, %v", got, err)
		}
		if err := store.Deregister(ctx, "other"); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Receive(ctx, 10); err != nil || len(got) == 0 {
			t.Errorf("while the consumer is paused, without other relays: %v, %v", got, err)
		}
	})
}

// Receive settles some claimed rows itself, such as expired ones. If it fails to settle such a row, it returns the other
// claimed rows.
func TestConsumerReceivesClaimedRowsThoughOneCannotBeSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), memstore.New()
		store := db.Store()
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpSettle {
				return errors.New("refused")
			}
			return nil
		}
		c, err := relay.NewConsumer(store, relay.ConsumerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		late := outbox.Message{Topic: "late", ExpiresAt: time.Now().Add(-time.Hour)}
		db.Write(outbox.Message{Topic: "a"}, late, outbox.Message{Topic: "b"})
		if got, err := c.Receive(ctx, 10); err != nil || len(got) != 2 {
			t.Errorf("received %d messages, %v; want the other two", len(got), err)
		}
		db.Write(late)
		if got, err := c.Receive(ctx, 10); err == nil || len(got) != 0 {
			t.Errorf("received %d messages, %v; want the error", len(got), err)
		}
	})
}

// If the table is changed to lanes while a relay that claims by rows is considered dead, the relay's next claim or heartbeat
// fails. The relay then ends without having changed the table.
func TestRowsRelayEndsWhenTheClaimModeChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &waiter{}
		write(db, "orders", "", 5)
		store := db.Store()
		var changed atomic.Bool
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if changed.Load() && op == memstore.OpHeartbeat {
				return errors.New("heartbeats fail, so only a claim can report the change")
			}
			return nil
		}
		r, err := relay.New(store, relay.Options{Name: "r", Claim: storage.ByRows, DrainTimeout: time.Second, Sinks: to(sink)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run(t.Context()) }()
		time.Sleep(time.Second)
		changed.Store(true)
		if err := db.Store().Deregister(t.Context(), "r"); err != nil { // now the table considers the relay dead
			t.Fatal(err)
		}
		if err := db.Store().SetClaimMode(t.Context(), storage.ByLanes); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, storage.ErrOtherClaim) {
			t.Errorf("Run returned %v, want %v", err, storage.ErrOtherClaim)
		}
		if counts := statusOf(t, db); counts[storage.StatePending] != 5 {
			t.Errorf("at the end: %v, want 5 pending", counts)
		}
	})
}
