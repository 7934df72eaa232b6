package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// TestSimulationOfHeldKeys has parked messages that hold their keys. Operators requeue, skip and discard them at random times,
// while relays start and stop. No later message of a key is sent before the operator's decision; after it, all of them are
// sent.
func TestSimulationOfHeldKeys(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*simulations) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateCourse(t, seed+1, nil, holds)
		})
	}
}

func holds(c *course) { c.holds = true }

// TestSimulationOfHeldKeysAndLostSeconds is like TestSimulationOfHeldKeys, but the server also loses its last second from time
// to time, with the operators' decisions in it.
func TestSimulationOfHeldKeysAndLostSeconds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(max(1, *simulations/2)) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateCourse(t, seed+1, nil, func(c *course) { c.holds, c.loses = true, time.Minute })
		})
	}
}

// decide makes operators' decisions about messages that hold their keys. It requeues a message, which may be refused again, or
// skips or discards it. In the calm at the end of the history, it decides about all that are left.
func (w *world) decide(stop chan struct{}) {
	operator := storage.Operator(w.db.Store())
	if w.operate != nil {
		operator = w.operate(w.db)
	}
	for {
		w.nap(10 * time.Second)
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
		}
		w.mu.Lock()
		ctx := context.Background()
		parked, err := operator.List(ctx, storage.Filter{State: storage.StateError, Limit: 1_000_000})
		if err != nil {
			w.problem("list: %v", err)
		}
		for _, info := range parked {
			number, filter := numberOf(info.Message.ID), storage.Filter{IDs: []string{info.Message.ID}, Sink: info.Sinks}
			of := arrival{number, sinksOfRow(info)[0]}
			if info.Holds != storage.HoldsKey || !w.calm && w.random.IntN(2) == 0 {
				continue
			}
			n := 0
			switch decision := w.random.IntN(4); {
			case decision == 0:
				w.skipped[of] = true
				n, err = operator.Skip(ctx, filter)
			case decision == 1:
				w.discarded[of] = true
				n, err = operator.Discard(ctx, filter)
			default:
				w.mended[of] = decision == 2 || w.calm
				n, err = operator.Requeue(ctx, filter)
			}
			if n != 1 || err != nil {
				w.problem("the decision about message %d changed %d messages, %v", number, n, err)
			}
		}
		w.mu.Unlock()
	}
}

func brokenHolds() map[string]mutant {
	unbroken := func(s storage.Store) storage.Store { return s }
	return map[string]mutant{
		"a parked row holds nothing":             {wrap: func(s storage.Store) storage.Store { return parksAlone{s, s.(storage.Journaler)} }, change: holds, want: overtaken},
		"parked rows are forgotten at takeover":  {wrap: func(s storage.Store) storage.Store { return forgetsKeys{s} }, change: holds, want: overtaken},
		"parked rows aren't found":               {wrap: func(s storage.Store) storage.Store { return findsNoKeys{s} }, change: holds, want: overtaken},
		"decisions are hidden":                   {wrap: func(s storage.Store) storage.Store { return tellsNoDecision{s, s.(storage.Journaler)} }, change: holds, want: undecided},
		"decided rows are never due":             {wrap: func(s storage.Store) storage.Store { return neverDecided{s, s.(storage.Journaler)} }, change: holds, want: "ended as"},
		"discarded rows are parked":              {wrap: func(s storage.Store) storage.Store { return parksDiscarded{s, s.(storage.Journaler)} }, change: holds, want: "want it discarded"},
		"discarded rows are deleted immediately": {wrap: unbroken, operate: func(db *memstore.DB) storage.Operator { return discardsAtOnce{db.Store(), db} }, change: holds, want: overtaken},
	}
}

// TestSimulationFindsBrokenHolds shows that these histories can fail: each of these stores and operators breaks one rule of held
// keys.
func TestSimulationFindsBrokenHolds(t *testing.T) {
	t.Parallel()
	onlyMutants(t)
	for name, m := range brokenHolds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				problems := simulateAs(t, seed, m.wrap, m.play)
				if slices.ContainsFunc(problems, func(problem string) bool { return strings.Contains(problem, m.want) }) {
					return
				}
			}
			t.Error("no history detected this mutant")
		})
	}
}

// parksAlone parks rows without letting them hold their keys.
type parksAlone struct {
	storage.Store
	storage.Journaler
}

func (s parksAlone) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	settlements = slices.Clone(settlements)
	for i := range settlements {
		settlements[i].Holds = false
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

// parksDiscarded parks rows instead of discarding them.
type parksDiscarded struct {
	storage.Store
	storage.Journaler
}

func (s parksDiscarded) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	settlements = slices.Clone(settlements)
	for i := range settlements {
		if settlements[i].State == storage.StateDiscarded {
			settlements[i].State = storage.StateError
		}
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

// tellsNoDecision returns rows that are to be skipped or discarded as if they had been requeued.
type tellsNoDecision struct {
	storage.Store
	storage.Journaler
}

func (s tellsNoDecision) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
	rows, next, err := s.Store.Due(ctx, lanes, after, limit, maxBytes)
	for i := range rows {
		rows[i].Holds = storage.NoHold
	}
	return rows, next, err
}

// neverDecided doesn't return rows that are to be skipped or discarded.
type neverDecided struct {
	storage.Store
	storage.Journaler
}

func (s neverDecided) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
	rows, next, err := s.Store.Due(ctx, lanes, after, limit, maxBytes)
	return slices.DeleteFunc(rows, func(row storage.Row) bool { return row.Holds != storage.NoHold }), next, err
}

// discardsAtOnce is an operator that deletes rows that hold their keys, instead of leaving the deletion to the relay that
// holds the lane.
type discardsAtOnce struct {
	storage.Operator
	db *memstore.DB
}

func (o discardsAtOnce) Discard(ctx context.Context, filter storage.Filter) (int, error) {
	return o.db.Delete(func(row storage.Row) bool { return row.Message.ID == filter.IDs[0] }), nil
}
