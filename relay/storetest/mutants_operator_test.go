package storetest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// filtered changes the filters of List, Requeue and Discard.
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
		{"Requeue changes no row", []string{"requeue parked", "requeue when claiming by rows", "moves keep the message"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				filter.State = storage.StateError
				infos, err := s.List(ctx, filter)
				return len(infos), err
			}}
		}},
		{"a retry is not made due", []string{"operators change retries", "operators change retries when claiming by rows"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				if filter.State == storage.StateRetry {
					return 0, nil
				}
				return s.Requeue(ctx, filter)
			}}
		}},
		{"requeued rows expire again", []string{"an expired message never expires after a requeue", "an expired message never expires after a requeue when claiming by rows"}, func(s Store, _ *facts) Store {
			expires := func(row *storage.Row) { row.NeverExpires = false }
			return eachClaimed(eachDue(s, expires), expires)
		}},
		{"all requeued rows never expire", []string{"an expired message never expires after a requeue", "an expired message never expires after a requeue when claiming by rows"}, func(s Store, _ *facts) Store {
			never := func(row *storage.Row) { row.NeverExpires, row.Message.ExpiresAt = true, time.Time{} }
			return eachClaimed(eachDue(s, never), never)
		}},
		{"a requeued row holds its key", []string{"requeue parked", "retries block their keys"}, func(s Store, f *facts) Store {
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
		{"requeue by rows keeps the attempts", []string{"requeue when claiming by rows"}, func(s Store, _ *facts) Store {
			return eachClaimed(s, func(row *storage.Row) { row.Attempts = 20 })
		}},
		{"requeue counts one too many", []string{"requeue parked", "filters select"}, func(s Store, _ *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				n, err := s.Requeue(ctx, filter)
				return n + 1, err
			}}
		}},
		{"Discard deletes retries, too", []string{"discard parked"}, func(s Store, f *facts) Store {
			return onDiscard{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				if err := f.settleDue(ctx, s, storage.StateDone); err != nil {
					return 0, err
				}
				return s.Discard(ctx, filter)
			}}
		}},
		{"discard requeues", []string{"discard parked", "requeue and discard change all rows", "parked rows can't be settled"}, func(s Store, _ *facts) Store {
			return onDiscard{s, s.Requeue}
		}},
		{"changes stop after 1,000 rows", []string{"requeue and discard change all rows"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) {
				if f.Limit == 0 {
					f.Limit = 1000
				}
			})
		}},
		{"listings restart with each page", []string{"list pages", "filters select"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) { f.AfterID = 0 })
		}},
		{"listings have no limit", []string{"list pages"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) { f.Limit = plenty })
		}},
		{"listings ignore the byte limit", []string{"list pages"}, func(s Store, _ *facts) Store {
			return filtered(s, func(f *storage.Filter) { f.MaxBytes = plenty })
		}},
		{"listings begin with the newest row", []string{"list pages"}, func(s Store, _ *facts) Store {
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

// holdMutants returns mutants of parked rows that hold their keys.
func holdMutants() []mutant {
	settling := func(mistake string, found []string, change func(*storage.Settlement)) mutant {
		return mutant{mistake, found, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				settlements = slices.Clone(settlements)
				for i := range settlements {
					change(&settlements[i])
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}}
	}
	without := func(s Store, which func(storage.Hold) bool) func([]storage.BlockedKey, error) ([]storage.BlockedKey, error) {
		return func(keys []storage.BlockedKey, err error) ([]storage.BlockedKey, error) {
			return slices.DeleteFunc(keys, func(key storage.BlockedKey) bool {
				infos, _ := s.List(context.Background(), storage.Filter{IDs: []string{strconv.FormatInt(key.ID, 10)}})
				return len(infos) == 1 && which(infos[0].Holds)
			}), err
		}
	}
	isParked := func(h storage.Hold) bool { return h == storage.HoldsKey }
	isWanted := func(h storage.Hold) bool { return h > storage.HoldsKey }
	return []mutant{
		settling("parked rows don't hold their keys", []string{"parked rows hold their keys", "skip unblocks a held key", "discard unblocks a held key"}, func(s *storage.Settlement) { s.Holds = false }),
		settling("all parked rows hold their keys", []string{"parked rows hold their keys", "skip unblocks a held key"}, func(s *storage.Settlement) { s.Holds = true }),
		{"the blocked keys leave out keys that parked rows hold", []string{"parked rows hold their keys"}, func(s Store, _ *facts) Store {
			return onHeldKeys{s, func(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
				return without(s, isParked)(s.BlockedKeys(ctx, lanes, limit))
			}}
		}},
		{"keys that parked rows hold aren't found", []string{"parked rows hold their keys"}, func(s Store, _ *facts) Store {
			return onHeldAmong{s, func(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
				return without(s, isParked)(s.BlockedAmong(ctx, keys))
			}}
		}},
		{"a key is unblocked before its skip is carried out", []string{"skip unblocks a held key", "discard unblocks a held key"}, func(s Store, _ *facts) Store {
			return onHeldAmong{s, func(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
				return without(s, isWanted)(s.BlockedAmong(ctx, keys))
			}}
		}},
		{"a requeued row doesn't hold its key any more", []string{"parked rows hold their keys"}, func(s Store, f *facts) Store {
			return onRequeue{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				n, err := s.Requeue(ctx, filter)
				if err != nil {
					return n, err
				}
				return n, f.settleDue(ctx, s, storage.StateScheduled)
			}}
		}},
		{"a park overwrites an operator's decision", []string{"a repeated settlement keeps an operator's decision"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				forget := slices.DeleteFunc(slices.Clone(settlements), func(each storage.Settlement) bool { return !each.Holds || !each.Deferred })
				for i := range forget {
					forget[i].State, forget[i].Holds = storage.StateError, false
				}
				if _, err := s.Settle(ctx, name, keep, forget); err != nil {
					return storage.Settled{}, err
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"a settlement overwrites an operator's change", []string{"a repeated settlement keeps an operator's change"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				blind := slices.Clone(settlements)
				for i := range blind {
					blind[i].AvailableAt = time.Time{}
				}
				return s.Settle(ctx, name, keep, blind)
			}}
		}},
		{"a retry overwrites an operator's decision", []string{"a repeated settlement keeps an operator's decision"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				forget := slices.DeleteFunc(slices.Clone(settlements), func(each storage.Settlement) bool { return each.State != storage.StateRetry || !each.Deferred })
				for i := range forget {
					forget[i].State = storage.StateError
				}
				if _, err := s.Settle(ctx, name, keep, forget); err != nil {
					return storage.Settled{}, err
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"Skip requeues", []string{"skip unblocks a held key"}, func(s Store, _ *facts) Store { return onSkip{s, s.Requeue} }},
		{"Discard skips", []string{"discard unblocks a held key"}, func(s Store, _ *facts) Store {
			return onDiscard{s, func(ctx context.Context, filter storage.Filter) (int, error) {
				n, err := s.Skip(ctx, filter)
				if err != nil || filter.Limit > 0 {
					return n, err
				}
				more, err := s.Discard(ctx, filter)
				return n + more, err
			}}
		}},
		{"an operator's decision is not returned", []string{"skip unblocks a held key", "discard unblocks a held key"}, func(s Store, _ *facts) Store {
			return eachDue(s, func(row *storage.Row) { row.Holds = storage.NoHold })
		}},
		{"the status counts no held key", []string{"parked rows hold their keys"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) { status.HeldKeys, status.OldestHeld = 0, 0 })
		}},
		{"retries have no age", []string{"parked rows hold their keys"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) { status.OldestRetry = 0 })
		}},
		{"held rows have no age", []string{"parked rows hold their keys"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) { status.OldestHeld = min(status.OldestHeld, time.Millisecond) })
		}},
		{"a change of the claim mode requeues held messages", []string{"claim mode change ends holds"}, func(s Store, _ *facts) Store {
			return onAdopt{s, func(ctx context.Context, claim storage.Claim) error {
				_, _ = s.Requeue(ctx, storage.Filter{})
				return s.SetClaimMode(ctx, claim)
			}}
		}},
	}
}

// settleDue settles all due rows to a state. Delivered rows are not kept.
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

// filterMutants returns mutants that ignore one field of a filter.
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
		ignores("the topic's prefix", func(f *storage.Filter) { f.TopicPrefix = "" }),
		ignores("the topic", func(f *storage.Filter) { f.Topic = "" }),
		ignores("the key", func(f *storage.Filter) { f.Key = "" }),
		ignores("the state", func(f *storage.Filter) { f.State = "" }),
		ignores("since", func(f *storage.Filter) { f.Since = time.Time{} }),
		ignores("the error", func(f *storage.Filter) { f.Error = "" }),
		ignores("the error's text after a percent sign", func(f *storage.Filter) {
			if at := slices.Index([]byte(f.Error), '%'); at >= 0 {
				f.Error = f.Error[:at]
			}
		}),
	}
}
