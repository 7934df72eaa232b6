package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// TestSimulationOfAChange runs histories in which relays by rows are suspended in the middle of their work, and resume after the
// table was changed to lanes.
func TestSimulationOfAChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(max(1, *simulations/3)) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateAs(t, seed+1, nil, (*world).playChange)
		})
	}
}

// playChange first runs relays that claim by rows, some of which are suspended. When the suspended relays are considered
// dead, other relays start to claim by lanes. Then the suspended relays resume, one after the other. Messages that were
// committed before the change may be delivered in any order.
func (w *world) playChange() {
	w.course.change = true
	w.setByRows(true)
	for writer := range w.course.writers {
		w.writers.Go(func() { w.write(writer) })
	}
	end := time.Now().Add(simulatedTime)
	w.relays.Go(func() { w.breakSinks(end) })
	for range operators {
		w.relays.Go(func() { w.steer(end) })
	}
	fall := make(chan struct{})
	var wakes []chan struct{}
	for i := range 4 {
		wake := make(chan struct{})
		wakes = append(wakes, wake)
		w.relays.Go(func() { w.sleeper(fmt.Sprint("sleeper-", i), fall, wake) })
	}
	time.Sleep(30*time.Second + w.span(30*time.Second))
	w.incident()
	close(fall)
	time.Sleep(8 * time.Second) // longer than their leases

	w.setByRows(false)
	for slot := range 2 {
		w.relays.Go(func() { w.keepRelaying(slot, end) })
	}
	// If a relay resumed before the change, the table would stay claimed by rows. A store that is broken on purpose may never
	// change the table.
	for range 30 {
		if w.db.Claim() == storage.ByLanes {
			break
		}
		time.Sleep(time.Second)
	}
	for _, wake := range wakes {
		w.nap(30 * time.Second)
		close(wake)
	}
	w.calmDown()
	stop := w.run("last", w.db.Store())
	w.goOn()
	stop()
	w.check()
}

func (w *world) setByRows(byRows bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byRows = byRows
}

// sleeper runs a relay that is suspended, and checks that it ends because of the change after it has resumed.
func (w *world) sleeper(name string, fall, wake chan struct{}) {
	store := w.db.Store()
	disturb := func(ctx context.Context, op memstore.Op) error {
		if op == memstore.OpSetClaimMode {
			return nil // if this call failed, Run would end before the relay is suspended
		}
		return w.disturb(ctx, nil)
	}
	store.Hooks = memstore.Hooks{Fail: disturb}
	r := w.relay(name, sleeping{store, fall, wake}, make(chan struct{}))
	ctx, cancel := context.WithTimeout(context.Background(), simulatedTime)
	defer cancel()
	if err := r.Run(ctx); w.wrap == nil && !errors.Is(err, storage.ErrOtherClaim) {
		w.problem("relay %s resumed and ended with %v, want %v", name, err, storage.ErrOtherClaim)
	}
}

// sleeping is the store of a relay that is suspended just before a call. When the relay resumes, the call is made.
type sleeping struct {
	*memstore.Store
	fall, wake chan struct{}
}

func (s sleeping) sleep(ctx context.Context) context.Context {
	select {
	case <-s.fall:
		<-s.wake
		return context.WithoutCancel(ctx)
	default:
		return ctx
	}
}

func (s sleeping) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
	return s.Store.Heartbeat(s.sleep(ctx), self, ttl)
}

func (s sleeping) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	return s.Store.Settle(s.sleep(ctx), name, keep, settlements)
}

func (s sleeping) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	return s.Store.Claim(s.sleep(ctx), request)
}

func (s sleeping) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return s.Store.Extend(s.sleep(ctx), token, ids, ttl)
}

func (s sleeping) Reclaim(ctx context.Context, limit int) (int, error) {
	return s.Store.Reclaim(s.sleep(ctx), limit)
}

// TestSimulationOfAChangeFindsSuspendedRelays shows that these histories can fail: they detect a store that doesn't report the
// change to a relay that was suspended.
func TestSimulationOfAChangeFindsSuspendedRelays(t *testing.T) {
	t.Parallel()
	onlyMutants(t)
	mutants := map[string]func(storage.Store) storage.Store{
		"a suspended relay continues as before":       func(s storage.Store) storage.Store { return tellsNobody{s, true} },
		"a suspended relay makes held rows claimable": func(s storage.Store) storage.Store { return tellsNobody{s, false} },
	}
	for name, wrap := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 40; seed++ {
				if len(simulateAs(t, seed, wrap, (*world).playChange)) > 0 {
					return
				}
			}
			t.Error("no history detected this store")
		})
	}
}

// tellsNobody is a store whose table stays in the mode rows, even for relays that claim by lanes. So its methods don't detect
// the change. Unless the field `all` is set, Heartbeat and Claim report the change nevertheless.
type tellsNobody struct {
	storage.Store
	all bool
}

func (s tellsNobody) SetClaimMode(ctx context.Context, _ storage.Claim) error {
	return s.Store.SetClaimMode(ctx, storage.ByRows)
}

func (s tellsNobody) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
	if self.Claim == storage.ByRows {
		if err := s.changed(ctx); err != nil {
			return storage.Members{}, err
		}
	}
	self.Claim = storage.ByRows
	return s.Store.Heartbeat(ctx, self, ttl)
}

func (s tellsNobody) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	rows, err := s.Store.Claim(ctx, request)
	return rows, errors.Join(err, s.changed(ctx))
}

// changed returns ErrOtherClaim if relays that claim by lanes are active, unless the field `all` is set.
func (s tellsNobody) changed(ctx context.Context) error {
	status, err := s.Store.(storage.Operator).Status(ctx)
	if err == nil && !s.all && status.LanesLeased > 0 {
		return storage.ErrOtherClaim
	}
	return err
}
