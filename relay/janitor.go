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
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, b.operationTimeout())
		n, err := b.store.Purge(bounded, max(0, b.options.Retention), purgeBatch)
		cancel()
		b.failed("purge", err)
		if pause = purgeInterval; err == nil && n == purgeBatch {
			pause = min(purgeRest*time.Since(began), longestRest)
		}
	}
}
