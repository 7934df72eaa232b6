package sqlstore

import (
	"context"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// emptied are the positions of a read that found nothing up to the table's end,
// by lane. As long as nothing has appeared since, another read there needn't be
// made: most looks of an idle relay are answered by a peek.
type emptied map[int]int64

// emptiedBy returns where a read found that there is nothing.
func emptiedBy(positions []relay.Position, r *reading) emptied {
	if len(r.rows) > 0 || r.leftOut || r.full() {
		return nil
	}
	e := emptied{}
	for _, p := range positions {
		if p.Key == "" && p.Until == 0 {
			e[p.Lane] = p.After
		}
	}
	return e
}

// covers says that all of these positions lie where nothing was.
func (e emptied) covers(positions []relay.Position) bool {
	for _, p := range positions {
		if after, ok := e[p.Lane]; !ok || p.After < after {
			return false
		}
	}
	return len(e) > 0
}

// peek says what a page would tell, and whether it would be empty for certain:
// what has appeared since the read before has an id that was given out, and is
// above LateAfter. Where ids were given out that no transaction of ours knows of,
// a read has to take a number.
func (s *Store) peek(ctx context.Context, positions []relay.Position) (page relay.Page, certain bool, err error) {
	page.LateAfter = -1
	if !s.traits.CheapFirstLine || len(positions) == 0 || !s.emptied.covers(positions) || s.horizon.stale() {
		return page, false, nil
	}
	began := s.beginRead()
	first, err := s.backend.Read(ctx, backend.Read{}, nil)
	if err != nil {
		return page, false, err
	}
	err = s.promise(ctx, first, began, &page)
	return page, err == nil && (page.LateAfter < 0 || page.LateAfter >= first.LastID), err
}

// lowestLate returns the lower of two ids after which rows may have appeared, of
// which negative ones say that none have.
func lowestLate(a, b int64) int64 {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
