package sqlstore

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
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
		writes := s.dialect.Purge(s.table, dialect.Purge{Retention: retention, Limit: limit, Since: s.purges.next(time.Now())})
		if len(writes) == 1 && writes[0].Tells {
			purged, err = s.purgeOn(ctx, writes[0].Query)
		} else {
			purged, err = s.carryOut(ctx, writes)
		}
		if err != nil {
			return err
		}
		_, err = s.execAlone(ctx, s.dialect.PurgeRelays(s.table))
		return err
	})
	return purged, err
}

// purgeOn remembers where the purge ended once it is committed.
func (s *Store) purgeOn(ctx context.Context, query dialect.Query) (purged int, err error) {
	var until time.Time
	err = s.inTx(ctx, s.dialect.Begin(s.table), func(tx *sql.Tx) error {
		return all(ctx, tx, query, func() {}, &purged, &until)
	})
	if err == nil {
		s.purges.ended(until)
	}
	return purged, err
}
