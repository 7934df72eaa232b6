package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// Claim implements [relay.RowStore]. It also returns rows whose time is still
// to come, marked as such.
func (s *Store) Claim(ctx context.Context, request relay.ClaimRequest) (claimed []relay.Row, err error) {
	if request.Limit <= 0 {
		return nil, nil
	}
	if request.Unprompted {
		if free, err := s.any(ctx, "look for free rows of table", dialect.ClaimPeeking.PeekFree); err != nil {
			return nil, s.otherClaim(ctx, err)
		} else if !free {
			return nil, nil
		}
	}
	steps := s.dialect.Claim(s.table, dialect.Claim{
		Relay: request.Relay, Token: request.Token, TTL: request.TTL, Limit: request.Limit, MaxBytes: request.MaxBytes,
		Pick: string(request.Pick), Topics: request.Topics, Except: request.Except,
	})
	err = s.write(ctx, "claim rows of table", func() error {
		return s.answer(ctx, steps, func(db querier, query dialect.Query) (ids []int64, err error) {
			if claimed, err = s.claimed(ctx, db, query, steps.After != nil, request.MaxBytes); err != nil {
				return nil, err
			}
			for i := range claimed {
				ids = append(ids, claimed[i].ID)
			}
			return ids, nil
		})
	})
	if err != nil || len(claimed) == 0 {
		return nil, s.otherClaim(ctx, err)
	}
	slices.SortFunc(claimed, order(request.Pick))
	return claimed, nil
}

// claimed takes the rows that a claim has stamped; or those that it is about to, up
// to a bound of bytes that the database has not counted, and with large payloads left
// out, which are picked afterwards.
func (s *Store) claimed(ctx context.Context, db querier, query dialect.Query, free bool, maxBytes int) (claimed []relay.Row, err error) {
	bytes := 0
	var left []relay.RowID
	scan := newRowScan()
	err = each(ctx, db, query, func(rows *sql.Rows) (more bool, err error) {
		if err := scan.scanColumns(rows); err != nil {
			return false, err
		}
		size := len(scan.Payload)
		if withheld := int(scan.Flags / dialect.SizeOne); free && scan.Payload == nil && withheld > 0 {
			left = append(left, relay.RowID{Lane: int(scan.Lane), ID: scan.ID})
			size, scan.Flags = withheld, scan.Flags%dialect.SizeOne
		}
		row, err := scan.Columns.row()
		if err != nil {
			return false, err
		}
		claimed, bytes = append(claimed, row), bytes+size
		return !free || maxBytes <= 0 || bytes < maxBytes, nil
	})
	if err != nil || len(left) == 0 {
		return claimed, err
	}
	return claimed, s.pickPayloads(ctx, db, claimed, left)
}

// pickPayloads fills in the payloads that were left out of locked rows.
func (s *Store) pickPayloads(ctx context.Context, db querier, claimed []relay.Row, left []relay.RowID) error {
	payloads := make(map[int64][]byte, len(left))
	for part := range slices.Chunk(left, pickLimit) {
		lanes, ids := make([]int, len(part)), make([]int64, len(part))
		for i, row := range part {
			lanes[i], ids[i] = row.Lane, row.ID
		}
		scan := newRowScan()
		err := each(ctx, db, s.dialect.Pick(s.table, lanes, ids), func(rows *sql.Rows) (bool, error) {
			err := scan.scan(rows)
			payloads[scan.row.ID] = scan.row.Message.Payload
			return true, err
		})
		if err != nil {
			return err
		}
	}
	for i := range claimed {
		if payload, picked := payloads[claimed[i].ID]; picked {
			claimed[i].Message.Payload = payload
			delete(payloads, claimed[i].ID)
			left = left[1:]
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%d locked rows were not found again; please report this with the database's version", len(left))
	}
	return nil
}

// otherClaim says why nothing was done, if the table isn't claimed by rows any more:
// the statement found nothing then, or not even its indexes.
func (s *Store) otherClaim(ctx context.Context, err error) error {
	var stored string
	lookErr := all(ctx, s.db, s.dialect.ClaimedBy(s.table), func() {}, &stored)
	if lookErr != nil && err == nil {
		return fmt.Errorf("look how table %s is claimed: %w", s.table, lookErr)
	}
	if stored != "" && stored != string(relay.ByRows) {
		return fmt.Errorf("table %s: %w now, by %s; it was changed after this relay had started", s.table, relay.ErrOtherClaim, stored)
	}
	return err
}

// any says whether a look finds anything; true if only what comes after the look
// can say so.
func (s *Store) any(ctx context.Context, what string, look func(dialect.ClaimPeeking, dialect.Table) dialect.Query) (found bool, err error) {
	peeking, ok := s.dialect.(dialect.ClaimPeeking)
	if !ok {
		return true, nil
	}
	err = s.try(ctx, what, func() error {
		var id int64
		found = false
		return all(ctx, s.db, look(peeking, s.table), func() { found = true }, &id)
	})
	return found, err
}

// order is that of the claim's own picking, which what it returns has not.
func order(pick relay.Pick) func(a, b relay.Row) int {
	byID := func(a, b relay.Row) int { return cmp.Compare(a.ID, b.ID) }
	switch pick {
	case relay.Newest:
		return func(a, b relay.Row) int { return byID(b, a) }
	case relay.Priority:
		return func(a, b relay.Row) int {
			return cmp.Or(cmp.Compare(b.Message.Priority, a.Message.Priority), byID(a, b))
		}
	default:
		return byID
	}
}

// Extend implements [relay.RowStore]. A claim that has ended and was not taken
// back is extended like any other. It waits for this store's settles of claimed
// rows, and they for it: a statement that comes upon a row which another has
// just changed passes it over. Rows that are being handled stay claimed: they are
// locked, and not every database can pass them over.
func (s *Store) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	s.claims.Lock()
	defer s.claims.Unlock()
	handled, others := s.handling.split(ids)
	if len(others) > 0 {
		err = s.write(ctx, "extend claims of table", func() error {
			still, err = s.ids(ctx, s.dialect.Extend(s.table, token, others, ttl))
			return err
		})
	}
	if err != nil || len(others) > 0 && len(still) == 0 {
		if err = s.otherClaim(ctx, err); err != nil {
			return nil, err
		}
	}
	still = append(still, handled...)
	slices.Sort(still)
	return slices.Compact(still), nil
}

// ids carries out steps that answer with ids.
func (s *Store) ids(ctx context.Context, steps dialect.Steps) (ids []int64, err error) {
	var id int64
	err = s.answer(ctx, steps, func(db querier, query dialect.Query) ([]int64, error) {
		err := all(ctx, db, query, func() { ids = append(ids, id) }, &id)
		return ids, err
	})
	return ids, err
}

// Reclaim implements [relay.RowStore].
func (s *Store) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	if ended, err := s.any(ctx, "look for claims that ended of table", dialect.ClaimPeeking.PeekEnded); err != nil {
		return 0, s.otherClaim(ctx, err)
	} else if !ended {
		return 0, nil
	}
	err = s.write(ctx, "reclaim rows of table", func() error {
		freed, err = s.carryOut(ctx, s.dialect.FreeEnded(s.table, limit))
		if err != nil {
			return err
		}
		returned, err := s.carryOut(ctx, s.dialect.Return(s.table, limit))
		freed += returned
		return err
	})
	if err != nil || freed == 0 {
		return freed, s.otherClaim(ctx, err)
	}
	return freed, nil
}

// carryOut runs writes in a transaction, and counts the rows that they change.
func (s *Store) carryOut(ctx context.Context, writes []dialect.Write) (changed int, err error) {
	err = s.inTx(ctx, s.dialect.Begin(s.table), func(tx *sql.Tx) error {
		changed = 0
		for _, write := range writes {
			affected, err := s.carryOutOne(ctx, tx, write)
			if err != nil {
				return err
			}
			if write.Counts {
				changed += affected
			}
		}
		return nil
	})
	return changed, err
}

func (s *Store) carryOutOne(ctx context.Context, tx *sql.Tx, write dialect.Write) (affected int, err error) {
	if write.After == nil {
		return exec(ctx, tx, write.Query)
	}
	var ids []int64
	var id number
	if err := all(ctx, tx, write.Query, func() { ids = append(ids, int64(id)) }, &id); err != nil || len(ids) == 0 {
		return 0, err
	}
	return len(ids), execAll(ctx, tx, write.After(ids))
}
