package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
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

func (s *Store) acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]relay.Grant, error) {
	began := s.horizon.before()
	grants, xid, err := s.backend.Acquire(ctx, name, count, ttl)
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
	return s.inEpochs(renewals, func(epoch string, leases []backend.Lease) ([]relay.Lease, error) {
		return s.change(ctx, "renew lanes of table", leases, func() ([]relay.Lease, uint64, error) {
			return s.backend.ChangeLeases(ctx, backend.LeaseChange{Kind: backend.Renew, Relay: name, Epoch: epoch, TTL: ttl}, leases)
		})
	})
}

// Release implements [relay.LaneStore].
func (s *Store) Release(ctx context.Context, name string, renewals []relay.Renewal) error {
	_, err := s.inEpochs(renewals, func(epoch string, leases []backend.Lease) ([]relay.Lease, error) {
		return s.change(ctx, "release lanes of table", leases, func() ([]relay.Lease, uint64, error) {
			return s.backend.ChangeLeases(ctx, backend.LeaseChange{Kind: backend.Release, Relay: name, Epoch: epoch}, leases)
		})
	})
	return err
}

// inEpochs makes a change for the renewals of each epoch, of which there is one
// unless another server has answered just now.
func (s *Store) inEpochs(renewals []relay.Renewal, change func(epoch string, leases []backend.Lease) ([]relay.Lease, error)) (held []relay.Lease, err error) {
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

// change runs a change of leases and returns those that held.
func (s *Store) change(ctx context.Context, what string, leases []backend.Lease, change func() (held []relay.Lease, xid uint64, err error)) (held []relay.Lease, err error) {
	if len(leases) == 0 {
		return nil, nil
	}
	err = s.write(ctx, what, func() error {
		began := s.horizon.before()
		some, xid, err := change()
		if err != nil {
			return err
		}
		s.wrote(xid, began)
		held = some
		slices.SortFunc(held, func(a, b relay.Lease) int { return cmp.Compare(a.Lane, b.Lane) })
		return nil
	})
	return held, err
}

func byLane(a, b backend.Lease) int { return cmp.Compare(a.Lane, b.Lane) }

func leasesOf(renewals []relay.Renewal) ([]backend.Lease, error) {
	leases := make([]backend.Lease, len(renewals))
	for i, renewal := range renewals {
		marks, err := json.Marshal(renewal.Marks)
		if err != nil {
			return nil, err
		}
		leases[i] = backend.Lease{Lease: renewal.Lease, Marks: string(marks), Calm: renewal.Calm}
	}
	slices.SortFunc(leases, byLane)
	return leases, nil
}
