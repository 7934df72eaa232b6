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
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A relay that can send heartbeats but can't read is unhealthy, and leaves its lanes to a relay that can read. When it can
// read again, it gets its share of the lanes again.
func TestRelayThatCannotReadLeavesItsLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		var revoked atomic.Bool
		blind := db.Store()
		blind.Hooks.Lose = func(_ context.Context, op memstore.Op) error {
			if revoked.Load() && op == memstore.OpRead {
				return errors.New("permission denied for table outbox")
			}
			return nil
		}
		ours, others := &recorder{}, &recorder{}
		log := &lines{}
		r, stop := start(t, blind, relay.Options{Sinks: to(ours), Logger: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(500 * time.Millisecond) // so that the relays don't send heartbeats at the same moment
		_, stopOther := start(t, db.Store(), relay.Options{Sinks: to(others)})
		round := func(n int) (got, gotOther int) {
			before, beforeOther := len(ours.all()), len(others.all())
			for i := range 200 {
				write(db, "t", fmt.Sprint("key-", n, "-", i), 1)
			}
			time.Sleep(10 * time.Second)
			return len(ours.all()) - before, len(others.all()) - beforeOther
		}
		time.Sleep(time.Minute)
		if got, other := round(1); got < 50 || other < 50 {
			t.Errorf("the two relays sent %d and %d messages", got, other)
		}
		revoked.Store(true)
		time.Sleep(40 * time.Second)
		if err := r.Healthy(); err == nil {
			t.Error("a relay that can't read is healthy")
		}
		if _, other := round(2); other != 200 {
			t.Errorf("the other relay delivered %d of 200 messages", other)
		}
		revoked.Store(false)
		time.Sleep(3 * time.Minute)
		if err := r.Healthy(); err != nil {
			t.Error(err)
		}
		if lost, again := log.with("level=ERROR", "the table can't be read"), log.with("level=INFO", "the table can be read again"); lost != 1 || again != 1 {
			t.Errorf("%d lines report that the table can't be read, and %d that it can be read again, want one of each", lost, again)
		}
		if got, other := round(3); got < 50 || other < 50 {
			t.Errorf("after the reads succeeded again, the two relays sent %d and %d messages", got, other)
		}
		for _, stop := range []func() error{stop, stopOther} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// If the database doesn't answer a relay for some time, the relay gets its share of the lanes again soon after the database
// answers, however long the outage was. It doesn't leave its lanes to others for a minute, as a relay does that can send
// heartbeats but can't read.
func TestRelayReturnsSoonAfterItsNetwork(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{10 * time.Second, 25 * time.Second, 40 * time.Second, time.Minute, 2 * time.Minute, 10 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				var cut atomic.Bool
				apart := db.Store()
				apart.Hooks.Lose = func(ctx context.Context, _ memstore.Op) error {
					if cut.Load() {
						<-ctx.Done()
					}
					return ctx.Err()
				}
				ours := &recorder{}
				r, stop := start(t, apart, relay.Options{Sinks: to(ours)})
				time.Sleep(500 * time.Millisecond) // so that the relays don't send heartbeats at the same moment
				_, stopOther := start(t, db.Store(), relay.Options{Sinks: to(&recorder{})})
				time.Sleep(time.Minute)
				cut.Store(true)
				time.Sleep(length)
				cut.Store(false)
				time.Sleep(25 * time.Second) // a call that was waiting for its answer ends after its time-out of 15 s, and the next renewal follows within seconds
				if err := r.Healthy(); err != nil {
					t.Error(err)
				}
				before := len(ours.all())
				for i := range 200 {
					write(db, "t", fmt.Sprint("key-", i), 1)
				}
				time.Sleep(10 * time.Second)
				if got := len(ours.all()) - before; got < 50 {
					t.Errorf("25 s after its database answered again, the relay delivered %d of 200 messages, want its share", got)
				}
				for _, stop := range []func() error{stop, stopOther} {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// A relay that can't renew its leases sends nothing, so it is unhealthy although it can read.
func TestRelayThatCannotRenewIsUnhealthy(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var revoked atomic.Bool
				store := memstore.New().Store()
				store.Hooks.Lose = func(_ context.Context, op memstore.Op) error {
					if revoked.Load() && (op == memstore.OpRenew || op == memstore.OpHeartbeat) {
						return errors.New("permission denied for table outbox_lanes")
					}
					return nil
				}
				r, stop := start(t, store, relay.Options{Claim: claim, Sinks: to(&recorder{})})
				time.Sleep(time.Minute)
				revoked.Store(true)
				time.Sleep(40 * time.Second)
				if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "renewing the leases has failed (for") || !strings.Contains(err.Error(), "permission denied") {
					t.Errorf("healthy: %v", err)
				}
				revoked.Store(false)
				time.Sleep(40 * time.Second)
				if err := r.Healthy(); err != nil {
					t.Error(err)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A relay whose settlements keep failing, because of a lock for example, is unhealthy, although its reads and renewals succeed.
// After a restart its messages would be sent again.
func TestRelayThatCannotSettleIsUnhealthy(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, cause := range []error{storage.ErrTimeout, storage.ErrBusy, context.DeadlineExceeded} {
			t.Run(fmt.Sprintf("%s, %v", claim, cause), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db := memstore.New()
					store, locked := db.Store(), atomic.Bool{}
					store.Hooks.Lose = func(_ context.Context, op memstore.Op) error {
						if locked.Load() && op == memstore.OpSettle {
							return cause
						}
						return nil
					}
					r, stop := start(t, store, relay.Options{Claim: claim, Sinks: to(&recorder{})})
					write(db, "orders", "a", 10)
					time.Sleep(time.Minute)
					locked.Store(true)
					write(db, "orders", "b", 10)
					time.Sleep(10 * time.Second)
					if err := r.Healthy(); err != nil {
						t.Errorf("within a lease: %v", err)
					}
					time.Sleep(10 * time.Second)
					if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "writing outcomes has failed (for") || !strings.Contains(err.Error(), cause.Error()) {
						t.Errorf("after more than a lease: %v", err)
					}
					locked.Store(false)
					time.Sleep(10 * time.Second)
					if err := errors.Join(r.Healthy(), stop()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// If the database answers no call, Healthy reports this, and not that reads fail.
func TestUnreachableDatabaseIsUnhealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		store := memstore.New().Store()
		store.Hooks.Fail = func(context.Context, memstore.Op) error {
			if gone.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		r, stop := start(t, store, relay.Options{Sinks: to(&recorder{})})
		time.Sleep(time.Minute)
		gone.Store(true)
		time.Sleep(40 * time.Second)
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "the database has not answered for 4") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("healthy: %v", err)
		}
		gone.Store(false)
		time.Sleep(40 * time.Second)
		if err := errors.Join(r.Healthy(), stop()); err != nil {
			t.Error(err)
		}
	})
}
