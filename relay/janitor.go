package relay

import (
	"context"
	"time"
)

const (
	// purgeInterval is how often delivered rows past their retention are deleted.
	purgeInterval = 10 * time.Second

	// purgeBatch bounds the rows of one deletion.
	purgeBatch = 1000

	// purgeRest is how many times as long as a deletion took there is none, so that
	// the database has time for messages; but for no longer than longestRest.
	purgeRest   = 3
	longestRest = reclaimInterval / 4

	// reclaimInterval is how often rows are freed whose claim has ended, and
	// held rows brought back that are due; by rows only.
	reclaimInterval = time.Second
)

// janitor does what no message waits for, and by rows what some do wait for.
func (e *engine) janitor(ctx context.Context) {
	nextPurge := time.Now()
	for {
		if e.options.Claim == ByRows {
			e.reclaim(ctx)
		}
		more := false
		if now := time.Now(); !now.Before(nextPurge) {
			if more = e.purge(ctx); !more {
				nextPurge = now.Add(purgeInterval)
			}
		}
		if !more && !sleep(ctx, e.untilJanitor(nextPurge)) {
			return
		}
	}
}

// untilJanitor is how long there is nothing to do.
func (e *engine) untilJanitor(nextPurge time.Time) time.Duration {
	if e.options.Claim == ByRows {
		return reclaimInterval
	}
	return time.Until(nextPurge)
}

// purge deletes in small batches with rests in between, so that it never holds a
// lock for long, nor keeps a core busy. It gives way after a while, and says
// whether there is more.
func (e *engine) purge(ctx context.Context) (more bool) {
	for began := time.Now(); time.Since(began) < reclaimInterval; {
		start := time.Now()
		n, err := e.bounded(ctx, func(ctx context.Context) (int, error) {
			return e.store.Purge(ctx, max(0, e.options.Retention), purgeBatch)
		})
		e.failed("purge", err)
		if err != nil || n < purgeBatch || !sleep(ctx, min(purgeRest*time.Since(start), longestRest)) {
			return false
		}
	}
	return true
}

// reclaim frees in small batches, too, until there is nothing left to free.
func (e *engine) reclaim(ctx context.Context) {
	for {
		n, err := e.bounded(ctx, func(ctx context.Context) (int, error) { return e.store.Reclaim(ctx, purgeBatch) })
		e.failed("reclaim", err)
		if err != nil {
			return
		}
		if n > 0 {
			e.wake.wake()
		}
		e.pulse.freed.Store(int64(n))
		e.pulse.reclaims.Add(1)
		if n < purgeBatch || ctx.Err() != nil {
			return
		}
	}
}

func (e *engine) bounded(ctx context.Context, work func(context.Context) (int, error)) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	return work(ctx)
}
