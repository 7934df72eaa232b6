package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// calls returns functions that call the store's methods. Each call would change or return something if
// its context had not ended.
func (w *worker) calls(row storage.Row) map[string]func(context.Context) error {
	calls := w.storeCalls(row)
	journaler, able := w.store.(storage.Journaler)
	if !able {
		return calls
	}
	calls["Journals"] = func(ctx context.Context) error { _, err := journaler.Journals(ctx); return err }
	calls["Pick"] = func(ctx context.Context) error {
		_, err := journaler.Pick(ctx, []storage.RowID{{Lane: row.Lane, ID: row.ID}})
		return err
	}
	calls["WriteJournal"] = func(ctx context.Context) error {
		_, err := journaler.WriteJournal(ctx, w.name, []storage.Journal{{Lease: w.lease(row.Lane), Suspects: []storage.Suspect{{ID: 666}}}})
		return err
	}
	return calls
}

func (w *worker) storeCalls(row storage.Row) map[string]func(context.Context) error {
	s, renewals := w.store, []storage.Renewal{{Lease: w.lease(row.Lane), Marks: storage.Marks{Main: 666}}}
	return map[string]func(context.Context) error{
		"SetClaimMode": func(ctx context.Context) error { return s.SetClaimMode(ctx, storage.ByRows) },
		"FenceRelay":   func(ctx context.Context) error { return s.FenceRelay(ctx, w.name, storage.ByLanes) },
		"Deregister":   func(ctx context.Context) error { return s.Deregister(ctx, w.name) },
		"Release":      func(ctx context.Context) error { return s.Release(ctx, w.name, renewals) },
		"Purge":        func(ctx context.Context) error { _, err := s.Purge(ctx, 0, 1); return err },
		"Acquire":      func(ctx context.Context) error { _, err := s.Acquire(ctx, w.name, 1, long); return err },
		"Renew":        func(ctx context.Context) error { _, err := s.Renew(ctx, w.name, renewals, long); return err },
		"BlockedKeys":  func(ctx context.Context) error { _, err := s.BlockedKeys(ctx, lanes(), 1); return err },
		"BlockedAmong": func(ctx context.Context) error {
			_, err := s.BlockedAmong(ctx, []storage.LaneKey{{Lane: 1, Key: "k"}})
			return err
		},
		"Remaining": func(ctx context.Context) error {
			return s.Remaining(ctx, 1, func(*storage.Row) bool { return true })
		},
		"Read": func(ctx context.Context) error {
			_, err := s.Read(ctx, storage.ReadRequest{Positions: everything(), Limit: 1, MaxBytes: 1})
			return err
		},
		"Reclaim": func(ctx context.Context) error { _, err := s.Reclaim(ctx, 1); return err },
		"Status":  func(ctx context.Context) error { _, err := s.Status(ctx); return err },
		"List":    func(ctx context.Context) error { _, err := s.List(ctx, storage.Filter{}); return err },
		"Parked":  func(ctx context.Context) error { return s.Parked(ctx, storage.Filter{}, 1, func(storage.Parked) {}) },
		"Redirect": func(ctx context.Context) error {
			_, err := s.Redirect(ctx, storage.Filter{}, "other")
			return err
		},
		"Replays": func(ctx context.Context) error { _, err := s.Replays(ctx); return err },
		"StoreReplay": func(ctx context.Context) error {
			_, err := s.StoreReplay(ctx, nil, storage.Replay{Name: "ended"})
			return err
		},
		"Replay": func(ctx context.Context) error { _, _, err := s.Replay(ctx, storage.Replay{Name: "r"}, 1); return err },
		"CountPending": func(ctx context.Context) error {
			_, err := s.CountPending(ctx, []storage.RowID{{Lane: row.Lane, ID: row.ID}})
			return err
		},
		"Requeue": func(ctx context.Context) error { _, err := s.Requeue(ctx, storage.Filter{}); return err },
		"Skip":    func(ctx context.Context) error { _, err := s.Skip(ctx, storage.Filter{}); return err },
		"Discard": func(ctx context.Context) error { _, err := s.Discard(ctx, storage.Filter{}); return err },
		"Heartbeat": func(ctx context.Context) error {
			_, err := s.Heartbeat(ctx, storage.Identity{Name: "new", Claim: storage.ByLanes}, long)
			return err
		},
		"Settle": func(ctx context.Context) error {
			_, err := s.Settle(ctx, w.name, true, []storage.Settlement{w.as(storage.StateDone, row)})
			return err
		},
		"Scan": func(ctx context.Context) error {
			_, _, err := s.Scan(ctx, everything(), nil, func(storage.Candidate) bool { return true })
			return err
		},
		"Due": func(ctx context.Context) error {
			_, _, err := s.Due(ctx, lanes(), storage.DueCursor{}, 1, 1)
			return err
		},
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, storage.ClaimRequest{Relay: w.name, Token: "t", TTL: long, Limit: 1})
			return err
		},
		"Extend": func(ctx context.Context) error {
			_, err := s.Extend(ctx, "t", []int64{row.ID}, long)
			return err
		},
	}
}

// A call whose context has ended returns immediately with an error and changes nothing.
func endedContextChangesNothing(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.wantAdopt(storage.ByLanes, nil)
	a.beat(storage.ByLanes, long)
	found := a.oneOfEach(table)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, call := range a.calls(a.row(found[storage.StatePending])) {
		start := time.Now()
		if err := call(ended); err == nil {
			t.Errorf("%s with an ended context returned no error", name)
		}
		if took := time.Since(start); took > patience/6 {
			t.Errorf("%s with an ended context took %v", name, took)
		}
	}
	for state, id := range found {
		a.wantState(state, id)
	}
	s := a.status()
	if s.Claim != storage.ByLanes || s.LanesLeased != storage.Lanes || len(s.Relays) != 1 {
		t.Errorf("calls with an ended context changed something: %+v", s)
	}
	if free := hire(t, table, "b").acquire(1, long); len(free) != 0 {
		t.Errorf("calls with an ended context released %+v", free)
	}
}
