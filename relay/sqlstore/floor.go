package sqlstore

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// keepIDs comes before the settlements, in a transaction of its own: where the
// server counts on from what it finds in the table, something stays there whose id
// is as high as theirs. While rows with higher ids are there, that is they: these
// can't leave before somebody has done the same for them.
//
// It isn't part of the settle's transaction, which may last as long as a handler:
// all relays would wait there for each other.
func (s *Store) keepIDs(ctx context.Context, settlements []relay.Settlement) error {
	leaving := int64(0)
	for _, settlement := range settlements {
		if !settlement.Held && settlement.State != relay.StatePending {
			leaving = max(leaving, settlement.ID)
		}
	}
	return s.keepID(ctx, leaving)
}

// keepGiven repairs what somebody may have deleted by hand.
func (s *Store) keepGiven(ctx context.Context) error {
	if _, forgets := s.dialect.(dialect.Counting); !forgets {
		return nil
	}
	given, err := s.given(ctx)
	if err != nil {
		return err
	}
	return s.keepID(ctx, given)
}

// keepID is the same for ids up to this one.
func (s *Store) keepID(ctx context.Context, id int64) error {
	counting, forgets := s.dialect.(dialect.Counting)
	if !forgets || id == 0 {
		return nil
	}
	return s.try(ctx, "keep the last id of table", func() error {
		steps := counting.Floor(s.table, id)
		var floors []int64
		var floor int64
		err := all(ctx, s.db, steps.Ask, func() { floors = append(floors, floor) }, &floor)
		if err != nil || len(floors) == 0 {
			return err
		}
		return s.inTx(ctx, nil, func(tx *sql.Tx) error { return execAll(ctx, tx, steps.After(floors)) })
	})
}
