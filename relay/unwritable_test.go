package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// choosy is a store that refuses each settlement for which the function `refuses` returns true.
type choosy struct {
	*memstore.Store
	refuses func(storage.Settlement) bool
	lasting error // the error of a refused settlement; if it is nil, the store returns an error that doesn't show that the refusal is lasting
	settles atomic.Int64
}

func (s *choosy) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	s.settles.Add(1)
	for _, settlement := range settlements {
		if s.refuses(settlement) && s.lasting != nil {
			return storage.Settled{}, fmt.Errorf("settle: %w", s.lasting)
		}
		if s.refuses(settlement) {
			return storage.Settled{}, errors.New("character with byte sequence 0xe2 0x86 0x92 has no equivalent in encoding LATIN1")
		}
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

// If the database can't store an error's text, the row is settled without it, and other messages aren't delayed.
func TestTextThatTheDatabaseCannotStore(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				store := &choosy{Store: db.Store(), refuses: func(s storage.Settlement) bool { return strings.Contains(s.Error+s.Receipt, "→") }}
				sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
					switch {
					case m.Sequence%40 == 7:
						return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422: a → b")
					case m.Sequence == 100:
						return sinks.Ok("→")
					}
					return sinks.Ok("fine")
				}}
				for i := range 400 {
					write(db, "orders", fmt.Sprint("k", i%100), 1)
				}
				r, stop := start(t, store, relay.Options{Claim: claim, Sinks: judging(sink)})
				time.Sleep(time.Minute)
				write(db, "orders", "k1", 1)
				time.Sleep(10 * time.Second)
				if err := r.Healthy(); err != nil {
					t.Error(err)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 391 || counts[storage.StateError] != 10 {
					t.Errorf("%v, want 391 done and 10 parked", counts)
				}
				if n := len(sink.ids()); n != 391 {
					t.Errorf("%d deliveries of 391 messages", n)
				}
				parked, _ := db.Store().List(t.Context(), storage.Filter{State: storage.StateError})
				for _, p := range parked {
					if !strings.Contains(p.LastError, "refused to store") {
						t.Errorf("row %d is parked with %q", p.ID, p.LastError)
					}
				}
			})
		})
	}
}

// limited is a store whose server ends settlements of many rows with ErrTimeout, and all settlements while it is overloaded.
type limited struct {
	*memstore.Store
	most       int
	overloaded atomic.Bool
}

func (s *limited) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	if len(settlements) > s.most || s.overloaded.Load() {
		return storage.Settled{}, fmt.Errorf("settle: %w", storage.ErrTimeout)
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

// If the server ends a settlement because it takes too long, the next settlements have fewer rows. No row becomes unwritable.
func TestSettlementsThatTheServerEndsAreMadeSmaller(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink, fails := memstore.New(), &recorder{}, &failures{stage: "settle_refused"}
				store := &limited{Store: db.Store(), most: 10}
				store.overloaded.Store(true)
				for i := range 400 {
					write(db, "orders", fmt.Sprint("k", i%100), 1)
				}
				_, stop := start(t, store, relay.Options{Claim: claim, Sinks: to(sink), Observer: fails})
				time.Sleep(5 * time.Minute) // longer than it takes until a refused row becomes unwritable
				store.overloaded.Store(false)
				time.Sleep(time.Minute)
				if counts := statusOf(t, db); counts[storage.StateDone] != 400 {
					t.Errorf("%v, want all 400 done", counts)
				}
				if n := len(sink.ids()); n != 400 {
					t.Errorf("%d deliveries of 400 messages", n)
				}
				if n := fails.count.Load(); n != 0 {
					t.Errorf("%d outcomes were set aside", n)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// If the database refuses a row's outcome, the row is set aside and reported. Its message isn't sent again, and other messages
// are delivered. Its outcome is written when the database accepts it.
func TestRowThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var healed atomic.Bool
				db, sink, fails := memstore.New(), &recorder{}, &failures{stage: "settle_refused"}
				store := &choosy{Store: db.Store(), refuses: func(s storage.Settlement) bool { return s.ID%100 == 50 && !healed.Load() }}
				for i := range 300 {
					write(db, "orders", fmt.Sprint("k", i%100), 1)
				}
				log := &lines{}
				r, stop := start(t, store, relay.Options{Claim: claim, Sinks: to(sink), Observer: fails, Logger: slog.New(slog.NewTextHandler(log, nil))})
				for range 100 {
					time.Sleep(2 * time.Second)
					write(db, "orders", "k7", 1)
				}
				time.Sleep(5 * time.Second)
				if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "LATIN1") || !strings.Contains(err.Error(), " 4 messages") {
					t.Errorf("healthy: %v", err)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 396 {
					t.Errorf("%v, want 396 done", counts)
				}
				if n := len(sink.ids()); n != 400 {
					t.Errorf("%d deliveries of 400 messages", n)
				}
				if n := fails.count.Load(); n != 4 {
					t.Errorf("the observer received %d failures", n)
				}
				healed.Store(true)
				time.Sleep(time.Minute)
				if err := r.Healthy(); err != nil {
					t.Errorf("at the end Healthy returned %v", err)
				}
				if refused, stored := log.with("level=ERROR", "setting it aside"), log.with("level=INFO", "has stored all outcomes that it had refused"); refused != 4 || stored != 1 {
					t.Errorf("%d lines report a refused outcome, want 4, and %d lines that all outcomes are stored, want 1", refused, stored)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 400 {
					t.Errorf("%v, want all done", counts)
				}
			})
		})
	}
}

// failures is an observer that counts the failures of a stage.
type failures struct {
	relay.NoObserver
	stage string
	count atomic.Int64
}

func (f *failures) Failed(stage string, _ error) {
	if stage == f.stage {
		f.count.Add(1)
	}
}

// If the database refuses all outcomes, for example because its disk is full, only a few rows become unwritable, and only a
// limited number of messages is sent. When the database accepts outcomes again, all are written.
func TestFewRowsAreUnwritableIfAllOutcomesAreRefused(t *testing.T) {
	onlyComputes(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		db, sink, fails := memstore.New(), &recorder{}, &failures{stage: "settle_refused"}
		store := &choosy{Store: db.Store(), refuses: func(storage.Settlement) bool { return !healed.Load() }}
		for i := range 20_000 {
			write(db, "orders", fmt.Sprint("k", i%100), 1)
		}
		_, stop := start(t, store, relay.Options{Sinks: to(sink)})
		time.Sleep(10 * time.Minute)
		if n := len(sink.ids()); n > 8000 {
			t.Errorf("%d messages were sent while no outcome was written", n)
		}
		if n := fails.count.Load(); n > 10 {
			t.Errorf("%d rows became unwritable", n)
		}
		healed.Store(true)
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 20_000 || len(sink.ids()) != 20_000 {
			t.Errorf("%v after %d deliveries, want 20,000 of both", counts, len(sink.ids()))
		}
	})
}

// If a relay with an unwritable row is stopped, the error of Run reports that the row's message will be sent again.
func TestStopWithARowThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		store := &choosy{Store: db.Store(), refuses: func(s storage.Settlement) bool { return s.ID == 3 }}
		write(db, "orders", "k", 10)
		_, stop := start(t, store, relay.Options{Sinks: to(sink)})
		time.Sleep(20 * time.Second)
		began := time.Now()
		if err := stop(); err == nil || !strings.Contains(err.Error(), "1 outcomes were not written") {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// A lane with an unwritable row can be released to another relay, which delivers the lane's later messages.
func TestLaneWithAnUnwritableRowIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, one, two := memstore.New(), &recorder{}, &recorder{}
		refuses := func(s storage.Settlement) bool { return s.ID <= 8 }
		write(db, "orders", "", 8) // in eight lanes
		_, stopOne := start(t, &choosy{Store: db.Store(), refuses: refuses, lasting: storage.ErrRefused}, relay.Options{Sinks: to(one), Name: "one"})
		time.Sleep(time.Minute)
		_, stopTwo := start(t, &choosy{Store: db.Store(), refuses: refuses, lasting: storage.ErrRefused}, relay.Options{Sinks: to(two), Name: "two"})
		time.Sleep(time.Minute)
		write(db, "orders", "", 128)
		time.Sleep(10 * time.Minute)
		if done := statusOf(t, db)[storage.StateDone]; done != 128 {
			t.Errorf("%d later messages were delivered, want 128", done)
		}
		for _, stop := range []func() error{stopOne, stopTwo} {
			if err := stop(); err == nil || !strings.Contains(err.Error(), "were not written") {
				t.Errorf("stop: %v", err)
			}
		}
	})
}

// If the error shows that the refusal is lasting, the refused row is found with a few settlements without pauses between them.
// No row of the other list becomes unwritable.
func TestLastingRefusalIsNarrowedImmediately(t *testing.T) {
	t.Parallel()
	for name, lasting := range map[string]error{"invalid": storage.ErrInvalid, "refused": storage.ErrRefused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink, log := memstore.New(), &recorder{}, &lines{}
				store := &choosy{Store: db.Store(), lasting: lasting, refuses: func(s storage.Settlement) bool { return s.ID%100 == 50 && s.State == storage.StateDone }}
				write(db, "orders", "", 400)
				began := time.Now()
				_, stop := start(t, store, relay.Options{Sinks: to(sink), DrainTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil))})
				for statusOf(t, db)[storage.StateDone] < 396 || log.with("level=ERROR") < 4 {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("the search took %v", took)
				}
				if err := stop(); (err != nil) != (name == "refused") { // an invalid row is deleted and not kept
					t.Errorf("stop: %v", err)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the search and the stop took %v", took)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 396 || counts[storage.StatePending] != map[string]int64{"refused": 4}[name] {
					t.Errorf("at the end the states are %v", counts)
				}
				if n := store.settles.Load(); n > 150 {
					t.Errorf("%d settlements", n)
				}
			})
		})
	}
}

// While the database refuses all outcomes, each run sends only the first batches again. When the cause is fixed, the relay
// resumes automatically.
func TestNothingIsSentWhileAllOutcomesAreRefused(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mended atomic.Bool
				db, sink, log := memstore.New(), &recorder{}, &lines{}
				store := &choosy{Store: db.Store(), lasting: storage.ErrRefused, refuses: func(storage.Settlement) bool { return !mended.Load() }}
				write(db, "orders", "", 1000)
				options := relay.Options{Claim: claim, DrainTimeout: time.Hour, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 10}}, Logger: slog.New(slog.NewTextHandler(log, nil))}
				for range 10 {
					_, stop := start(t, store, options)
					time.Sleep(time.Minute)
					began := time.Now()
					if err := stop(); !errors.Is(err, storage.ErrRefused) {
						t.Errorf("stop: %v", err)
					}
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("the stop took %v", took)
					}
				}
				if n := len(sink.ids()); n == 0 || n > 10*3*10 {
					t.Errorf("%d deliveries in ten runs in which no outcome was written", n)
				}
				if n := log.with("level=ERROR", "refuses every outcome"); n != 10 {
					t.Errorf("%d lines report that every outcome is refused, want one for each run", n)
				}
				again := len(sink.ids())
				r, stop := start(t, store, options)
				time.Sleep(time.Minute)
				if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "refuses every outcome") {
					t.Errorf("healthy: %v", err)
				}
				mended.Store(true)
				time.Sleep(time.Minute)
				if err := r.Healthy(); err != nil {
					t.Errorf("after the database was repaired, Healthy returned %v", err)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 1000 || len(sink.ids())-again != 1000 {
					t.Errorf("%v after %d deliveries, want 1000 of both", counts, len(sink.ids())-again)
				}
			})
		})
	}
}

// If the database refuses a row's outcome, a drain fails for this reason. It doesn't report the row as a due message that it
// can't read.
func TestDrainWithARowThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				store := &choosy{Store: db.Store(), lasting: storage.ErrRefused, refuses: func(s storage.Settlement) bool { return s.ID == 3 }}
				write(db, "orders", "", 10)
				r, err := relay.New(store, relay.Options{Claim: claim, Sinks: to(sink), Drain: true, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "1 outcomes were not written") || strings.Contains(err.Error(), "can't read") {
					t.Errorf("drain: %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("the drain took %v", took)
				}
				if n := len(sink.ids()); n != 10 {
					t.Errorf("%d deliveries of 10 messages", n)
				}
			})
		})
	}
}

// leaving is a store whose Release takes time. After the release a settlement changes nothing, and so the store doesn't refuse
// it.
type leaving struct {
	*choosy
	left atomic.Bool
}

func (s *leaving) Release(ctx context.Context, name string, renewals []storage.Renewal) error {
	err := s.choosy.Release(ctx, name, renewals)
	s.left.Store(true)
	time.Sleep(5 * time.Second)
	return err
}

// If all outcomes are refused, the drain's error has the reason, even if a settlement succeeds without effect while the lanes
// are released.
func TestDrainReportsWhyAllOutcomesAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		store := &leaving{}
		store.choosy = &choosy{Store: db.Store(), lasting: storage.ErrRefused, refuses: func(storage.Settlement) bool { return !store.left.Load() }}
		write(db, "orders", "", 300)
		r, err := relay.New(store, relay.Options{Sinks: to(&recorder{}), Drain: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); !errors.Is(err, storage.ErrRefused) {
			t.Errorf("drain: %v, want %v", err, storage.ErrRefused)
		}
		if !store.left.Load() {
			t.Error("no lane was released")
		}
	})
}

// If the database refuses a dead letter, its message is parked without one.
func TestDeadLetterThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, log := memstore.New(), &lines{}
				store := &choosy{Store: db.Store(), lasting: storage.ErrRefused, refuses: func(s storage.Settlement) bool { return s.DeadLetter != nil }}
				options := withDeadLetters(claim, parking(), &recorder{})
				options.Logger = slog.New(slog.NewTextHandler(log, nil))
				for range 30 {
					db.Write(outbox.Message{Topic: "t", Payload: []byte("bad")}, outbox.Message{Topic: "t", Payload: []byte("good")})
				}
				r, stop := start(t, store, options)
				time.Sleep(time.Minute)
				if err := r.Healthy(); err != nil {
					t.Error(err)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 30 || counts[storage.StateError] != 30 {
					t.Errorf("%v, want 30 done and 30 parked", counts)
				}
				if n := log.with("level=ERROR", "refuses a dead letter"); n != 30 {
					t.Errorf("%d lines report a refused dead letter, want 30", n)
				}
			})
		})
	}
}
