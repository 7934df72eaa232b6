package storetest

import (
	"context"
	"errors"
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
		settlements[i] = relay.Settlement{ID: row.ID, Lane: row.Lane, Fence: f.fence(row.Lane), Held: true, State: state}
	}
	_, err = s.Settle(ctx, "", false, settlements)
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

// told changes what Status tells.
func told(s Store, change func(*relay.Status)) Store {
	return onStatus{s, func(ctx context.Context) (relay.Status, error) {
		status, err := s.Status(ctx)
		change(&status)
		return status, err
	}}
}

func statusMutants() []mutant {
	return []mutant{
		{"states without rows are left out", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) {
				for state, count := range status.Counts {
					if count == 0 {
						delete(status.Counts, state)
					}
				}
			})
		}},
		{"scheduled counts as pending", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) {
				status.Counts[relay.StatePending] += status.Counts[relay.StateScheduled]
				status.Counts[relay.StateScheduled] = 0
			})
		}},
		{"status has no topics", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) { clear(status.Topics) })
		}},
		{"the dead count as alive", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) {
				for i := range status.Relays {
					status.Relays[i].Alive = true
				}
			})
		}},
		{"nobody holds lanes", []string{"status counts", "ended context"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) { status.LanesLeased = 0 })
		}},
		{"claimed counts as pending", []string{"status counts claims"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) {
				status.Counts[relay.StatePending] += status.Counts[relay.StateClaimed]
				status.Counts[relay.StateClaimed] = 0
			})
		}},
		{"what can't be delivered gets old, too", []string{"status tells the oldest", "status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) { status.OldestPending += time.Second })
		}},
		{"nothing gets old", []string{"status tells the oldest", "purge counts from the finish"}, func(s Store, _ *facts) Store {
			return told(s, func(status *relay.Status) { status.OldestPending = 0 })
		}},
	}
}

func relayMutants() []mutant {
	return []mutant{
		{"relays die early", []string{"census"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error) {
				return s.Beat(ctx, self, ttl/2)
			}}
		}},
		{"relays never die", []string{"census", "adoption", "status counts"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self relay.Identity, _ time.Duration) (relay.Census, error) {
				return s.Beat(ctx, self, time.Hour)
			}}
		}},
		{"a relay doesn't count itself", []string{"census"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error) {
				census, err := s.Beat(ctx, self, ttl)
				census.Relays = slices.DeleteFunc(census.Relays, func(name string) bool { return name == self.Name })
				return census, err
			}}
		}},
		{"the other way of claiming is adopted beside living relays", []string{"adoption"}, func(s Store, f *facts) Store {
			return onAdopt{s, func(ctx context.Context, claim relay.Claim) error {
				_ = s.Adopt(ctx, claim)
				return nil
			}}
		}},
		{"the way of claiming never changes", []string{"adoption", "adoption forgets"}, func(s Store, f *facts) Store {
			return onAdopt{s, func(ctx context.Context, claim relay.Claim) error {
				if status, err := s.Status(ctx); err != nil || status.Claim != "" && status.Claim != claim {
					return relay.ErrOtherClaim
				}
				return s.Adopt(ctx, claim)
			}}
		}},
		{"anyone beats", []string{"adoption"}, func(s Store, f *facts) Store {
			return onBeat{s, func(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error) {
				census, err := s.Beat(ctx, self, ttl)
				if errors.Is(err, relay.ErrOtherClaim) {
					err = nil
				}
				return census, err
			}}
		}},
		{"leases outlive a change of the way", []string{"adoption fences"}, func(s Store, f *facts) Store {
			return eachSettlement(s, func(settlement *relay.Settlement) {
				if settlement.Token == "" {
					settlement.Fence++
				}
			})
		}},
		{"marks outlive a change of the way", []string{"adoption forgets"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *relay.Grant) { g.Marks.Main = 1 })
		}},
		{"claims outlive a change of the way", []string{"adoption forgets"}, func(s Store, f *facts) Store {
			return paged(s, func(page *relay.Page) {
				page.Rows = slices.DeleteFunc(page.Rows, func(row relay.Row) bool { return f.token(row.ID) != "" })
			})
		}},
		{"purge goes over the limit", []string{"purge keeps to the retention"}, func(s Store, _ *facts) Store {
			return onPurge{s, func(ctx context.Context, retention time.Duration, _ int) (int, error) {
				return s.Purge(ctx, retention, plenty)
			}}
		}},
		{"purge ignores the retention", []string{"purge keeps to the retention", "purge counts from the finish"}, func(s Store, _ *facts) Store {
			return onPurge{s, func(ctx context.Context, _ time.Duration, limit int) (int, error) {
				return s.Purge(ctx, -time.Hour, limit)
			}}
		}},
		{"purge takes parked rows", []string{"purge keeps to the retention"}, func(s Store, _ *facts) Store {
			return onPurge{s, func(ctx context.Context, retention time.Duration, limit int) (int, error) {
				if _, err := s.Discard(ctx, relay.Filter{}); err != nil {
					return 0, err
				}
				return s.Purge(ctx, retention, limit)
			}}
		}},
		{"ended contexts are ignored", []string{"ended context"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error) {
				return s.Beat(context.WithoutCancel(ctx), self, ttl)
			}}
		}},
	}
}
