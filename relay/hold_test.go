package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
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

// holding is a sink for the option HoldKey. It rejects messages whose payload is "bad" until it is mended.
type holding struct {
	recorder
	mended atomic.Bool
}

func newHolding() *holding {
	s := &holding{}
	s.order = sinks.OrderNone // so that a batch has only one message of each key
	s.answer = func(m sinks.Message) sinks.Outcome {
		if string(m.Payload) == "bad" && !s.mended.Load() {
			return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "bad")
		}
		return sinks.Ok("")
	}
	return s
}

func (s *holding) options() relay.Options {
	return relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: s, OnPark: relay.HoldKey, BreakerThreshold: -1, Buffer: 50}}, Lease: 3 * time.Second}
}

// While a message is parked and holds its key, the key's other messages wait. Messages of other keys and without a key are
// sent. A relay carries out the operator's decision within two seconds, even if it has just taken over the lane or has no
// message of the key in memory. Then all messages of the key are sent in order, a requeued one first.
func TestParkedMessageHoldsItsKey(t *testing.T) {
	t.Parallel()
	type decision struct {
		change func(storage.Operator, context.Context, storage.Filter) (int, error)
		first  bool // the parked message is delivered before the key's others
		left   storage.State
	}
	for name, decide := range map[string]decision{
		"requeue": {storage.Operator.Requeue, true, storage.StateDone},
		"skip":    {storage.Operator.Skip, false, storage.StateError},
		"discard": {storage.Operator.Discard, false, ""},
	} {
		for course, keep := range map[string]int{"known": 1000, "forgotten": 0, "another": 1000, "another, forgotten": 0} {
			t.Run(name+"/"+course, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, sink := memstore.New(), newHolding()
					run := func() func() error {
						o := sink.options()
						o.Logger = slog.New(slog.DiscardHandler)
						r, err := relay.New(db.Store(), o)
						if err != nil {
							t.Fatal(err)
						}
						r.KeepBlockedKeys(keep)
						ctx, cancel := context.WithCancel(t.Context())
						done := make(chan error, 1)
						go func() { done <- r.Run(ctx) }()
						return func() error { cancel(); return <-done }
					}
					var want []int64
					stop := run()
					for i := range 3 {
						time.Sleep(time.Second)
						payload := "good"
						if i == 0 {
							payload = "bad"
							db.Write(outbox.Message{Topic: "t", Payload: []byte("bad")}) // it has no key
						}
						want = append(want, db.Write(outbox.Message{Topic: "t", Key: "k", Payload: []byte(payload)})...)
						db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("other", i)})
						db.Write(outbox.Message{Topic: "t"})
					}
					if strings.HasPrefix(course, "another") {
						time.Sleep(time.Second)
						if err := stop(); err != nil {
							t.Error(err)
						}
						stop = run()
					}
					time.Sleep(10 * time.Second)
					if got := idsOf(sink.all(), "k"); len(got) > 0 {
						t.Errorf("the messages %v of the key were delivered, though an earlier one is parked", got)
					}
					if got := len(sink.all()); got != 6 {
						t.Errorf("%d messages of other keys were delivered, want 6", got)
					}
					if s, _ := db.Store().Status(t.Context()); s.HeldKeys != 1 || s.OldestHeld < 10*time.Second {
						t.Errorf("status: %+v", s)
					}
					sink.mended.Store(true)
					if n, err := decide.change(db.Store(), t.Context(), storage.Filter{Key: "k"}); n != 1 || err != nil {
						t.Errorf("changed %d, %v", n, err)
					}
					want = append(want, db.Write(outbox.Message{Topic: "t", Key: "k"})...) // must not be sent before the others
					time.Sleep(2500 * time.Millisecond)
					if !decide.first {
						want = want[1:]
					}
					if got := idsOf(sink.all(), "k"); !slices.Equal(got, want) {
						t.Errorf("delivered %v, want %v", got, want)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					rows, _ := db.Store().List(t.Context(), storage.Filter{Key: "k"})
					state := storage.State("")
					if len(rows) > 0 && string(rows[0].Message.Payload) == "bad" {
						state = rows[0].State
					}
					if state != decide.left || len(rows) > 0 && rows[0].Holds != storage.NoHold {
						t.Errorf("the parked message is %q in the end, want %q", state, decide.left)
					}
				})
			})
		}
	}
}

// A message that is rejected again after a requeue is parked again, and holds its key again. A malformed message is parked and
// holds its key, too. With ContinueKey, the default, no key is held.
func TestRequeuedMessageHoldsItsKeyAgain(t *testing.T) {
	t.Parallel()
	for _, on := range []relay.OnPark{relay.HoldKey, relay.ContinueKey, ""} {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), newHolding()
				for _, payload := range []string{"bad", "good"} {
					db.Write(outbox.Message{Topic: "t", Key: "k", Payload: []byte(payload)})
				}
				options := sink.options()
				main := options.Sinks["main"]
				main.OnPark = on
				options.Sinks["main"] = main
				_, stop := start(t, db.Store(), options)
				for range 3 {
					time.Sleep(5 * time.Second)
					if n, err := db.Store().Requeue(t.Context(), storage.Filter{}); n != 1 || err != nil {
						t.Errorf("requeued %d, %v", n, err)
					}
				}
				time.Sleep(5 * time.Second)
				want, held := 1, int64(0)
				if on == relay.HoldKey {
					want, held = 0, 1
				}
				if s, _ := db.Store().Status(t.Context()); len(idsOf(sink.all(), "k")) != want || s.HeldKeys != held || s.Counts[storage.StateError] != 1 {
					t.Errorf("delivered %v, status %+v", idsOf(sink.all(), "k"), s)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// After a failover two messages may hold the same key. The one with the lower id is sent first. If that one is deleted from
// the table, the other one holds the key until it is sent.
func TestFirstOfTwoHoldingMessagesIsSentFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), newHolding()
		retryKeys(t, db, 2, 0, func(int) string { return "k" })
		time.Sleep(time.Second)
		s := db.Store()
		grants, err := s.Acquire(t.Context(), "before", storage.Lanes, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		var leases []storage.Renewal
		for _, g := range grants {
			leases = append(leases, storage.Renewal{Lease: g.Lease, Marks: g.Marks})
			rows, _, _ := s.Due(t.Context(), []int{g.Lane}, storage.DueCursor{}, 10, 1<<20)
			for _, row := range rows {
				if _, err := s.Settle(t.Context(), "before", true, []storage.Settlement{{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: g.Fence, Deferred: true, State: storage.StateError, Holds: true}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Release(t.Context(), "before", leases); err != nil {
			t.Fatal(err)
		}
		third := db.Write(outbox.Message{Topic: "t", Key: "k"})[0]
		_, stop := start(t, db.Store(), sink.options())
		time.Sleep(5 * time.Second)
		rows, _ := s.List(t.Context(), storage.Filter{State: storage.StateError})
		if len(rows) != 2 || len(sink.all()) > 0 {
			t.Fatalf("%d are parked, delivered %v", len(rows), sink.ids())
		}
		if n := db.Delete(func(row storage.Row) bool { return row.ID == rows[0].ID }); n != 1 {
			t.Fatalf("deleted %d", n)
		}
		time.Sleep(30 * time.Second)
		if got := sink.ids(); len(got) > 0 {
			t.Errorf("delivered %v, though message %d holds the key", got, rows[1].ID)
		}
		if n, err := s.Requeue(t.Context(), storage.Filter{}); n != 1 || err != nil {
			t.Errorf("requeued %d, %v", n, err)
		}
		time.Sleep(5 * time.Second)
		if got, want := sink.ids(), []int64{rows[1].ID, third}; !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestHoldKeyRequiresLanes(t *testing.T) {
	t.Parallel()
	options := newHolding().options()
	options.Claim = storage.ByRows
	if _, err := relay.New(memstore.New().Store(), options); err == nil || !strings.Contains(err.Error(), "claimed by lanes") {
		t.Errorf("New accepted HoldKey for a relay that claims by rows: %v", err)
	}
	options.Claim = ""
	main := options.Sinks["main"]
	main.OnPark = "wait"
	options.Sinks["main"] = main
	if _, err := relay.New(memstore.New().Store(), options); err == nil {
		t.Error("New accepted an unknown value of OnPark")
	}
}

// A hundred thousand messages wait behind a parked one. The messages of a thousand other keys are delivered without delay.
// Neither the relay nor a relay that takes over its lanes needs more memory for the waiting messages. When the parked message
// is requeued, all are sent in order.
func TestBacklogBehindAHeldKey(t *testing.T) {
	behind := 100_000
	if underRace {
		behind = 5_000
	}
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), newHolding()
		db.Write(outbox.Message{Topic: "t", Key: "k", Payload: []byte("bad")})
		_, stop := start(t, db.Store(), sink.options())
		others := 0
		write := func(rounds int) {
			for range rounds {
				tx := db.Begin()
				for range behind / 10 {
					tx.Insert(outbox.Message{Topic: "t", Key: "k", Payload: []byte("good")})
				}
				for i := range 1000 {
					tx.Insert(outbox.Message{Topic: "t", Key: fmt.Sprint("other", i)})
					others++
				}
				tx.Commit()
				time.Sleep(2 * time.Second)
			}
		}
		write(5)
		for range 2 { // the second relay takes over
			before := heap()
			if err := stop(); err != nil {
				t.Error(err)
			}
			used := int64(before) - int64(heap())
			t.Logf("the relay took %d KiB", used>>10)
			if used > 8<<20 {
				t.Errorf("the relay took %d MiB", used>>20)
			}
			_, stop = start(t, db.Store(), sink.options())
			time.Sleep(5 * time.Second)
			if len(sink.all()) == 5000 {
				write(5)
			}
		}
		if got := len(sink.all()); got != others {
			t.Errorf("%d messages of other keys were delivered, want %d", got, others)
		}
		sink.mended.Store(true)
		if n, err := db.Store().Requeue(t.Context(), storage.Filter{}); n != 1 || err != nil {
			t.Errorf("requeued %d, %v", n, err)
		}
		time.Sleep(10 * time.Minute)
		if got := idsOf(sink.all(), "k"); len(got) != behind+1 || !slices.IsSorted(got) {
			t.Errorf("%d messages of the key were delivered, want %d; sorted: %t", len(got), behind+1, slices.IsSorted(got))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		runtime.KeepAlive(db)
	})
}

func idsOf(messages []sinks.Message, key string) (ids []int64) {
	for _, m := range messages {
		if m.Key == key {
			ids = append(ids, m.Sequence)
		}
	}
	return ids
}
