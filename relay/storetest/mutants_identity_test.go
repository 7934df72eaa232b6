package storetest

import (
	"context"
	"slices"
	"strconv"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// identityMutants returns mutants that identify a row only by its id, or a lane's owner only by the
// fence.
func identityMutants() []mutant {
	return []mutant{
		{"a row is settled by its id", []string{"settle changes only its message", "settle by token changes only its message"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				settlements = slices.Clone(settlements)
				for i := range settlements {
					if err := takeTheRows(ctx, s, &settlements[i]); err != nil {
						return storage.Settled{}, err
					}
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"another message with the row's id counts as fenced", []string{"settle changes only its message", "settle by token changes only its message"}, func(s Store, _ *facts) Store {
			return counted(s, func(_ int, c storage.Settled) storage.Settled {
				return storage.Settled{Changed: c.Changed, Fenced: c.Fenced + c.Missing}
			})
		}},
		{"the owner is not compared", []string{"only the owner settles"}, func(s Store, f *facts) Store {
			return f.asOwner(s)
		}},
		{"a done row replaces the done row with the same id", []string{"done row whose id is reused"}, func(s Store, f *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				if _, err := s.Purge(ctx, -pause, plenty); err != nil {
					return storage.Settled{}, err
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"a second done row with an id is refused", []string{"done row whose id is reused"}, func(s Store, _ *facts) Store {
			return refusing(s, storage.StateDone)
		}},
		{"a second deferred row with an id is refused", []string{"deferred row whose id is reused"}, func(s Store, _ *facts) Store {
			return refusing(s, storage.StateRetry)
		}},
		{"a message is requeued by its row's id", []string{"deferred row whose id is reused"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				rows, err := s.List(ctx, filter)
				if err != nil || len(rows) == 0 {
					return 0, err
				}
				_, err = s.Requeue(ctx, storage.Filter{IDs: []string{strconv.FormatInt(rows[0].ID, 10)}})
				return 1, err
			}}
		}},
		{"a message is discarded by its row's id", []string{"deferred row whose id is reused"}, func(s Store, _ *facts) Store {
			return onDiscard{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				rows, err := s.List(ctx, filter)
				if err != nil || len(rows) == 0 {
					return 0, err
				}
				_, err = s.Discard(ctx, storage.Filter{IDs: []string{strconv.FormatInt(rows[0].ID, 10)}})
				return 1, err
			}}
		}},
		{"no row is moved back while the id of one is pending", []string{"reclaim leaves a row deferred while another row with its id is pending", "reclaim moves rows with the same id one at a time"}, func(s Store, _ *facts) Store {
			return onReclaim{s, func(ctx context.Context, limit int) (int, error) {
				held, err := s.List(ctx, storage.Filter{State: storage.StateRetry})
				if err != nil {
					return 0, err
				}
				all, err := s.List(ctx, storage.Filter{})
				for _, row := range held {
					same := slices.DeleteFunc(slices.Clone(all), func(r storage.Info) bool { return r.ID != row.ID || r.State == storage.StateDone })
					if err == nil && len(same) > 1 {
						return 0, nil
					}
				}
				return s.Reclaim(ctx, limit)
			}}
		}},
		{"only one row is picked for each id", []string{"pick returns all rows with an id"}, func(s Store, _ *facts) Store {
			return onPick{s, func(rows []storage.Row) []storage.Row {
				return slices.CompactFunc(rows, func(a, b storage.Row) bool { return a.ID == b.ID })
			}}
		}},
	}
}

// takeTheRows replaces a settlement's message id by the id of the message whose row now has the
// settlement's row id.
func takeTheRows(ctx context.Context, s Store, settlement *storage.Settlement) error {
	rows, err := s.List(ctx, storage.Filter{IDs: []string{strconv.FormatInt(settlement.ID, 10)}})
	if len(rows) > 0 {
		settlement.MessageID = rows[0].Message.ID
	}
	return err
}

// refusing returns a store that refuses a second row of the state with the same id.
func refusing(s Store, state storage.State) Store {
	return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
		for _, settlement := range settlements {
			there, err := s.List(ctx, storage.Filter{IDs: []string{strconv.FormatInt(settlement.ID, 10)}, State: state})
			if err != nil || settlement.State == state && len(there) > 0 {
				return storage.Settled{}, err
			}
		}
		return s.Settle(ctx, name, keep, settlements)
	}}
}
