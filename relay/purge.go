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
	longestRest = time.Second / 4
)

// janitor deletes what is past its retention, in small batches with rests in between,
// so that it never holds a lock for long, nor keeps a core busy.
func (b *base) janitor(ctx context.Context) {
	for pause := time.Duration(0); sleep(ctx, pause); {
		if why := b.health.waits.Load(); why == nil || *why != "" { // it takes no part yet, and its retention may be shorter than theirs who do
			pause = time.Second
			continue
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, b.callTimeout)
		n, err := b.store.Purge(bounded, max(0, b.options.Retention), purgeBatch)
		cancel()
		b.options.Observer.Called("purge", time.Since(began))
		if pause = purgeInterval; err != nil {
			b.failed("purge", err)
		} else if n == purgeBatch {
			pause = min(purgeRest*time.Since(began), longestRest)
		}
	}
}
