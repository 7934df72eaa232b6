package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Claim implements [storage.RowStore]. It also returns rows that are not due yet, with Later set.
func (s *Store) Claim(ctx context.Context, request storage.ClaimRequest) (rows []storage.Row, err error) {
	err = s.do(ctx, OpClaim, func() error {
		if err := s.db.byRows(); err != nil {
			return err
		}
		free := s.db.hotRows(func(r *record) bool { return r.token == "" && s.db.locked[r.row.ID] == nil && wanted(r, request) })
		slices.SortStableFunc(free, order(request.Pick))
		now, bytes := s.db.now(), 0
		for _, r := range free[:min(len(free), max(0, request.Limit))] {
			if bytes += len(r.row.Message.Payload); request.MaxBytes > 0 && bytes-len(r.row.Message.Payload) >= request.MaxBytes {
				break
			}
			s.db.replace(r.claimed(request.Relay, request.Token, now.Add(request.TTL)))
			rows = append(rows, r.read(now))
			s.db.note(Change{Op: OpClaim, Relay: request.Relay, Token: request.Token, Lane: r.row.Lane, ID: r.row.ID, From: storage.StatePending, To: storage.StateClaimed})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// byRows returns an error if the table was changed to claiming by lanes, perhaps while the relay
// was suspended.
func (db *DB) byRows() error {
	if db.claim != storage.ByRows {
		return fmt.Errorf("table claimed by %q: %w", db.claim, storage.ErrOtherClaim)
	}
	return nil
}

func wanted(r *record, request storage.ClaimRequest) bool {
	topic := r.row.Message.Topic
	return (len(request.Topics) == 0 || slices.Contains(request.Topics, topic)) &&
		!slices.Contains(request.Except, topic)
}

// order returns the comparison function with which a claim sorts rows.
func order(pick storage.Pick) func(a, b *record) int {
	switch pick {
	case storage.Newest:
		return func(a, b *record) int { return byID(b, a) }
	case storage.Priority:
		return func(a, b *record) int { return cmp.Compare(b.row.Message.Priority, a.row.Message.Priority) }
	default:
		return byID
	}
}

// hotRows returns the pending rows for which the function returns true, in the order of ids.
func (db *DB) hotRows(match func(*record) bool) []*record {
	var rows []*record
	for _, lane := range db.hot {
		for _, r := range lane {
			if match(r) {
				rows = append(rows, r)
			}
		}
	}
	slices.SortFunc(rows, byID)
	return rows
}

// Extend implements [storage.RowStore]. It also extends an expired claim if Reclaim has not
// freed the claim.
func (s *Store) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	err = s.do(ctx, OpExtend, func() error {
		if err := s.db.byRows(); err != nil {
			return err
		}
		claimed := s.db.hotRows(func(r *record) bool { return r.token == token && slices.Contains(ids, r.row.ID) })
		for _, r := range claimed {
			s.db.replace(r.claimed(r.claimedBy, token, s.db.now().Add(ttl)))
			still = append(still, r.row.ID)
		}
		return nil
	})
	return still, err
}

// Reclaim implements [storage.RowStore]. If a pending row has the id of a deferred row, the
// deferred row stays deferred until the pending row is gone.
func (s *Store) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = s.do(ctx, OpReclaim, func() error {
		if err := s.db.byRows(); err != nil {
			return err
		}
		freed = s.db.freeEnded(limit) + s.db.bringBack(limit)
		return nil
	})
	return freed, err
}

func (db *DB) freeEnded(limit int) int {
	ended := db.hotRows(func(r *record) bool { return r.token != "" && r.claimedUntil.Before(db.now()) })
	ended = ended[:min(len(ended), limit)]
	for _, r := range ended {
		db.replace(r.crashed())
		db.note(Change{Op: OpReclaim, Relay: r.claimedBy, Token: r.token, Lane: r.row.Lane, ID: r.row.ID, From: storage.StateClaimed, To: storage.StatePending})
	}
	return len(ended)
}

func (db *DB) bringBack(limit int) int {
	var due []*record
	for _, r := range db.held.byTime {
		if len(due) == limit || !r.due(db.now()) {
			break
		}
		if _, taken := db.find(r.row.Lane, r.row.ID); taken {
			continue
		}
		due = append(due, r)
	}
	slices.SortFunc(due, byID)
	due = slices.CompactFunc(due, func(a, b *record) bool { return a.row.ID == b.row.ID && a.row.Lane == b.row.Lane })
	for i, r := range due {
		db.held.take(r.identity())
		due[i] = r.inState(storage.StatePending)
		db.note(Change{Op: OpReclaim, Lane: r.row.Lane, ID: r.row.ID, From: r.state, To: storage.StatePending})
	}
	// These rows have old ids, but need not be reported as late, because no relay reads lanes
	// while the table is claimed by rows.
	for _, r := range due {
		db.insert(r)
	}
	return len(due)
}
