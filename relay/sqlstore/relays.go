package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// SetClaimMode implements [relay.Store]. Claiming by rows needs indexes, which it
// makes; claiming by lanes drops them. It fails at once where the database can't
// be claimed that way.
func (s *Store) SetClaimMode(ctx context.Context, claim relay.Claim) error {
	if err := s.possible(claim); err != nil {
		return fmt.Errorf("set the way of claiming to %s on table %s: %w", claim, s.table, err)
	}
	if claim == relay.ByLanes {
		if err := s.beginLanes(ctx); err != nil {
			return err
		}
	}
	if same, err := s.claimsThatWay(ctx, claim); err != nil || same {
		return err
	}
	return s.write(ctx, "set the way of claiming to "+string(claim)+" on table", func() error {
		return s.backend.SetClaimMode(ctx, claim)
	})
}

// claimsThatWay says that there is nothing to change. Then nothing is locked: claims that
// are under way share the lock of the way of claiming, one after the other, and who
// wants it alone might wait for long. The first beat sees to it that the way is still
// the same.
func (s *Store) claimsThatWay(ctx context.Context, claim relay.Claim) (same bool, err error) {
	err = s.try(ctx, "look at the way of claiming of table", func() error {
		var stored relay.Claim
		if err := backend.One(ctx, s.db, s.traits.Queries.ClaimMode, &stored); err != nil {
			return err
		}
		var indexes int
		if err := backend.One(ctx, s.db, s.dialect.RowIndexes(s.table), &indexes); err != nil {
			return err
		}
		wanted := map[relay.Claim]int{relay.ByRows: dialect.RowIndexCount}[claim]
		same = stored == claim && indexes == wanted
		return nil
	})
	return same, err
}

// possible refuses lanes where there can be none.
func (s *Store) possible(claim relay.Claim) error {
	if s.noLanes != "" && claim == relay.ByLanes {
		return fmt.Errorf("%s: claim by rows (--claim rows, claim: rows or relay.ByRows), where there is no order", s.noLanes)
	}
	return nil
}

// Heartbeat implements [relay.Store]. It fails with relay.ErrOtherClaim if the way of
// claiming was changed.
func (s *Store) Heartbeat(ctx context.Context, self relay.Identity, ttl time.Duration) (members relay.Members, err error) {
	err = s.write(ctx, "send a heartbeat to table", func() error {
		began := s.horizon.before()
		beat, err := s.backend.Heartbeat(ctx, self, ttl)
		if err != nil {
			return err
		}
		if !beat.Stored {
			return fmt.Errorf("%w now; it was changed after this relay had started", relay.ErrOtherClaim)
		}
		s.wrote(beat.XID, began)
		names, name := []string{self.Name}, ""
		if err := backend.All(ctx, s.db, s.traits.Queries.Members, func() { names = append(names, name) }, &name); err != nil {
			return err
		}
		slices.Sort(names)
		members = relay.Members{Relays: slices.Compact(names), Epoch: beat.Epoch}
		return nil
	})
	return members, err
}

// Deregister implements [relay.Store].
func (s *Store) Deregister(ctx context.Context, name string) error {
	return s.write(ctx, "deregister from table", func() error {
		_, err := backend.ExecTx(ctx, s.db, s.traits.Tx, backend.Query{SQL: s.traits.Queries.Deregister.SQL, Args: []any{name}})
		return err
	})
}
