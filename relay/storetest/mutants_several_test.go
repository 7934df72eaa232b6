package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// eachPart returns a mutant that changes the settlements for some of a row's sinks.
func eachPart(mistake string, found []string, change func(*storage.Settlement, *facts)) mutant {
	return mutant{mistake, found, func(s Store, f *facts) Store {
		return eachSettlement(s, func(settlement *storage.Settlement) {
			if settlement.Left != "" {
				change(settlement, f)
			}
		})
	}}
}

// sinksNow returns the sinks that the settlement's row has in the table.
func (f *facts) sinksNow(s *storage.Settlement) string {
	rows, _ := f.table.DB.Store().Pick(context.Background(), []storage.RowID{{Lane: s.Lane, ID: s.ID}})
	for _, row := range rows {
		if row.Deferred == s.Deferred && row.Message.ID == s.MessageID {
			return row.Sinks
		}
	}
	return s.Sinks
}

func severalMutants() []mutant {
	const (
		forSome = "settle for some sinks"
		unkept  = "settle for some sinks without done rows"
		keeps   = "settle for some sinks requires lease, message and sinks"
		apart   = "rows of a message are settled separately"
		beside  = "settle rows for some or all sinks in one batch"
	)
	return []mutant{
		eachPart("a settlement for some sinks moves the row", []string{forSome, unkept, keeps, apart, beside, "reads return the sinks"}, func(s *storage.Settlement, _ *facts) { s.For, s.Left = "", "" }),
		eachPart("no separate row is written", []string{forSome, unkept, apart, beside}, func(s *storage.Settlement, _ *facts) { s.State = storage.StateDiscarded }),
		eachPart("the remaining sinks are written as a separate row", []string{forSome, unkept, beside}, func(s *storage.Settlement, _ *facts) { s.For, s.Left = s.Left, s.For }),
		eachPart("only the first remaining sink is kept", []string{forSome}, func(s *storage.Settlement, _ *facts) { s.Left, _, _ = strings.Cut(s.Left, ",") }),
		eachPart("the separate row has no attempts", []string{forSome}, func(s *storage.Settlement, _ *facts) { s.Attempts = 0 }),
		eachPart("the separate row has no error", []string{forSome}, func(s *storage.Settlement, _ *facts) { s.Error = "" }),
		eachPart("settlements for some sinks ignore the sinks", []string{keeps}, func(s *storage.Settlement, f *facts) { s.Sinks = f.sinksNow(s) }),
		{"the last settlement of a row ignores its sinks", []string{keeps}, func(s Store, f *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				if settlement.Left == "" && !settlement.Deferred {
					settlement.Sinks = f.sinksNow(settlement)
				}
			})
		}},
		eachPart("settlements for some sinks ignore the fence", []string{keeps}, func(s *storage.Settlement, f *facts) { s.Fence = f.fence(s.Lane) }),
		{"a settlement for some sinks always keeps a done row", []string{unkept}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, _ bool, settlements []storage.Settlement) (storage.Settled, error) {
				return s.Settle(ctx, name, true, settlements)
			}}
		}},
		{"a repeated settlement for some sinks changes something", []string{forSome}, func(s Store, _ *facts) Store {
			return counted(s, func(count int, _ storage.Settled) storage.Settled { return storage.Settled{Changed: count} })
		}},
		{"a batch settles a row once", []string{beside, apart}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				seen := map[string]bool{}
				once := slices.DeleteFunc(slices.Clone(settlements), func(s storage.Settlement) bool {
					defer func() { seen[s.MessageID] = true }()
					return seen[s.MessageID]
				})
				counts, err := s.Settle(ctx, name, keep, once)
				counts.Missing += len(settlements) - len(once)
				return counts, err
			}}
		}},
		{"settlements of deferred rows ignore the sinks", []string{apart}, func(s Store, f *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				if settlement.Deferred {
					settlement.Sinks = f.sinksNow(settlement)
				}
			})
		}},

		tellsNoSinks("a page", func(s Store, forget func(*storage.Row)) Store { return eachRead(s, forget) }),
		tellsNoSinks("a claim", func(s Store, forget func(*storage.Row)) Store { return eachClaimed(s, forget) }, "reclaim moves rows of a message one at a time"),
		tellsNoSinks("a due row", func(s Store, forget func(*storage.Row)) Store { return eachDue(s, forget) }),
		tellsNoSinks("a picked row", func(s Store, forget func(*storage.Row)) Store {
			return onPick{s, func(rows []storage.Row) []storage.Row { return changed(rows, forget) }}
		}),
		tellsNoSinks("a scan", func(s Store, forget func(*storage.Row)) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				rows, left, err := s.Scan(ctx, positions, except, keep)
				return changed(rows, forget), left, err
			}}
		}),
		tellsNoSinks("a candidate", func(s Store, _ func(*storage.Row)) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, except, func(c storage.Candidate) bool {
					c.Sinks = ""
					return keep(c)
				})
			}}
		}),
		tellsNoSinks("a blocked key", func(s Store, _ func(*storage.Row)) Store {
			return onHeldKeys{s, func(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
				keys, err := s.BlockedKeys(ctx, lanes, limit)
				for i := range keys {
					keys[i].Sinks = ""
				}
				return keys, err
			}}
		}),
		{"a blocked key is returned once for each topic", []string{"reads return the sinks"}, func(s Store, _ *facts) Store {
			return onHeldAmong{s, func(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
				held, err := s.BlockedAmong(ctx, keys)
				return slices.CompactFunc(held, func(a, b storage.BlockedKey) bool { return a.Topic == b.Topic }), err
			}}
		}},

		{"filters ignore the sink", []string{"filter by sink", "operators change a message for one sink"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) { f.Sink = "" })
		}},
		{"a filter by sink finds sinks whose names contain it", []string{"filter by sink"}, func(s Store, _ *facts) Store {
			return onList{s, func(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
				sink := filter.Sink
				filter.Sink = ""
				infos, err := s.List(ctx, filter)
				return slices.DeleteFunc(infos, func(info storage.Info) bool { return !strings.Contains(info.Sinks, sink) }), err
			}}
		}},
		{"a listing ends in the middle of a message's rows", []string{"a list page has all rows of its last message"}, func(s Store, _ *facts) Store {
			return onList{s, func(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
				infos, err := s.List(ctx, filter)
				if filter.MaxBytes == 1 {
					infos = infos[:1]
				}
				return infos, err
			}}
		}},
		{"a requeue changes all rows of a message", []string{"operators change a message for one sink"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				n, err := s.Requeue(ctx, filter)
				if err == nil && filter.Limit == 1 {
					filter.Limit = 0
					_, err = s.Requeue(ctx, filter)
				}
				return n, err
			}}
		}},
		{"moving a row back deletes another row of its message", []string{"reclaim moves rows of a message one at a time"}, func(s Store, f *facts) Store {
			return onReclaim{s, func(ctx context.Context, limit int) (int, error) {
				n, err := s.Reclaim(ctx, limit)
				f.table.DB.Delete(func(row storage.Row) bool { return n > 0 && row.Sinks == "b" })
				return n, err
			}}
		}},
	}
}

func tellsNoSinks(who string, bend func(Store, func(*storage.Row)) Store, found ...string) mutant {
	if len(found) == 0 {
		found = []string{"reads return the sinks"}
	}
	return mutant{who + " has no sinks", found, func(s Store, _ *facts) Store {
		return bend(s, func(row *storage.Row) { row.Sinks = "" })
	}}
}
