package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Claim implements [storage.RowStore]. It also returns rows that are not due yet,
// with Later set.
func (s *Store) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	if request.Limit <= 0 {
		return nil, nil
	}
	if request.Unprompted {
		free, err := s.any(ctx, "look for free rows of table", s.capabilities.Queries.FreeRow)
		if err != nil {
			return nil, s.otherClaim(ctx, err)
		}
		if !free {
			return nil, nil
		}
	}
	claimed, err := write(ctx, s, "claim rows of table", func() ([]storage.Row, uint64, error) {
		rows, err := s.backend.Claim(ctx, request)
		return rows, 0, err
	})
	if err != nil || len(claimed) == 0 {
		return nil, s.otherClaim(ctx, err)
	}
	slices.SortFunc(claimed, order(request.Pick))
	return claimed, nil
}

// otherClaim returns ErrOtherClaim if the table is no longer claimed by rows, and
// otherwise err. Callers use it when a statement found no rows or failed, because either can happen
// after the claim mode was changed and the indexes were dropped.
func (s *Store) otherClaim(ctx context.Context, err error) error {
	var stored storage.Claim
	lookErr := backend.One(ctx, s.db, s.capabilities.Statements.Query("claim mode"), &stored)
	if lookErr != nil && err == nil {
		return fmt.Errorf("read the claim mode of table %s: %w", s.table, lookErr)
	}
	if stored != "" && stored != storage.ByRows {
		return fmt.Errorf("table %s: %w, %s; the mode was changed after this relay had started", s.table, storage.ErrOtherClaim, stored)
	}
	return err
}

// any reports whether the query returns a row. It returns true if the query is empty.
func (s *Store) any(ctx context.Context, what string, query backend.Query) (bool, error) {
	if query.SQL == "" {
		return true, nil
	}
	return try(ctx, s, what, func() (bool, error) { return backend.Any(ctx, s.db, query) })
}

// order returns the comparison that sorts claimed rows in the requested order, because the backend returns
// them unsorted.
func order(pick storage.Pick) func(a, b storage.Row) int {
	byID := func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) }
	switch pick {
	case storage.Newest:
		return func(a, b storage.Row) int { return byID(b, a) }
	case storage.Priority:
		return func(a, b storage.Row) int {
			return cmp.Or(cmp.Compare(b.Message.Priority, a.Message.Priority), byID(a, b))
		}
	default:
		return byID
	}
}

// Extend implements [storage.RowStore]. It also extends an expired claim if the row was
// not reclaimed. Extend and this store's settlements of claimed rows are serialized. If they ran
// concurrently, one would skip rows that the other has just changed. Extend doesn't update rows
// whose handlers are running, and returns them as still claimed: the handlers' transactions have
// locked the rows, and not every database can skip locked rows.
func (s *Store) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	if err := s.notMade(); err != nil {
		return nil, err
	}
	s.claims.Lock()
	defer s.claims.Unlock()
	handled, others := s.handling.split(ids)
	if len(others) > 0 {
		still, err = write(ctx, s, "extend claims of table", func() ([]int64, uint64, error) {
			ids, err := s.backend.Extend(ctx, token, others, ttl)
			return ids, 0, err
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

// Reclaim implements [storage.RowStore].
func (s *Store) Reclaim(ctx context.Context, limit int) (int, error) {
	if err := s.notMade(); err != nil {
		return 0, err
	}
	expired, err := s.any(ctx, "look for expired claims of table", s.capabilities.Queries.EndedClaim)
	if err != nil {
		return 0, s.otherClaim(ctx, err)
	}
	if !expired {
		return 0, nil
	}
	freed, err := write(ctx, s, "reclaim rows of table", func() (int, uint64, error) {
		freed, err := s.backend.Reclaim(ctx, limit)
		return freed, 0, err
	})
	if err != nil || freed == 0 {
		return freed, s.otherClaim(ctx, err)
	}
	return freed, nil
}
