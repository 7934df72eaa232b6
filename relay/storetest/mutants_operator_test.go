package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// filtered changes the filters of all calls.
func filtered(s Store, change func(*relay.Filter)) Store {
	bent := func(filter relay.Filter) relay.Filter {
		change(&filter)
		return filter
	}
	s = onList{s, func(s Store) func(context.Context, relay.Filter) ([]relay.Info, error) {
		return func(ctx context.Context, f relay.Filter) ([]relay.Info, error) { return s.List(ctx, bent(f)) }
	}(s)}
	s = onRequeue{s, func(s Store) func(context.Context, relay.Filter) (int, error) {
		return func(ctx context.Context, f relay.Filter) (int, error) { return s.Requeue(ctx, bent(f)) }
	}(s)}
	return onDiscard{s, func(ctx context.Context, f relay.Filter) (int, error) { return s.Discard(ctx, bent(f)) }}
}

func operatorMutants() []mutant {
	return []mutant{
		{"requeue does nothing", []string{"requeue parked", "requeue by rows", "moves keep the message"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter relay.Filter) (int, error) {
				filter.State = relay.StateError
				infos, err := s.List(ctx, filter)
				return len(infos), err
			}}
		}},
		{"a requeued row holds its key", []string{"requeue parked", "retries hold their keys"}, func(s Store, f *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter relay.Filter) (int, error) {
				n, err := s.Requeue(ctx, filter)
				if err != nil {
					return n, err
				}
				return n, f.settleDue(ctx, s, relay.StateRetry)
			}}
		}},
		{"requeue keeps the attempts", []string{"requeue parked"}, func(s Store, _ *facts) Store {
			return eachDue(s, func(row *relay.Row) { row.Attempts = 20 })
		}},
		{"requeue by rows keeps the attempts", []string{"requeue by rows"}, func(s Store, _ *facts) Store {
			return eachClaimed(s, func(row *relay.Row) { row.Attempts = 20 })
		}},
		{"requeue counts one too many", []string{"requeue parked", "filters select"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter relay.Filter) (int, error) {
				n, err := s.Requeue(ctx, filter)
				return n + 1, err
			}}
		}},
		{"discard takes retries too", []string{"discard parked"}, func(s Store, f *facts) Store {
			return onDiscard{s, func(ctx context.Context, filter relay.Filter) (int, error) {
				if err := f.settleDue(ctx, s, relay.StateDone); err != nil {
					return 0, err
				}
				return s.Discard(ctx, filter)
			}}
		}},
		{"discard requeues", []string{"discard parked", "changes have no limit", "parked is missing"}, func(s Store, _ *facts) Store {
			return onDiscard{s, s.Requeue}
		}},
		{"changes stop at a thousand", []string{"changes have no limit"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *relay.Filter) {
				if f.Limit == 0 {
					f.Limit = 1000
				}
			})
		}},
		{"listings start anew", []string{"list pages", "filters select"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *relay.Filter) { f.AfterID = 0 })
		}},
		{"listings have no limit", []string{"list pages"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *relay.Filter) { f.Limit = plenty })
		}},
		{"listings begin with the newest", []string{"list pages"}, func(s Store, _ *facts) Store {
			return onList{s, func(ctx context.Context, filter relay.Filter) ([]relay.Info, error) {
				infos, err := s.List(ctx, filter)
				slices.Reverse(infos)
				return infos, err
			}}
		}},
		{"listings have no done rows", []string{"list pages", "settle twice", "moves keep the message"}, func(s Store, _ *facts) Store {
			return onList{s, func(ctx context.Context, filter relay.Filter) ([]relay.Info, error) {
				infos, err := s.List(ctx, filter)
				return slices.DeleteFunc(infos, func(info relay.Info) bool { return info.State == relay.StateDone }), err
			}}
		}},
	}
}

// settleDue settles all due rows, and keeps nothing of those that are done.
func (f *facts) settleDue(ctx context.Context, s Store, state relay.State) error {
	due, _, err := s.Due(ctx, lanes(), relay.DueCursor{}, plenty, plentyBytes)
	if err != nil {
		return err
	}
	settlements := make([]relay.Settlement, len(due))
	for i, row := range due {
		settlements[i] = relay.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: f.fence(row.Lane), Held: true, State: state}
	}
	_, err = f.asOwner(s).Settle(ctx, "", false, settlements)
	return err
}

// filterMutants each ignore one field of a filter.
func filterMutants() []mutant {
	ignores := func(field string, forget func(*relay.Filter)) mutant {
		return mutant{"filters ignore " + field, []string{"filters select"}, func(s Store, _ *facts) Store {
			return filtered(s, forget)
		}}
	}
	return []mutant{
		ignores("ids", func(f *relay.Filter) { f.IDs = nil }),
		ignores("message ids", func(f *relay.Filter) {
			f.IDs = slices.DeleteFunc(slices.Clone(f.IDs), func(id string) bool { return len(id) == 36 && len(f.IDs) > 1 })
		}),
		ignores("the topic", func(f *relay.Filter) { f.Topic = "" }),
		ignores("the key", func(f *relay.Filter) { f.Key = "" }),
		ignores("the state", func(f *relay.Filter) { f.State = "" }),
		ignores("since", func(f *relay.Filter) { f.Since = time.Time{} }),
		ignores("the error", func(f *relay.Filter) { f.Error = "" }),
		ignores("what follows a wildcard", func(f *relay.Filter) {
			if at := slices.Index([]byte(f.Error), '%'); at >= 0 {
				f.Error = f.Error[:at]
			}
		}),
	}
}
