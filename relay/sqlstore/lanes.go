package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// Acquire implements [relay.LaneStore].
func (s *Store) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]relay.Grant, error) {
	if count <= 0 {
		return nil, nil
	}
	var grants []relay.Grant
	err := s.write(ctx, "acquire lanes of table", func() (err error) {
		grants, err = s.acquire(ctx, name, count, ttl)
		return err
	})
	return grants, err
}

func (s *Store) acquire(ctx context.Context, name string, count int, ttl time.Duration) (grants []relay.Grant, err error) {
	var grant relay.Grant
	var marks, written text
	var xid uint64
	began := s.horizon.before()
	err = s.answer(ctx, s.dialect.Acquire(s.table, name, count, ttl), func(db querier, query dialect.Query) (lanes []int64, err error) {
		err = all(ctx, db, query, func() {
			// Marks that can't be read are none: everything is read again.
			grant.Marks = relay.Marks{}
			_ = json.Unmarshal([]byte(marks), &grant.Marks)
			journal := readJournal(written)
			grant.Suspects, grant.Tickets = journal.Suspects, journal.Tickets
			grants, lanes = append(grants, grant), append(lanes, int64(grant.Lane))
		}, &grant.Lane, &grant.Fence, &marks, &grant.Crashes, &written, &xid)
		return lanes, err
	})
	if err != nil {
		return nil, err
	}
	s.wrote(xid, began)
	slices.SortFunc(grants, func(a, b relay.Grant) int { return cmp.Compare(a.Lane, b.Lane) })
	return grants, nil
}

// wrote tells the horizon of a transaction of ours, if it had a number.
func (s *Store) wrote(xid uint64, began token) {
	if xid != 0 {
		s.horizon.wrote(xid, began)
	}
}

// Renew implements [relay.LaneStore].
func (s *Store) Renew(ctx context.Context, name string, renewals []relay.Renewal, ttl time.Duration) ([]relay.Lease, error) {
	return s.inEpochs(renewals, func(epoch string, leases []dialect.Lease) ([]relay.Lease, error) {
		return s.change(ctx, "renew lanes of table", s.dialect.Renew(s.table, name, epoch, leases, ttl), len(leases))
	})
}

// Release implements [relay.LaneStore].
func (s *Store) Release(ctx context.Context, name string, renewals []relay.Renewal) error {
	_, err := s.inEpochs(renewals, func(epoch string, leases []dialect.Lease) ([]relay.Lease, error) {
		return s.change(ctx, "release lanes of table", s.dialect.Release(s.table, name, epoch, leases), len(leases))
	})
	return err
}

// inEpochs makes a change for the renewals of each epoch, of which there is one
// unless another server has answered just now.
func (s *Store) inEpochs(renewals []relay.Renewal, change func(epoch string, leases []dialect.Lease) ([]relay.Lease, error)) (held []relay.Lease, err error) {
	rest := slices.Clone(renewals)
	for len(rest) > 0 {
		epoch := rest[0].Epoch
		other := func(r relay.Renewal) bool { return r.Epoch != epoch }
		leases, err := leasesOf(slices.DeleteFunc(slices.Clone(rest), other))
		if err != nil {
			return nil, err
		}
		some, err := change(epoch, leases)
		if err != nil {
			return nil, err
		}
		held = append(held, some...)
		rest = slices.DeleteFunc(rest, func(r relay.Renewal) bool { return !other(r) })
	}
	slices.SortFunc(held, func(a, b relay.Lease) int { return cmp.Compare(a.Lane, b.Lane) })
	return held, nil
}

// change runs a change of so many lanes and returns the leases that held.
func (s *Store) change(ctx context.Context, what string, steps dialect.Steps, count int) (held []relay.Lease, err error) {
	if count == 0 {
		return nil, nil
	}
	err = s.write(ctx, what, func() error {
		held = nil
		var lease relay.Lease
		var xid uint64
		began := s.horizon.before()
		err := s.answer(ctx, steps, func(db querier, query dialect.Query) (lanes []int64, err error) {
			err = all(ctx, db, query, func() { held, lanes = append(held, lease), append(lanes, int64(lease.Lane)) }, &lease.Lane, &lease.Fence, &xid)
			return lanes, err
		})
		if err != nil {
			return err
		}
		s.wrote(xid, began)
		slices.SortFunc(held, func(a, b relay.Lease) int { return cmp.Compare(a.Lane, b.Lane) })
		return nil
	})
	return held, err
}

func byLane(a, b dialect.Lease) int { return cmp.Compare(a.Lane, b.Lane) }

func leasesOf(renewals []relay.Renewal) ([]dialect.Lease, error) {
	leases := make([]dialect.Lease, len(renewals))
	for i, renewal := range renewals {
		marks, err := json.Marshal(renewal.Marks)
		if err != nil {
			return nil, err
		}
		leases[i] = dialect.Lease{Lane: renewal.Lane, Fence: renewal.Fence, Marks: string(marks), Calm: renewal.Calm}
	}
	slices.SortFunc(leases, byLane)
	return leases, nil
}
