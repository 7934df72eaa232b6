package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// longDead is the time for which the table keeps a relay after the relay's heartbeat has expired.
const longDead = 24 * time.Hour

// Store is a relay's handle on a table. It remembers which commits its own reads have seen. Hooks
// must be set before the Store is used.
type Store struct {
	// Hooks apply to the calls of this handle. Its Fail is called after the table's Fail, and its
	// Lose before the table's Lose.
	Hooks Hooks

	db   *DB
	seen int // the number of commits that the last read has seen
}

var (
	_ storage.Store     = (*Store)(nil)
	_ storage.Operator  = (*Store)(nil)
	_ storage.Journaler = (*Store)(nil)
)

// Store returns a new handle, like the handle of another process.
func (db *DB) Store() *Store { return &Store{db: db} }

// SetClaimMode implements [storage.Store]. A change of the claim mode removes the state of the
// previous mode: leases, marks and holds, or claims.
func (s *Store) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return s.do(ctx, OpSetClaimMode, func() error {
		if s.db.claim == claim {
			return nil
		}
		for _, name := range s.db.living() {
			if s.db.relays[name].Claim != claim {
				return fmt.Errorf("set the claim mode to %s: relay %q: %w", claim, name, storage.ErrOtherClaim)
			}
		}
		if s.db.claim != "" {
			s.db.forgetClaims()
		}
		s.db.claim = claim
		return nil
	})
}

func (db *DB) forgetClaims() {
	for i := range db.lanes {
		db.lanes[i] = lane{fence: db.lanes[i].fence + 1, settling: db.lanes[i].settling}
		for _, r := range db.hot[i] {
			db.replace(r.unclaimed())
		}
	}
	for _, r := range db.held.rows {
		if r.row.Holds != storage.NoHold {
			parked := r.inState(storage.StateError)
			parked.row.Holds = storage.NoHold
			db.held.put(parked)
		}
	}
}

// Heartbeat implements [storage.Store]. It fails with [storage.ErrOtherClaim] if the table's claim
// mode has changed.
func (s *Store) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (members storage.Members, err error) {
	err = s.do(ctx, OpHeartbeat, func() error {
		if s.db.claim != "" && s.db.claim != self.Claim {
			return fmt.Errorf("send a heartbeat as %q: %w", self.Name, storage.ErrOtherClaim)
		}
		now := s.db.now()
		since := now
		if old := s.db.relays[self.Name]; old != nil && !old.until.Before(now) {
			since = old.since
		}
		s.db.relays[self.Name] = &relayRow{Identity: self, since: since, lastBeat: now, until: now.Add(ttl)}
		members = storage.Members{Epoch: s.db.epoch(), Now: now}
		for _, name := range s.db.living() {
			members.Relays = append(members.Relays, storage.Member{Name: name, Config: s.db.relays[name].Config})
		}
		return nil
	})
	return members, err
}

// living returns the names of the relays that are alive, sorted.
func (db *DB) living() []string {
	var names []string
	for name, r := range db.relays {
		if !r.until.Before(db.now()) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Deregister implements [storage.Store].
func (s *Store) Deregister(ctx context.Context, name string) error {
	return s.do(ctx, OpDeregister, func() error {
		delete(s.db.relays, name)
		return nil
	})
}

// FenceRelay implements [storage.Store].
func (s *Store) FenceRelay(ctx context.Context, name string, claim storage.Claim) error {
	return s.do(ctx, OpBury, func() error {
		over := s.db.now().Add(-time.Nanosecond)
		for i := range s.db.lanes {
			if l := &s.db.lanes[i]; claim == storage.ByLanes && l.owner == name {
				l.until, l.fence = over, l.fence+1
			}
		}
		for _, r := range s.db.hotRows(func(r *record) bool {
			return claim == storage.ByRows && r.claimedBy == name && r.claimedUntil.After(over)
		}) {
			s.db.replace(r.claimed(r.claimedBy, r.token, over))
		}
		delete(s.db.relays, name)
		return nil
	})
}

// Purge implements [storage.Store]. Deleted relays are not counted.
func (s *Store) Purge(ctx context.Context, retention time.Duration, limit int) (deleted int, err error) {
	err = s.do(ctx, OpPurge, func() error {
		before := s.db.now().Add(-retention)
		for deleted < min(limit, len(s.db.done)) && s.db.done[deleted].finishedAt.Before(before) {
			r := s.db.done[deleted].row
			s.db.note(Change{Op: OpPurge, ID: r.ID, Lane: r.Lane, From: storage.StateDone})
			deleted++
		}
		s.db.done = slices.Delete(s.db.done, 0, deleted)
		s.db.forgetDead()
		return nil
	})
	return deleted, err
}

func (db *DB) forgetDead() {
	for name, r := range db.relays {
		if r.until.Before(db.now().Add(-longDead)) {
			delete(db.relays, name)
		}
	}
}
