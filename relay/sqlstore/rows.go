package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
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
		if free, err := s.any(ctx, "look for free rows of table", dialect.ClaimPeeking.PeekFree); err != nil || !free {
			return nil, err
		}
	}
	steps := s.dialect.Claim(s.table, dialect.Claim{
		Relay: request.Relay, Token: request.Token, TTL: request.TTL, Limit: request.Limit,
		Pick: string(request.Pick), Topics: request.Topics, Except: request.Except,
	})
	err = s.write(ctx, "claim rows of table", func() error {
		claimed = nil
		scan := newRowScan()
		return s.answer(ctx, steps, func(db querier, query dialect.Query) (ids []int64, err error) {
			err = each(ctx, db, query, func(rows *sql.Rows) (bool, error) {
				err := scan.scan(rows)
				claimed, ids = append(claimed, scan.row), append(ids, scan.row.ID)
				return true, err
			})
			return ids, err
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(claimed, order(request.Pick))
	return claimed, nil
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
	if err != nil {
		return nil, err
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
	if ended, err := s.any(ctx, "look for claims that ended of table", dialect.ClaimPeeking.PeekEnded); err != nil || !ended {
		return 0, err
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
	return freed, err
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
