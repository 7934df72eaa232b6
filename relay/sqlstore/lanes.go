package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
	err := s.try(ctx, "acquire lanes of table", func() (err error) {
		grants, err = s.acquire(ctx, name, count, ttl)
		return err
	})
	return grants, err
}

func (s *Store) acquire(ctx context.Context, name string, count int, ttl time.Duration) (grants []relay.Grant, err error) {
	var grant relay.Grant
	var marks string
	var xid uint64
	began := s.horizon.before()
	err = all(ctx, s.db, s.dialect.Acquire(s.table, name, count, ttl), func() {
		// Marks that can't be read are none: everything is read again.
		grant.Marks = relay.Marks{}
		_ = json.Unmarshal([]byte(marks), &grant.Marks)
		grants = append(grants, grant)
	}, &grant.Lane, &grant.Fence, &marks, &grant.Crashes, &xid)
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
	var held []relay.Lease
	err := s.change(ctx, "renew lanes of table", renewals, &held, func(leases []dialect.Lease) dialect.Query {
		return s.dialect.Renew(s.table, name, leases, ttl)
	})
	return held, err
}

// Release implements [relay.LaneStore].
func (s *Store) Release(ctx context.Context, name string, renewals []relay.Renewal) error {
	var released []relay.Lease
	return s.change(ctx, "release lanes of table", renewals, &released, func(leases []dialect.Lease) dialect.Query {
		return s.dialect.Release(s.table, name, leases)
	})
}

func (s *Store) change(ctx context.Context, what string, renewals []relay.Renewal, held *[]relay.Lease, query func([]dialect.Lease) dialect.Query) error {
	if len(renewals) == 0 {
		return nil
	}
	leases, err := leasesOf(renewals)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, s.table, err)
	}
	return s.try(ctx, what, func() error {
		*held = nil
		var lease relay.Lease
		var xid uint64
		began := s.horizon.before()
		if err := all(ctx, s.db, query(leases), func() { *held = append(*held, lease) }, &lease.Lane, &lease.Fence, &xid); err != nil {
			return err
		}
		s.wrote(xid, began)
		slices.SortFunc(*held, func(a, b relay.Lease) int { return cmp.Compare(a.Lane, b.Lane) })
		return nil
	})
}

func leasesOf(renewals []relay.Renewal) ([]dialect.Lease, error) {
	leases := make([]dialect.Lease, len(renewals))
	for i, renewal := range renewals {
		marks, err := json.Marshal(renewal.Marks)
		if err != nil {
			return nil, err
		}
		leases[i] = dialect.Lease{Lane: renewal.Lane, Fence: renewal.Fence, Marks: string(marks), Calm: renewal.Calm}
	}
	slices.SortFunc(leases, func(a, b dialect.Lease) int { return cmp.Compare(a.Lane, b.Lane) })
	return leases, nil
}
