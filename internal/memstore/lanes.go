package memstore

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Acquire implements [storage.LaneStore]. It leases the lowest free lanes, and skips lanes that
// a settlement has locked.
func (s *Store) Acquire(ctx context.Context, name string, count int, ttl time.Duration) (grants []storage.Grant, err error) {
	err = s.do(ctx, OpAcquire, func() error {
		for i := range s.db.lanes {
			if len(grants) < count && s.db.lanes[i].free(s.db.now()) {
				grants = append(grants, s.db.grant(i, name, ttl))
			}
		}
		return nil
	})
	return grants, err
}

func (l *lane) free(now time.Time) bool {
	return l.settling == 0 && (l.owner == "" || l.until.Before(now))
}

func (db *DB) grant(i int, name string, ttl time.Duration) storage.Grant {
	l := &db.lanes[i]
	if l.owner != "" {
		l.crashes++
	}
	l.owner, l.fence, l.until = name, l.fence+1+rand.Int64N(storage.MostFenceStep), db.now().Add(ttl)
	db.note(Change{Op: OpAcquire, Relay: name, Lane: i, Fence: l.fence})
	return storage.Grant{
		Lease:   storage.Lease{Lane: i, Fence: l.fence},
		Marks:   ownMarks(l.marks),
		Crashes: l.crashes,

		Suspects: l.suspects,
		Batches:  l.batchRefs,
	}
}

// Renew implements [storage.LaneStore]. Renew also renews an expired lease if no relay has taken
// the lane over.
func (s *Store) Renew(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) (held []storage.Lease, err error) {
	err = s.do(ctx, OpRenew, func() error {
		for _, renewal := range renewals {
			l := s.db.leased(name, renewal.Lease)
			if l == nil {
				continue
			}
			l.until = s.db.now().Add(ttl)
			l.mark(renewal, s.db.epoch())
			if renewal.Calm {
				l.crashes, l.suspects, l.batchRefs = 0, nil, nil
			}
			held = append(held, renewal.Lease)
			s.db.note(Change{Op: OpRenew, Relay: name, Lane: renewal.Lane, Fence: renewal.Fence})
		}
		return nil
	})
	return held, err
}

// Release implements [storage.LaneStore].
func (s *Store) Release(ctx context.Context, name string, renewals []storage.Renewal) error {
	return s.do(ctx, OpRelease, func() error {
		for _, renewal := range renewals {
			l := s.db.leased(name, renewal.Lease)
			if l == nil {
				continue
			}
			l.owner, l.until, l.crashes, l.suspects, l.batchRefs = "", time.Time{}, 0, nil, nil
			l.mark(renewal, s.db.epoch())
			s.db.note(Change{Op: OpRelease, Relay: name, Lane: renewal.Lane, Fence: renewal.Fence})
		}
		return nil
	})
}

// leased returns the lease's lane if the relay still has the lease, and otherwise nil.
func (db *DB) leased(name string, lease storage.Lease) *lane {
	if lease.Lane < 0 || lease.Lane >= storage.Lanes {
		return nil
	}
	if l := &db.lanes[lease.Lane]; l.owner == name && l.fence == lease.Fence {
		return l
	}
	return nil
}

// mark stores the marks if they were computed in this epoch.
func (l *lane) mark(renewal storage.Renewal, epoch string) {
	if renewal.Epoch == "" || renewal.Epoch == epoch {
		l.marks = ownMarks(renewal.Marks)
	}
}

func ownMarks(marks storage.Marks) storage.Marks {
	marks.Sinks = maps.Clone(marks.Sinks)
	return marks
}
