package relay_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// TestSimulationFindsBrokenStores proves that the simulation can fail: each of
// these stores breaks one thing that the promise hangs on, and some history
// shows it.
func TestSimulationFindsBrokenStores(t *testing.T) {
	t.Parallel()
	mutants := map[string]func() func(relay.Store) relay.Store{
		"late rows are not told of":            same(func(s relay.Store) relay.Store { return neverLate{s} }),
		"the horizon passes open transactions": same(func(s relay.Store) relay.Store { return boldHorizon{s} }),
		"held keys are forgotten at takeover":  same(func(s relay.Store) relay.Store { return forgetsKeys{s} }),
		"leases end before the relay knows":    same(func(s relay.Store) relay.Store { return shortLeases{s} }),
		"retries are put off for ever":         same(func(s relay.Store) relay.Store { return losesRetries{s} }),
		"settle ignores the fence":             newFences,
	}
	for name, wrap := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				if len(simulate(t, seed, wrap())) > 0 {
					return
				}
			}
			t.Error("no history showed that this store is broken")
		})
	}
}

// same is a mutant that remembers nothing from one relay to the next.
func same(wrap func(relay.Store) relay.Store) func() func(relay.Store) relay.Store {
	return func() func(relay.Store) relay.Store { return wrap }
}

type neverLate struct{ relay.Store }

func (s neverLate) Read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	page, err := s.Store.Read(ctx, positions, limit, maxBytes)
	page.LateAfter = -1
	return page, err
}

type boldHorizon struct{ relay.Store }

func (s boldHorizon) Read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	page, err := s.Store.Read(ctx, positions, limit, maxBytes)
	page.Horizon = 1 << 40
	return page, err
}

type forgetsKeys struct{ relay.Store }

func (s forgetsKeys) HeldKeys(context.Context, []int, int) ([]relay.HeldKey, error) { return nil, nil }

// shortLeases takes lanes for less time than it was told.
type shortLeases struct{ relay.Store }

func (s shortLeases) Acquire(ctx context.Context, name string, count int, _ time.Duration) ([]relay.Grant, error) {
	return s.Store.Acquire(ctx, name, count, time.Millisecond)
}

func (s shortLeases) Renew(ctx context.Context, name string, renewals []relay.Renewal, _ time.Duration) ([]relay.Lease, error) {
	return s.Store.Renew(ctx, name, renewals, time.Millisecond)
}

// anyFence settles under whatever fence is the lane's newest.
type anyFence struct {
	relay.Store
	newest *sync.Map
}

func newFences() func(relay.Store) relay.Store {
	newest := &sync.Map{}
	return func(s relay.Store) relay.Store { return anyFence{s, newest} }
}

func (s anyFence) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]relay.Grant, error) {
	grants, err := s.Store.Acquire(ctx, name, count, ttl)
	for _, g := range grants {
		s.newest.Store(g.Lane, g.Fence)
	}
	return grants, err
}

func (s anyFence) Settle(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (relay.Settled, error) {
	for i := range settlements {
		if fence, ok := s.newest.Load(settlements[i].Lane); ok {
			settlements[i].Fence = fence.(int64)
		}
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

// losesRetries tries nothing again while anyone looks.
type losesRetries struct{ relay.Store }

func (s losesRetries) Settle(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (relay.Settled, error) {
	for i := range settlements {
		if settlements[i].State == relay.StateRetry {
			settlements[i].Delay = time.Hour
		}
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}
