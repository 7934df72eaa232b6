package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Status implements [storage.Operator]. A pending row's age counts from the time at which it
// could first be delivered.
func (s *Store) Status(ctx context.Context) (status storage.Status, err error) {
	err = s.do(ctx, OpStatus, func() error {
		s.db.forgetEnded()
		status = storage.Status{Controls: slices.Clone(s.db.controls), Claim: s.db.claim, Counts: noCounts(), Topics: map[string]int64{}}
		s.db.countRows(&status)
		s.db.countRelays(&status)
		return nil
	})
	return status, err
}

func noCounts() map[storage.State]int64 {
	return map[storage.State]int64{
		storage.StatePending: 0, storage.StateClaimed: 0, storage.StateScheduled: 0,
		storage.StateRetry: 0, storage.StateError: 0, storage.StateDone: 0,
	}
}

func (db *DB) countRows(status *storage.Status) {
	now := db.now()
	for _, r := range db.selected(storage.Filter{}) {
		state := r.shown(now)
		status.Counts[state]++
		if state == storage.StateRetry {
			status.OldestRetry = max(status.OldestRetry, now.Sub(r.row.CreatedAt))
		}
		if r.row.Holds == storage.HoldsKey {
			status.HeldKeys++
			status.OldestHeld = max(status.OldestHeld, now.Sub(r.row.Message.AvailableAt))
		}
		if state != storage.StatePending {
			continue
		}
		if status.Counts[state] <= sampled {
			status.Topics[r.row.Message.Topic]++
		}
		status.OldestPending = max(status.OldestPending, now.Sub(r.deliverableAt()))
	}
}

// deliverableAt returns the time at which the row could first be delivered.
func (r *record) deliverableAt() time.Time {
	if at := r.row.Message.AvailableAt; at.After(r.row.CreatedAt) {
		return at
	}
	return r.row.CreatedAt
}

func (db *DB) countRelays(status *storage.Status) {
	now := db.now()
	lanes := map[string]int{}
	for _, l := range db.lanes {
		if l.owner != "" && !l.until.Before(now) {
			lanes[l.owner]++
			status.LanesLeased++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(db.relays)) {
		r := db.relays[name]
		status.Relays = append(status.Relays, storage.RelayInfo{
			Name: name, Host: r.Host, Version: r.Version, Claim: r.Claim,
			Since: r.since, LastHeartbeat: r.lastBeat, Alive: !r.until.Before(now), Lanes: lanes[name], Config: r.Config,
		})
	}
}
