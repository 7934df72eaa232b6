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

// TestSimulationOfAChange tries histories in which relays by rows are stopped in the
// middle of what they do, and wake up when the table was changed to lanes.
func TestSimulationOfAChange(t *testing.T) {
	t.Parallel()
	for seed := range uint64(max(1, *simulations/3)) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateAs(t, seed+1, nil, (*world).playChange)
		})
	}
}

// playChange has some relays by rows first, which fall asleep. When they are taken
// for dead, others claim by lanes; and the sleepers wake up, one after the other. What
// was committed before has no order.
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
	// Who wakes up before the table has changed keeps it as it is. A store that is
	// broken on purpose may never change it.
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

// sleeper runs a relay that falls asleep, and ends when it finds out what has
// happened meanwhile.
func (w *world) sleeper(name string, fall, wake chan struct{}) {
	store := w.db.Store()
	disturb := func(ctx context.Context, op memstore.Op) error {
		if op == memstore.OpSetClaimMode {
			return nil // or there would be no sleeper
		}
		return w.disturb(ctx, nil)
	}
	store.Hooks = memstore.Hooks{Fail: disturb}
	r := w.relay(name, sleeping{store, fall, wake}, make(chan struct{}))
	ctx, cancel := context.WithTimeout(context.Background(), simulatedTime)
	defer cancel()
	if err := r.Run(ctx); w.wrap == nil && !errors.Is(err, storage.ErrOtherClaim) {
		w.problem("relay %s woke up and ended with %v, want %v", name, err, storage.ErrOtherClaim)
	}
}

// sleeping is the store of a relay that is stopped just before a call: what it was
// about to do it does when it wakes up, without having noticed anything.
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

// TestSimulationOfAChangeFindsSleepers proves that these histories show what a
// sleeper does that isn't told of the change.
func TestSimulationOfAChangeFindsSleepers(t *testing.T) {
	t.Parallel()
	onlyMutants(t)
	mutants := map[string]func(storage.Store) storage.Store{
		"a sleeper does as before":        func(s storage.Store) storage.Store { return tellsNobody{s, true} },
		"a sleeper brings held rows back": func(s storage.Store) storage.Store { return tellsNobody{s, false} },
	}
	for name, wrap := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 40; seed++ {
				if len(simulateAs(t, seed, wrap, (*world).playChange)) > 0 {
					return
				}
			}
			t.Error("no history showed that this store is broken")
		})
	}
}

// tellsNobody doesn't write the change to lanes down, by which it would be seen: all
// of it, or none but what Reclaim sees.
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

// changed says that relays by lanes are there.
func (s tellsNobody) changed(ctx context.Context) error {
	status, err := s.Store.(storage.Operator).Status(ctx)
	if err == nil && !s.all && status.LanesLeased > 0 {
		return storage.ErrOtherClaim
	}
	return err
}
