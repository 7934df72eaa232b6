package relay

import (
	"context"
	"time"
)

const (
	// purgeInterval is how often delivered rows past their retention are deleted.
	purgeInterval = 10 * time.Second

	// purgeBatch is the maximum number of rows in one deletion.
	purgeBatch = 1000

	// After a full batch the janitor pauses for purgeRest times the duration of the deletion, but at most for longestRest, so
	// that the database has time for messages.
	purgeRest   = 3
	longestRest = time.Second / 4
)

// janitor deletes delivered rows past their retention. It uses small batches with pauses between them, so that it holds locks
// only briefly and doesn't keep a core of the database server busy.
func (b *base) janitor(ctx context.Context) {
	for pause := time.Duration(0); sleep(ctx, pause); {
		if why := b.health.waits.Load(); why == nil || *why != "" { // this relay isn't active, and the active relays may have a longer retention
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
