package storetest

import (
	"context"
	"math"

	"github.com/rowrelay/rowrelay/relay/storage"
)

type onParked struct {
	Store
	parked func(ctx context.Context, filter storage.Filter, within int64, each func(storage.Parked)) error
}

func (s onParked) Parked(ctx context.Context, filter storage.Filter, within int64, each func(storage.Parked)) error {
	return s.parked(ctx, filter, within, each)
}

type onRedirect struct {
	Store
	redirect func(ctx context.Context, filter storage.Filter, sink string) (int, error)
}

func (s onRedirect) Redirect(ctx context.Context, filter storage.Filter, sink string) (int, error) {
	return s.redirect(ctx, filter, sink)
}

// bulkMutants returns mutants of the list of parked messages and of Redirect.
func bulkMutants() []mutant {
	listing := func(mistake string, found string, ask func(*storage.Filter, *int64), change func(*storage.Parked)) mutant {
		return mutant{mistake, []string{found}, func(s Store, _ *facts) Store {
			return onParked{s, func(ctx context.Context, filter storage.Filter, within int64, each func(storage.Parked)) error {
				ask(&filter, &within)
				return s.Parked(ctx, filter, within, func(row storage.Parked) {
					change(&row)
					each(row)
				})
			}}
		}}
	}
	asked, told := func(*storage.Filter, *int64) {}, func(*storage.Parked) {}
	return []mutant{
		listing("all parked rows are listed", "parked messages are listed", func(f *storage.Filter, _ *int64) { *f = storage.Filter{} }, told),
		listing("no parked row holds its key", "parked messages are listed", asked, func(p *storage.Parked) { p.HoldsKey = false }),
		listing("parked rows have no error", "parked messages are listed", asked, func(p *storage.Parked) { p.Error = "" }),
		listing("all parked rows are returned as holding their keys", "parked messages are listed", func(f *storage.Filter, _ *int64) { f.Holds = false }, told),
		listing("the list with the newest first begins with the oldest", "parked messages are listed", func(f *storage.Filter, _ *int64) { f.NewestFirst = false }, told),
		listing("no row is reported as overtaken", "overtaken messages are marked in the list", asked, func(p *storage.Parked) { p.Overtaken = false }),
		listing("all rows with keys are reported as overtaken", "overtaken messages are marked in the list", asked, func(p *storage.Parked) { p.Overtaken = p.Key != "" }),
		listing("overtaking rows are searched for without a limit", "overtaken messages are marked in the list", func(_ *storage.Filter, within *int64) { *within = math.MaxInt32 }, told),
		{"redirect only requeues", []string{"redirect requeues to a sink", "redirect leaves out messages with a pending row"}, func(s Store, _ *facts) Store {
			return onRedirect{s, func(ctx context.Context, filter storage.Filter, _ string) (int, error) { return s.Requeue(ctx, filter) }}
		}},
		{"only parked rows are redirected", []string{"redirect waiting rows", "redirect waiting rows when claiming by rows"}, func(s Store, _ *facts) Store {
			return onRedirect{s, func(ctx context.Context, filter storage.Filter, sink string) (int, error) {
				if filter.State == storage.StatePending {
					return 0, nil
				}
				return s.Redirect(ctx, filter, sink)
			}}
		}},
		{"the list of parked rows ends early", []string{"parked messages are listed"}, func(s Store, _ *facts) Store {
			return onParked{s, func(ctx context.Context, filter storage.Filter, within int64, each func(storage.Parked)) error {
				given := 0
				return s.Parked(ctx, filter, within, func(row storage.Parked) {
					if given++; given <= 2 {
						each(row)
					}
				})
			}}
		}},
	}
}
