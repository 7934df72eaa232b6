package storetest

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

type onRemaining struct {
	Store
	remaining func(ctx context.Context, limit int, each func(*storage.Row) bool) error
}

func (s onRemaining) Remaining(ctx context.Context, limit int, each func(*storage.Row) (more bool)) error {
	return s.remaining(ctx, limit, each)
}

func remainingMutants() []mutant {
	const due, unclaimed = "remaining returns the due rows", "remaining leaves out claimed rows"
	// The function `only` returns a mutant whose Remaining leaves out the rows for which keep returns
	// false.
	only := func(mistake string, keep func(context.Context, Store, *storage.Row) bool, found ...string) mutant {
		return mutant{mistake, found, func(s Store, _ *facts) Store {
			return onRemaining{s, func(ctx context.Context, limit int, each func(*storage.Row) bool) error {
				return s.Remaining(ctx, limit, func(row *storage.Row) bool { return !keep(ctx, s, row) || each(row) })
			}}
		}}
	}
	return []mutant{
		only("Remaining leaves out deferred rows", func(_ context.Context, _ Store, row *storage.Row) bool { return !row.Deferred }, due),
		only("Remaining leaves out pending rows", func(_ context.Context, _ Store, row *storage.Row) bool { return row.Deferred }, due, unclaimed),
		only("Remaining leaves out rows without a key", func(_ context.Context, _ Store, row *storage.Row) bool { return row.Message.Key != "" }, due),
		only("Remaining leaves out parts", func(_ context.Context, _ Store, row *storage.Row) bool { return row.Sinks == "" }, due),
		only("Remaining leaves out rows of blocked keys", func(ctx context.Context, s Store, row *storage.Row) bool {
			blocked, err := s.BlockedAmong(ctx, []storage.LaneKey{{Lane: row.Lane, Key: row.Message.Key}})
			return err != nil || len(blocked) == 0 || row.Deferred
		}, due),
		only("Remaining leaves out the lowest lanes", func(_ context.Context, _ Store, row *storage.Row) bool { return row.Lane >= storage.Lanes/2 }, due),
		{"Remaining returns rows that are due tomorrow", []string{due, unclaimed}, func(s Store, f *facts) Store {
			return onRemaining{s, func(ctx context.Context, limit int, each func(*storage.Row) bool) error {
				now := f.table.DB.Now
				f.table.DB.Now = func() time.Time { return now().Add(24 * time.Hour) }
				defer func() { f.table.DB.Now = now }()
				return f.table.DB.Store().Remaining(ctx, limit, each)
			}}
		}},
		{"Remaining doesn't return whether a row is deferred", []string{due}, func(s Store, _ *facts) Store {
			return onRemaining{s, func(ctx context.Context, limit int, each func(*storage.Row) bool) error {
				return s.Remaining(ctx, limit, func(row *storage.Row) bool { row.Deferred = false; return each(row) })
			}}
		}},
		{"Remaining ignores that its callback returns false", []string{due}, func(s Store, _ *facts) Store {
			return onRemaining{s, func(ctx context.Context, limit int, each func(*storage.Row) bool) error {
				return s.Remaining(ctx, limit, func(row *storage.Row) bool { each(row); return true })
			}}
		}},
		{"the limit of Remaining is one too low", []string{due}, func(s Store, _ *facts) Store {
			return onRemaining{s, func(ctx context.Context, limit int, each func(*storage.Row) bool) error {
				met := 0
				return s.Remaining(ctx, limit, func(row *storage.Row) bool {
					met++
					return (limit <= 0 || met < limit) && each(row)
				})
			}}
		}},
	}
}
