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

// Adopt implements [relay.Store]. Claiming by rows needs indexes, which it
// makes; claiming by lanes drops them. It fails at once where the database can't
// be claimed that way.
func (s *Store) Adopt(ctx context.Context, claim relay.Claim) error {
	if err := s.possible(claim); err != nil {
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
		return s.backend.SetClaimMode(ctx, claim)
	})
}

// adopted says that there is nothing to change. Then nothing is locked: claims that
// are under way share the lock of the way of claiming, one after the other, and who
// wants it alone might wait for long. The first beat sees to it that the way is still
// the same.
func (s *Store) adopted(ctx context.Context, claim relay.Claim) (adopted bool, err error) {
	err = s.try(ctx, "look at the way of claiming of table", func() error {
		stored, err := s.backend.ClaimMode(ctx)
		if err != nil {
			return err
		}
		var indexes int
		if err := backend.One(ctx, s.db, s.dialect.RowIndexes(s.table), &indexes); err != nil {
			return err
		}
		wanted := map[relay.Claim]int{relay.ByRows: dialect.RowIndexCount}[claim]
		adopted = stored == claim && indexes == wanted
		return nil
	})
	return adopted, err
}

// possible refuses lanes where there can be none.
func (s *Store) possible(claim relay.Claim) error {
	if s.noLanes != "" && claim == relay.ByLanes {
		return fmt.Errorf("%s: claim by rows (--claim rows, claim: rows or relay.ByRows), where there is no order", s.noLanes)
	}
	return nil
}

// Beat implements [relay.Store]. It fails with relay.ErrOtherClaim if the way of
// claiming was changed.
func (s *Store) Beat(ctx context.Context, self relay.Identity, ttl time.Duration) (census relay.Census, err error) {
	err = s.write(ctx, "beat on table", func() error {
		began := s.horizon.before()
		beat, err := s.backend.Heartbeat(ctx, self, ttl)
		if err != nil {
			return err
		}
		if !beat.Stored {
			return fmt.Errorf("%w now; it was changed after this relay had started", relay.ErrOtherClaim)
		}
		s.wrote(beat.XID, began)
		names := append(beat.Alive, self.Name)
		slices.Sort(names)
		census = relay.Census{Relays: slices.Compact(names), Epoch: beat.Epoch}
		return nil
	})
	return census, err
}

// Leave implements [relay.Store].
func (s *Store) Leave(ctx context.Context, name string) error {
	return s.write(ctx, "leave table", func() error { return s.backend.Deregister(ctx, name) })
}
