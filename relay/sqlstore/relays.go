package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// Adopt implements [relay.Store]. Claiming by rows needs indexes, which it
// makes; claiming by lanes drops them. It fails at once where the database can't
// be claimed that way.
func (s *Store) Adopt(ctx context.Context, claim relay.Claim) error {
	if err := s.possible(claim); err != nil {
		return fmt.Errorf("adopt claiming by %s on table %s: %w", claim, s.table, err)
	}
	if err := s.inNumericalOrder(ctx, claim); err != nil {
		return fmt.Errorf("adopt claiming by %s on table %s: %w", claim, s.table, err)
	}
	if claim == relay.ByLanes {
		if err := s.beginLanes(ctx); err != nil {
			return err
		}
	}
	if adopted, err := s.adopted(ctx, claim); err != nil || adopted {
		return err
	}
	return s.write(ctx, "adopt claiming by "+string(claim)+" on table", func() error {
		return s.inTx(ctx, s.dialect.Begin(s.table), func(tx *sql.Tx) error {
			if err := s.adopt(ctx, tx, claim); err != nil {
				return err
			}
			return s.adoptIndexes(ctx, tx, claim)
		})
	})
}

// adopted says that there is nothing to change. Then nothing is locked: claims that
// are under way share the lock of the way of claiming, one after the other, and who
// wants it alone might wait for long. The first beat sees to it that the way is still
// the same.
func (s *Store) adopted(ctx context.Context, claim relay.Claim) (adopted bool, err error) {
	err = s.try(ctx, "look at the way of claiming of table", func() error {
		var stored string
		var indexes int
		if err := all(ctx, s.db, s.dialect.ClaimedBy(s.table), func() {}, &stored); err != nil {
			return err
		}
		if err := all(ctx, s.db, s.dialect.RowIndexes(s.table), func() {}, &indexes); err != nil {
			return err
		}
		wanted := map[relay.Claim]int{relay.ByRows: dialect.RowIndexCount}[claim]
		adopted = stored == string(claim) && indexes == wanted
		return nil
	})
	return adopted, err
}

// possible refuses lanes where there can be none.
func (s *Store) possible(claim relay.Claim) error {
	if limited, rowsOnly := s.dialect.(dialect.RowsOnly); rowsOnly && claim == relay.ByLanes {
		return fmt.Errorf("%s: claim by rows (--claim rows, claim: rows or relay.ByRows), where there is no order", limited.NoLanes())
	}
	return nil
}

// inNumericalOrder refuses lanes where ids may be written in another order than they
// are given out: a relay would read on past those that are still to come.
func (s *Store) inNumericalOrder(ctx context.Context, claim relay.Claim) error {
	numbering, ok := s.dialect.(dialect.Numbering)
	if !ok || claim != relay.ByLanes {
		return nil
	}
	wrong, err := s.ask(ctx, numbering.OutOfOrder(s.table))
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the sequence of the ids has %s, with which a message could be passed over for good: run ALTER SEQUENCE … CACHE 1 INCREMENT BY 1 NO CYCLE, and GRANT SELECT on it, or claim by rows", strings.Join(wrong, ", "))
	}
	return nil
}

func (s *Store) adopt(ctx context.Context, tx *sql.Tx, claim relay.Claim) error {
	var stored string
	if err := all(ctx, tx, s.dialect.LockClaim(s.table), func() {}, &stored); err != nil {
		return err
	}
	if stored == string(claim) {
		return nil
	}
	var others []string
	var name string
	if err := all(ctx, tx, s.dialect.OtherRelays(s.table, string(claim)), func() { others = append(others, name) }, &name); err != nil {
		return err
	}
	if len(others) > 0 {
		return fmt.Errorf("%w: by %s, and these relays live: %s; stop them first, or start this one with that way of claiming",
			relay.ErrOtherClaim, stored, strings.Join(others, ", "))
	}
	if _, err := exec(ctx, tx, s.dialect.SetClaim(s.table, string(claim))); err != nil || stored == "" {
		return err
	}
	for _, query := range s.dialect.Forget(s.table) {
		if _, err := exec(ctx, tx, query); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) adoptIndexes(ctx context.Context, tx *sql.Tx, claim relay.Claim) error {
	var there int
	if err := all(ctx, tx, s.dialect.RowIndexes(s.table), func() {}, &there); err != nil {
		return err
	}
	switch {
	case claim == relay.ByRows && there < dialect.RowIndexCount:
		return s.changeIndexes(ctx, tx, s.dialect.MakeRowIndexes(s.table), "claiming by rows needs indexes")
	case claim == relay.ByLanes && there > 0:
		return s.changeIndexes(ctx, tx, s.dialect.DropRowIndexes(s.table), "claiming by lanes needs no indexes")
	default:
		return nil
	}
}

func (s *Store) changeIndexes(ctx context.Context, tx *sql.Tx, queries []dialect.Query, why string) error {
	for _, query := range queries {
		if _, err := exec(ctx, tx, query); err != nil {
			if s.dialect.Denied(err) {
				return fmt.Errorf("%s, and this user may not change them (%w); have the table's owner run: %s", why, err, script(queries))
			}
			return err
		}
	}
	return nil
}

func script(queries []dialect.Query) string {
	var text strings.Builder
	for _, query := range queries {
		text.WriteString(query.SQL + "; ")
	}
	return strings.TrimSpace(text.String())
}

// Beat implements [relay.Store]. It fails with relay.ErrOtherClaim if the way of
// claiming was changed.
func (s *Store) Beat(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error) {
	var census relay.Census
	err := s.write(ctx, "beat on table", func() (err error) {
		census, err = s.beat(ctx, self, ttl)
		return err
	})
	return census, err
}

func (s *Store) beat(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error) {
	beat := dialect.Beat{Name: self.Name, Host: self.Host, Version: self.Version, Claim: string(self.Claim), TTL: ttl}
	alive := false
	var name string
	var epoch text
	var xid uint64
	began := s.horizon.before()
	err := s.answer(ctx, s.dialect.Beat(s.table, beat), func(db querier, query dialect.Query) ([]int64, error) {
		return nil, all(ctx, db, query, func() { alive = true }, &name, &xid, &epoch)
	})
	if epochs, ok := s.dialect.(dialect.Epochs); ok && err == nil && alive && epoch == dialect.NoEpoch {
		if _, err := exec(ctx, s.db, epochs.BeginEpoch(s.table)); err != nil {
			return relay.Census{}, err
		}
		return s.beat(ctx, self, ttl)
	}
	if err != nil {
		return relay.Census{}, err
	}
	if !alive {
		return relay.Census{}, fmt.Errorf("%w now; it was changed after this relay had started", relay.ErrOtherClaim)
	}
	s.wrote(xid, began)
	names := []string{self.Name}
	if err := all(ctx, s.db, s.dialect.Census(s.table), func() { names = append(names, name) }, &name); err != nil {
		return relay.Census{}, err
	}
	slices.Sort(names)
	return relay.Census{Relays: slices.Compact(names), Epoch: string(epoch)}, nil
}

// Leave implements [relay.Store].
func (s *Store) Leave(ctx context.Context, name string) error {
	return s.write(ctx, "leave table", func() error {
		_, err := s.execAlone(ctx, s.dialect.Leave(s.table, name))
		return err
	})
}
