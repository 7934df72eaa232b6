package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// purgeAnewEvery is how often a purge begins with the oldest done row again: one
// whose transaction took longer than the retention was passed over.
const purgeAnewEvery = 5 * time.Minute

// purges remember where the last purge ended, by the database's clock.
type purges struct {
	mu    sync.Mutex
	since time.Time
	anew  time.Time // when since is forgotten
}

// next is where a purge begins: zero for the oldest row of all.
func (p *purges) next(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !now.Before(p.anew) {
		p.since, p.anew = time.Time{}, now.Add(purgeAnewEvery)
	}
	return p.since
}

func (p *purges) ended(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = at
}

// Purge implements [relay.Store]. It counts done rows.
func (s *Store) Purge(ctx context.Context, retention time.Duration, limit int) (purged int, err error) {
	err = s.write(ctx, "purge table", func() error {
		var until time.Time
		purged, until, err = s.backend.Purge(ctx, retention, limit, s.purges.next(time.Now()))
		if !until.IsZero() {
			s.purges.ended(until)
		}
		if err == nil {
			_, err = backend.ExecTx(ctx, s.db, s.traits.Tx, s.traits.Queries.PurgeRelays)
		}
		return err
	})
	return purged, err
}
