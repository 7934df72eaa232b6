package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// This file has the methods for a table's relays, their claim mode, and the leases of lanes with their marks and journals.

// SetClaimMode implements [storage.Store]. It creates the indexes that claiming by rows
// needs, or drops them if the mode is claiming by lanes.
func (s *Store) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	if err := s.notMade(); err != nil {
		return err
	}
	if claim == storage.ByLanes {
		if order := s.capabilities.Queries.IDsOutOfOrder; order.SQL != "" {
			var wrong []string
			var setting string
			err := backend.All(ctx, s.db, order, func() { wrong = append(wrong, setting) }, &setting)
			if err == nil && len(wrong) > 0 {
				err = fmt.Errorf("the id sequence has %s, so a message might never be delivered: run ALTER SEQUENCE … CACHE 1 INCREMENT BY 1 NO CYCLE, grant this user SELECT on the sequence, or claim by rows", strings.Join(wrong, ", "))
			}
			if err != nil {
				return fmt.Errorf("begin claiming by lanes on table %s: %w", s.table, err)
			}
		}
		// Start the frontier with the server that answers reads now, because another server may
		// have answered the queries of Open. If yet another server answers the query for the last
		// id, the frontier sees another epoch in the first page.
		first, err := s.backend.Read(ctx, backend.Read{}, nil)
		if err != nil {
			return fmt.Errorf("begin claiming by lanes on table %s: read the server's epoch (a standby has none: connect to the primary): %w", s.table, err)
		}
		given, err := s.lastID(ctx)
		if err != nil {
			return err
		}
		s.frontier.start(first.Server, given)
	}

	// To change the mode, the backend needs an exclusive lock, and may have to wait a long time for
	// it, because each claim of rows holds a shared lock. So first read the mode, and change it only
	// if it differs. If another relay changes the mode in between, the first heartbeat fails.
	same, err := try(ctx, s, "read the claim mode of table", func() (bool, error) {
		var stored storage.Claim
		if err := backend.One(ctx, s.db, s.capabilities.Statements.Query("claim mode"), &stored); err != nil {
			return false, err
		}
		indexes, wanted := 0, map[storage.Claim]int{storage.ByRows: dialect.RowIndexCount}[claim]
		err := backend.One(ctx, s.db, s.dialect.RowIndexes(s.table), &indexes)
		return stored == claim && indexes == wanted, err
	})
	if err != nil || same {
		return err
	}
	_, err = write(ctx, s, "set the claim mode to "+string(claim)+" on table", func() (any, uint64, error) {
		return nil, 0, s.backend.SetClaimMode(ctx, claim)
	})
	return err
}

// Heartbeat implements [storage.Store]. It fails with storage.ErrOtherClaim if the table no longer
// has this relay's claim mode.
func (s *Store) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
	return write(ctx, s, "send a heartbeat to table", func() (members storage.Members, xid uint64, err error) {
		if err := s.keepRows(ctx); err != nil {
			return members, 0, err
		}
		beat, err := s.backend.Heartbeat(ctx, self, ttl)
		if err != nil {
			return members, 0, err
		}
		if !beat.Stored {
			return members, 0, fmt.Errorf("%w; the mode was changed after this relay had started", storage.ErrOtherClaim)
		}
		relays, now, err := backend.Members(ctx, s.db, s.capabilities.Queries.Members)
		if err != nil {
			return members, 0, err
		}
		if !slices.ContainsFunc(relays, func(m storage.Member) bool { return m.Name == self.Name }) { // this heartbeat has already expired, because the database took longer than ttl
			relays = append(relays, storage.Member{Name: self.Name, Config: self.Config})
		}
		slices.SortFunc(relays, func(a, b storage.Member) int { return strings.Compare(a.Name, b.Name) })
		return storage.Members{Relays: relays, Epoch: beat.Epoch, Now: now}, beat.XID, nil
	})
}

// Living returns the living relays, sorted by name, and the table's claim mode, which is empty until the first relay has started. Unlike
// Status, it counts no rows.
func (s *Store) Living(ctx context.Context) (claim storage.Claim, relays []storage.Member, err error) {
	relays, err = try(ctx, s, "read the living relays of table", func() ([]storage.Member, error) {
		if err := backend.One(ctx, s.db, s.capabilities.Statements.Query("claim mode"), &claim); err != nil {
			return nil, err
		}
		relays, _, err := backend.Members(ctx, s.db, s.capabilities.Queries.Members)
		return relays, err
	})
	return claim, relays, err
}

// Deregister implements [storage.Store].
func (s *Store) Deregister(ctx context.Context, name string) error {
	_, err := write(ctx, s, "deregister from table", func() (any, uint64, error) {
		return nil, 0, backend.InTx(ctx, s.db, s.capabilities.Tx, []backend.Query{s.capabilities.Statements.Query("deregister", name)}, nil)
	})
	return err
}

// FenceRelay implements [storage.Store].
func (s *Store) FenceRelay(ctx context.Context, name string, claim storage.Claim) error {
	ending := "end leases"
	if claim == storage.ByRows {
		ending = "end claims"
	}
	_, err := write(ctx, s, "end the leases or claims of a dead relay on table", func() (any, uint64, error) {
		queries := []backend.Query{s.capabilities.Statements.Query(ending, name), s.capabilities.Statements.Query("deregister", name)}
		return nil, 0, backend.InTx(ctx, s.db, s.capabilities.Tx, queries, nil)
	})
	return err
}

// Acquire implements [storage.LaneStore].
func (s *Store) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
	if count <= 0 {
		return nil, nil
	}
	grants, err := write(ctx, s, "acquire lanes of table", func() ([]storage.Grant, uint64, error) {
		return s.backend.Acquire(ctx, name, count, ttl, 1+rand.Int64N(storage.MostFenceStep))
	})
	slices.SortFunc(grants, func(a, b storage.Grant) int { return a.Lane - b.Lane }) // so that the caller reads the lanes in order
	return grants, err
}

// Renew implements [storage.LaneStore].
func (s *Store) Renew(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
	keeps := backend.Column(renewals, func(r *storage.Renewal) storage.Lease { return r.Lease })
	return s.renew(ctx, backend.LeaseChange{Kind: backend.Renew, Relay: name, TTL: ttl, Keeps: keeps}, renewals)
}

// Release implements [storage.LaneStore].
func (s *Store) Release(ctx context.Context, name string, renewals []storage.Renewal) error {
	_, err := s.renew(ctx, backend.LeaseChange{Kind: backend.Release, Relay: name}, renewals)
	return err
}

// renew applies a change to the leases, with one call of the backend for each epoch of
// their marks, and returns the leases that are still valid. Marks have different epochs only
// if the server's epoch changed between the reads from which the marks were computed. The
// leases of each call are in the order of lanes, so that concurrent changes lock lanes in the
// same order.
func (s *Store) renew(ctx context.Context, change backend.LeaseChange, renewals []storage.Renewal) (held []storage.Lease, err error) {
	byEpoch := map[string][]backend.Lease{}
	for _, renewal := range renewals {
		marks, err := json.Marshal(renewal.Marks)
		if err != nil {
			return nil, err
		}
		byEpoch[renewal.Epoch] = append(byEpoch[renewal.Epoch], backend.Lease{Lease: renewal.Lease, Marks: string(marks), Calm: renewal.Calm})
	}
	for epoch, leases := range byEpoch {
		slices.SortFunc(leases, func(a, b backend.Lease) int { return cmp.Compare(a.Lane, b.Lane) })
		change.Epoch = epoch
		some, err := write(ctx, s, string(change.Kind)+" lanes of table", func() ([]storage.Lease, uint64, error) {
			return s.backend.ChangeLeases(ctx, change, leases)
		})
		if err != nil {
			return nil, err
		}
		held = append(held, some...)
	}
	return held, nil
}

// WriteJournal implements [storage.Journaler].
func (s *Store) WriteJournal(ctx context.Context, name string, journals []storage.Journal) ([]storage.Lease, error) {
	if len(journals) == 0 {
		return nil, nil
	}
	leases := make([]backend.Lease, len(journals))
	for i, j := range journals {
		written, err := backend.JournalText(j)
		if err != nil {
			return nil, err
		}
		leases[i] = backend.Lease{Lease: j.Lease, Journal: written}
	}
	slices.SortFunc(leases, func(a, b backend.Lease) int { return cmp.Compare(a.Lane, b.Lane) })
	return write(ctx, s, "write the journal of table", func() ([]storage.Lease, uint64, error) {
		return s.backend.ChangeLeases(ctx, backend.LeaseChange{Kind: backend.WriteJournal, Relay: name}, leases)
	})
}

// Journals implements [storage.Journaler].
func (s *Store) Journals(ctx context.Context) ([]storage.Journal, error) {
	return try(ctx, s, "read the journals of table", func() ([]storage.Journal, error) {
		return backend.Journals(ctx, s.db, s.capabilities.Statements.Query("journals"))
	})
}

// Pick implements [storage.Journaler]. It reads the table outbox before the held table. In the other order it would
// miss a row that another relay moves from outbox to the held table between the two reads.
func (s *Store) Pick(ctx context.Context, wanted []storage.RowID) ([]storage.Row, error) {
	pending, err := s.pick(ctx, wanted, false)
	if err != nil {
		return nil, err
	}
	held, err := s.pick(ctx, wanted, true)
	if err != nil {
		return nil, err
	}
	return append(pending, held...), nil
}
