package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// filtered changes the filters of all calls.
func filtered(s Store, change func(*storage.Filter)) Store {
	bent := func(filter storage.Filter) storage.Filter {
		change(&filter)
		return filter
	}
	s = onList{s, func(s Store) func(context.Context, storage.Filter) ([]storage.Info, error) {
		return func(ctx context.Context, f storage.Filter) ([]storage.Info, error) { return s.List(ctx, bent(f)) }
	}(s)}
	s = onRequeue{s, func(s Store) func(context.Context, storage.Filter) (int, error) {
		return func(ctx context.Context, f storage.Filter) (int, error) { return s.Requeue(ctx, bent(f)) }
	}(s)}
	return onDiscard{s, func(ctx context.Context, f storage.Filter) (int, error) { return s.Discard(ctx, bent(f)) }}
}

func operatorMutants() []mutant {
	return []mutant{
		{"requeue does nothing", []string{"requeue parked", "requeue by rows", "moves keep the message"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				filter.State = storage.StateError
				infos, err := s.List(ctx, filter)
				return len(infos), err
			}}
		}},
		{"a requeued row holds its key", []string{"requeue parked", "retries hold their keys"}, func(s Store, f *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				n, err := s.Requeue(ctx, filter)
				if err != nil {
					return n, err
				}
				return n, f.settleDue(ctx, s, storage.StateRetry)
			}}
		}},
		{"requeue keeps the attempts", []string{"requeue parked"}, func(s Store, _ *facts) Store {
			return eachDue(s, func(row *storage.Row) { row.Attempts = 20 })
		}},
		{"requeue by rows keeps the attempts", []string{"requeue by rows"}, func(s Store, _ *facts) Store {
			return eachClaimed(s, func(row *storage.Row) { row.Attempts = 20 })
		}},
		{"requeue counts one too many", []string{"requeue parked", "filters select"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				n, err := s.Requeue(ctx, filter)
				return n + 1, err
			}}
		}},
		{"discard takes retries too", []string{"discard parked"}, func(s Store, f *facts) Store {
			return onDiscard{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				if err := f.settleDue(ctx, s, storage.StateDone); err != nil {
					return 0, err
				}
				return s.Discard(ctx, filter)
			}}
		}},
		{"discard requeues", []string{"discard parked", "changes have no limit", "parked is missing"}, func(s Store, _ *facts) Store {
			return onDiscard{s, s.Requeue}
		}},
		{"changes stop at a thousand", []string{"changes have no limit"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) {
				if f.Limit == 0 {
					f.Limit = 1000
				}
			})
		}},
		{"listings start anew", []string{"list pages", "filters select"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) { f.AfterID = 0 })
		}},
		{"listings have no limit", []string{"list pages"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) { f.Limit = plenty })
		}},
		{"listings count no bytes", []string{"list pages"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) { f.MaxBytes = plenty })
		}},
		{"listings begin with the newest", []string{"list pages"}, func(s Store, _ *facts) Store {
			return onList{s, func(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
				infos, err := s.List(ctx, filter)
				slices.Reverse(infos)
				return infos, err
			}}
		}},
		{"listings have no done rows", []string{"list pages", "settle twice", "moves keep the message"}, func(s Store, _ *facts) Store {
			return onList{s, func(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
				infos, err := s.List(ctx, filter)
				return slices.DeleteFunc(infos, func(info storage.Info) bool { return info.State == storage.StateDone }), err
			}}
		}},
	}
}

// settleDue settles all due rows, and keeps nothing of those that are done.
func (f *facts) settleDue(ctx context.Context, s Store, state storage.State) error {
	due, _, err := s.Due(ctx, lanes(), storage.DueCursor{}, plenty, plentyBytes)
	if err != nil {
		return err
	}
	settlements := make([]storage.Settlement, len(due))
	for i, row := range due {
		settlements[i] = storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: f.fence(row.Lane), Deferred: true, State: state}
	}
	_, err = f.asOwner(s).Settle(ctx, "", false, settlements)
	return err
}

// filterMutants each ignore one field of a filter.
func filterMutants() []mutant {
	ignores := func(field string, forget func(*storage.Filter)) mutant {
		return mutant{"filters ignore " + field, []string{"filters select"}, func(s Store, _ *facts) Store {
			return filtered(s, forget)
		}}
	}
	return []mutant{
		ignores("ids", func(f *storage.Filter) { f.IDs = nil }),
		ignores("message ids", func(f *storage.Filter) {
			f.IDs = slices.DeleteFunc(slices.Clone(f.IDs), func(id string) bool { return len(id) == 36 && len(f.IDs) > 1 })
		}),
		ignores("the topic", func(f *storage.Filter) { f.Topic = "" }),
		ignores("the key", func(f *storage.Filter) { f.Key = "" }),
		ignores("the state", func(f *storage.Filter) { f.State = "" }),
		ignores("since", func(f *storage.Filter) { f.Since = time.Time{} }),
		ignores("the error", func(f *storage.Filter) { f.Error = "" }),
		ignores("what follows a wildcard", func(f *storage.Filter) {
			if at := slices.Index([]byte(f.Error), '%'); at >= 0 {
				f.Error = f.Error[:at]
			}
		}),
	}
}
