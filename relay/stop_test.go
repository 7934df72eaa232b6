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

func TestDrain(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				for i := range 5000 {
					write(db, "orders", fmt.Sprint("k", i%100), 1)
				}
				db.Write(outbox.Message{Topic: "orders", AvailableAt: time.Now().Add(time.Hour)})
				r, err := relay.New(db.Store(), relay.Options{Logger: slog.New(slog.DiscardHandler), Sinks: to(sink), Drain: true, Claim: claim, Listener: notInADrain{t}})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Run(t.Context()); err != nil {
					t.Errorf("drain: %v", err)
				}
				counts := statusOf(t, db)
				if counts[storage.StateDone] != 5000 || counts[storage.StateScheduled] != 1 || counts[storage.StatePending] != 0 {
					t.Errorf("after the drain: %v", counts)
				}
			})
		})
	}
}

// A drain doesn't wait for the poll interval before it reads again.
func TestDrainDoesNotWaitForAPoll(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, messages := range []int{0, 20, 5000} {
			t.Run(fmt.Sprint(claim, messages), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db := memstore.New()
					for range messages {
						write(db, "orders", "k", 1)
					}
					r, err := relay.New(db.Store(), relay.Options{Logger: slog.New(slog.DiscardHandler), Sinks: to(&recorder{}), Drain: true, Claim: claim, Poll: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					if err := r.Run(t.Context()); err != nil || time.Since(began) > 5*time.Second || statusOf(t, db)[storage.StateDone] != int64(messages) {
						t.Errorf("the drain took %v, %v: %v", time.Since(began), err, statusOf(t, db))
					}
				})
			})
		}
	}
}

// Before a drain ends, its lanes must have been swept. The sweep of each lane when it was leased suffices, unless it began
// more than half a minute ago, or the drain's survey has found a message that no read found. Then the drain makes another
// sweep, delivers the rows that this sweep finds, and ends.
func TestDrainEndsSoonAfterASweep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes   time.Duration // how long the sink takes for the first message
		appears bool          // a message with a lower id appears meanwhile
		swept   bool
	}{"short": {20 * time.Second, false, false}, "short, and a message is left": {20 * time.Second, true, true}, "long": {70 * time.Second, true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				db.Renumber(1000)
				write(db, "orders", "a", 1)
				sink := &recorder{delay: c.takes, answer: func(m sinks.Message) sinks.Outcome {
					if m.Key == "a" && c.appears {
						db.Renumber(5)
						write(db, "orders", "b", 1)
					}
					return sinks.Ok("")
				}}
				store := &unexpected{Store: db.Store()}
				r, err := relay.New(store, relay.Options{Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Timeout: 2 * time.Minute}}, Drain: true})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Run(t.Context()); err != nil {
					t.Error(err)
				}
				if delivered := len(sink.ids()) == 2; store.swept != c.swept || delivered != c.appears {
					t.Errorf("there was another sweep: %t, want %t; the late message was delivered: %t, want %t", store.swept, c.swept, delivered, c.appears)
				}
			})
		})
	}
}

// unexpected is a store that doesn't report rows that appear below the cursors. Its scans take a second, so that the pauses
// between sweeps are long.
type unexpected struct {
	*memstore.Store
	last, safe int64
	swept      bool
}

func (s *unexpected) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	s.last, s.safe = max(s.last, page.LastID), max(s.safe, page.SafeID)
	page.LastID, page.SafeID, page.LateAfter = s.last, s.safe, -1
	return page, err
}

func (s *unexpected) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	s.swept = true
	time.Sleep(time.Second)
	return s.Store.Scan(ctx, positions, except, keep)
}

// notInADrain is a Listener that fails the test if a drain calls it.
type notInADrain struct{ t *testing.T }

func (l notInADrain) Listen(ctx context.Context, _ func()) error {
	l.t.Error("the drain called the Listener")
	<-ctx.Done()
	return nil
}

func TestDrainReportsTopicsWithoutARoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		write(db, "unknown", "", 1)
		r, err := relay.New(db.Store(), relay.Options{Logger: slog.New(slog.DiscardHandler), Sinks: to(sink), Drain: true, Routes: []relay.Route{{Topic: "known", Sink: "main"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown") {
			t.Errorf("drain with an unknown topic: %v", err)
		}
	})
}

func TestStopFinishesSendsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{delay: 3 * time.Second}
		for i := range 100 {
			write(db, "orders", fmt.Sprint("k", i), 1)
		}
		options := map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 10, Workers: 2}}
		_, stop := start(t, db.Store(), relay.Options{Sinks: options})
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the stop took %v", took)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 20 || counts[storage.StatePending] != 80 {
			t.Errorf("after the stop: %v, want the 20 that were in flight done", counts)
		}
		grants, err := db.Store().Acquire(t.Context(), "other", storage.Lanes, time.Second)
		if err != nil || len(grants) != storage.Lanes || grants[0].Crashes != 0 {
			t.Errorf("after the stop %d lanes are free (%v), want all", len(grants), err)
		}
	})
}

// A stop that takes longer than a second logs once what it waits for, and how long it takes at most.
func TestStopLogsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opens, sends time.Duration
		abort        bool
		waitsFor     string // empty: nothing is logged
	}{
		"done soon":      {sends: 500 * time.Millisecond},
		"slow":           {sends: 8 * time.Second, waitsFor: `3 messages in flight at sink \"main\"`},
		"longer than it": {sends: 28 * time.Second, waitsFor: `3 messages in flight at sink \"main\"`},
		"slow to open":   {opens: 8 * time.Second, waitsFor: `sink \"main\", which is being opened`},
		"aborted":        {sends: 3 * time.Second, abort: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, log := memstore.New(), &lines{}
				for range 3 {
					write(db, "orders", "", 1)
				}
				r, stop := start(t, db.Store(), relay.Options{
					Name: "one", DrainTimeout: 25 * time.Second,
					Sinks: to(lateOpening{&recorder{delay: c.sends}, c.opens}), Logger: slog.New(slog.NewTextHandler(log, nil)),
				})
				time.Sleep(100 * time.Millisecond)
				if c.abort {
					r.Abort()
				}
				_ = stop() // other tests check its result
				all := log.with("relay: stopping")
				right := log.with("level=INFO", "relay: stopping", "relay=one", `waits_for="`+c.waitsFor+`"`, `at_most=40s`)
				if want := min(len(c.waitsFor), 1); all != want || right != want {
					t.Errorf("%d lines report what the stop waits for, %d of them as expected, want %d:\n%s", all, right, want, log.text.String())
				}
			})
		})
	}
}

// stubborn is a sink that ignores its context.
type stubborn struct {
	recorder
	release chan struct{}
}

func (s *stubborn) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	<-s.release
	return s.recorder.Send(ctx, batch)
}

// A stop takes at most as long as it logs, even if a sink ignores its context and the database doesn't answer. So an operator
// may set the process manager's grace period to the logged time.
func TestStopEndsWithinTheTimeThatItLogs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone bool // the database doesn't answer
		took time.Duration
	}{
		"a sink hangs":                           {took: 31 * time.Second},
		"a sink hangs, and so does the database": {gone: true, took: 41 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, log, sink := memstore.New(), &lines{}, &stubborn{release: make(chan struct{})}
				store, gone := db.Store(), atomic.Bool{}
				store.Hooks.Fail = func(ctx context.Context, _ memstore.Op) error {
					if gone.Load() {
						<-ctx.Done()
					}
					return ctx.Err()
				}
				write(db, "orders", "", 1)
				_, stop := start(t, store, relay.Options{DrainTimeout: 25 * time.Second, Sinks: to(sink), Logger: slog.New(slog.NewTextHandler(log, nil))})
				time.Sleep(time.Second)
				gone.Store(c.gone)
				began := time.Now()
				_ = stop() // other tests check its result
				if took := time.Since(began).Round(time.Second); took != c.took {
					t.Errorf("the stop took %v, want %v", took, c.took)
				}
				if n := log.with("relay: stopping", "at_most=40s"); n != 1 { // the line is logged a second after the stop began: 24 s + abortGrace + leaveGrace + workerGrace
					t.Errorf("%d lines have the maximum time, want 1:\n%s", n, log.text.String())
				}
				close(sink.release)
				synctest.Wait()
			})
		})
	}
}

func TestStopGivesUpAfterItsTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &stubborn{release: make(chan struct{})}
		write(db, "orders", "", 1)
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err == nil || !strings.Contains(err.Error(), "sent again") {
			t.Errorf("stop with a sink that hangs: %v", err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the stop took %v", took)
		}
		close(sink.release)
		synctest.Wait()
	})
}

func TestAbortSkipsTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &waiter{}
		write(db, "orders", "", 1)
		r, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), DrainTimeout: time.Hour})
		time.Sleep(time.Second)
		began := time.Now()
		r.Abort()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the abort took %v", took)
		}
		if counts := statusOf(t, db); counts[storage.StatePending] != 1 {
			t.Errorf("after the abort: %v, want the message still pending and uncharged", counts)
		}
	})
}

// waiter is a sink whose Send returns only when its context ends, without sending.
type waiter struct{ recorder }

func (w *waiter) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	<-ctx.Done()
	return sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, context.Cause(ctx).Error()))
}

func TestDatabaseGoneStopsSendingBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &waiter{}
		write(db, "orders", "k", 1)
		store := db.Store()
		gone := make(chan struct{})
		store.Hooks.Fail = func(context.Context, memstore.Op) error {
			select {
			case <-gone:
				return errors.New("connection refused")
			default:
				return nil
			}
		}
		options := map[string]relay.SinkOptions{"main": {Sink: sink, Timeout: time.Hour}}
		r, stop := start(t, store, relay.Options{Sinks: options, Lease: 10 * time.Second})
		time.Sleep(time.Minute)
		if err := r.Healthy(); err != nil {
			t.Errorf("healthy: %v", err)
		}
		close(gone)
		time.Sleep(11 * time.Second)
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("for a relay that can't reach its database, Healthy returned %v", err)
		}
		other := &recorder{}
		_, stopOther := start(t, db.Store(), relay.Options{Sinks: to(other), Name: "other"})
		time.Sleep(15 * time.Second)
		if len(other.ids()) != 1 {
			t.Error("no relay took over the lanes")
		}
		stop()
		if err := stopOther(); err != nil {
			t.Error(err)
		}
	})
}

// If one kind of read has failed for longer than a lease, the relay is unhealthy until such a read succeeds, even if it renews
// its leases.
func TestReadsThatFailForALeaseAreUnhealthy(t *testing.T) {
	t.Parallel()
	for op, claim := range map[memstore.Op]storage.Claim{
		memstore.OpRead: storage.ByLanes, memstore.OpScan: storage.ByLanes, memstore.OpDue: storage.ByLanes, memstore.OpClaim: storage.ByRows, memstore.OpReclaim: storage.ByRows,
	} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				store, failing := db.Store(), atomic.Bool{}
				store.Hooks.Fail = func(_ context.Context, called memstore.Op) error {
					if called == op && failing.Load() {
						return errors.New("canceling statement due to statement timeout")
					}
					return nil
				}
				r, stop := start(t, store, relay.Options{Claim: claim, Lease: 10 * time.Second, Sinks: to(&recorder{})})
				time.Sleep(time.Minute)
				failing.Store(true)
				late := db.Begin()
				late.Insert(outbox.Message{Topic: "orders", Key: "k"})
				write(db, "orders", "k", 500) // so many messages that the next page begins above the late row
				db.Write(outbox.Message{Topic: "orders", AvailableAt: time.Now().Add(time.Second)})
				time.Sleep(5 * time.Second)
				late.Commit()
				time.Sleep(15 * time.Second)
				if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "statement timeout") {
					t.Errorf("for a relay whose calls of %s fail, Healthy returned %v", op, err)
				}
				failing.Store(false)
				time.Sleep(10 * time.Second)
				if err := r.Healthy(); err != nil {
					t.Errorf("after the reads succeeded again, Healthy returned %v", err)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 502 {
					t.Errorf("at the end: %v, want 502 done", counts)
				}
			})
		})
	}
}

// stopsAtItsStart is a store whose SetClaimMode waits until its context ends, and then returns an error, as a driver does.
type stopsAtItsStart struct {
	*memstore.Store
	stop context.CancelFunc
	err  error
}

func (s stopsAtItsStart) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	s.stop()
	if s.err == nil {
		return s.Store.SetClaimMode(context.WithoutCancel(ctx), claim)
	}
	<-ctx.Done()
	return s.err
}

// If a relay is stopped while it starts, Run returns nil, whatever error the driver returned.
func TestRelayStopsCleanlyWhileItStarts(t *testing.T) {
	t.Parallel()
	for _, drain := range []bool{false, true} {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			for _, failure := range []error{nil, context.Canceled, errors.New("canceling statement due to user request")} {
				t.Run(fmt.Sprint(drain, claim, failure), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						ctx, stop := context.WithCancel(t.Context())
						sink := &closing{}
						r, err := relay.New(stopsAtItsStart{memstore.New().Store(), stop, failure}, relay.Options{Claim: claim, Drain: drain, Sinks: to(sink), Logger: slog.New(slog.DiscardHandler)})
						if err != nil {
							t.Fatal(err)
						}
						if err := r.Run(ctx); err != nil || sink.closed != 1 {
							t.Errorf("Run returned %v after a stop during the start; the sink was closed %d times", err, sink.closed)
						}
					})
				})
			}
		}
	}
}
