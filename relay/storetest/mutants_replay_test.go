package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

type onReplay struct {
	Store
	replay func(ctx context.Context, was storage.Replay, limit int) (storage.Replay, []storage.RowID, error)
}

func (s onReplay) Replay(ctx context.Context, was storage.Replay, limit int) (storage.Replay, []storage.RowID, error) {
	return s.replay(ctx, was, limit)
}

type onStoreReplay struct {
	Store
	store func(ctx context.Context, was *storage.Replay, is storage.Replay) (storage.Replay, error)
}

func (s onStoreReplay) StoreReplay(ctx context.Context, was *storage.Replay, is storage.Replay) (storage.Replay, error) {
	return s.store(ctx, was, is)
}

type onCountPending struct {
	Store
	count func(ctx context.Context, rows []storage.RowID) (int, error)
}

func (s onCountPending) CountPending(ctx context.Context, rows []storage.RowID) (int, error) {
	return s.count(ctx, rows)
}

// replayMutants returns mutants of replays.
func replayMutants() []mutant {
	begins := func(mistake string, found string, change func(*storage.Replay)) mutant {
		return mutant{mistake, []string{found}, func(s Store, _ *facts) Store {
			return onStoreReplay{s, func(ctx context.Context, was *storage.Replay, is storage.Replay) (storage.Replay, error) {
				if was == nil {
					change(&is)
				}
				return s.StoreReplay(ctx, was, is)
			}}
		}}
	}
	copied := func(mistake string, change func(*storage.Row)) mutant {
		return mutant{mistake, []string{"replay copies in order"}, func(s Store, _ *facts) Store {
			return eachRead(s, func(row *storage.Row) {
				if row.Message.Headers[storage.ReplayedHeader] != "" {
					change(row)
				}
			})
		}}
	}
	return []mutant{
		begins("replays ignore ids", "replay selects", func(r *storage.Replay) { r.IDs = nil }),
		begins("replays ignore the topic", "replay selects", func(r *storage.Replay) { r.Topic = "" }),
		begins("replays ignore the key", "replay selects", func(r *storage.Replay) { r.Key = "" }),
		begins("replays ignore since", "replay selects", func(r *storage.Replay) { r.Since = time.Time{} }),
		begins("replays ignore until", "replay selects", func(r *storage.Replay) { r.Until = time.Time{} }),
		begins("replays ignore the sink", "replay obeys sinks", func(r *storage.Replay) { r.Sink = "" }),
		begins("replays keep the sinks of their messages", "replay obeys sinks", func(r *storage.Replay) { r.To = "" }),
		copied("a copy has no additional headers", func(row *storage.Row) { delete(row.Message.Headers, storage.ReplayedHeader) }),
		copied("a copy has no other headers", func(row *storage.Row) {
			row.Message.Headers = map[string]string{storage.ReplayedHeader: row.Message.Headers[storage.ReplayedHeader]}
		}),
		copied("a copy has another message id", func(row *storage.Row) { row.Message.ID = "0197a3b4-ffff-7abc-8def-0123456789ab" }),
		copied("a copy expires", func(row *storage.Row) { row.Message.ExpiresAt = time.Now() }),
		copied("a copy never expires", func(row *storage.Row) { row.Message.ExpiresAt = time.Time{} }),
		{"a replay copies its own copies", []string{"replay copies in order"}, func(s Store, _ *facts) Store {
			return onReplay{s, func(ctx context.Context, was storage.Replay, limit int) (storage.Replay, []storage.RowID, error) {
				more := was
				more.UntilID = plenty
				if _, err := s.StoreReplay(ctx, &was, more); err != nil {
					return was, nil, err
				}
				return s.Replay(ctx, more, limit)
			}}
		}},
		{"a replay restarts with each step", []string{"replay continues from its stored position"}, func(s Store, _ *facts) Store {
			return onReplay{s, func(ctx context.Context, was storage.Replay, limit int) (storage.Replay, []storage.RowID, error) {
				anew := was
				anew.AfterID = 0
				if anew.Written > 0 {
					if _, err := s.StoreReplay(ctx, &was, anew); err != nil {
						return was, nil, err
					}
				}
				return s.Replay(ctx, anew, limit)
			}}
		}},
		{"a replay ignores that its state has changed", []string{"replay continues from its stored position"}, func(s Store, _ *facts) Store {
			return onReplay{s, func(ctx context.Context, was storage.Replay, limit int) (storage.Replay, []storage.RowID, error) {
				stored, err := s.Replays(ctx)
				if at := slices.IndexFunc(stored, func(r storage.Replay) bool { return r.Name == was.Name }); err == nil && at >= 0 {
					was = stored[at]
				}
				return s.Replay(ctx, was, limit)
			}}
		}},
		{"a replay's name may be used twice", []string{"replay continues from its stored position"}, func(s Store, _ *facts) Store {
			return onStoreReplay{s, func(ctx context.Context, was *storage.Replay, is storage.Replay) (storage.Replay, error) {
				stored, err := s.Replays(ctx)
				if at := slices.IndexFunc(stored, func(r storage.Replay) bool { return r.Name == is.Name }); err == nil && was == nil && at >= 0 {
					was = &stored[at]
				}
				return s.StoreReplay(ctx, was, is)
			}}
		}},
		{"a step has no limit", []string{"replay continues from its stored position"}, func(s Store, _ *facts) Store {
			return onReplay{s, func(ctx context.Context, was storage.Replay, _ int) (storage.Replay, []storage.RowID, error) {
				return s.Replay(ctx, was, plenty)
			}}
		}},
		{"CountPending counts all rows", []string{"replay counts pending copies"}, func(s Store, _ *facts) Store {
			return onCountPending{s, func(_ context.Context, rows []storage.RowID) (int, error) { return len(rows), nil }}
		}},
		{"CountPending counts no row", []string{"replay counts pending copies"}, func(s Store, _ *facts) Store {
			return onCountPending{s, func(context.Context, []storage.RowID) (int, error) { return 0, nil }}
		}},
	}
}
