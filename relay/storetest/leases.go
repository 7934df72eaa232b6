package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A lease that isn't renewed expires, even if its relay sends heartbeats and renews another lease.
func leaseExpiresWhileItsRelayIsAlive(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.beat(storage.ByLanes, long)
	a.acquire(2, short)
	kept, left := storage.Renewal{Lease: a.lease(a.anyLane(0))}, storage.Renewal{Lease: a.lease(a.anyLane(1))}
	if held := a.renew(short, kept, left); len(held) != 2 {
		t.Fatalf("a renewal of 2 leases renewed %+v", held)
	}
	if held := a.renew(long, kept); !slices.Equal(held, []storage.Lease{kept.Lease}) {
		t.Fatalf("a renewal of the lease %+v renewed %+v", kept.Lease, held)
	}
	a.beat(storage.ByLanes, long)
	for _, grant := range b.takeOver(storage.Lanes-1, long) {
		if grant.Lane == kept.Lane {
			t.Errorf("lane %d was taken over although its lease was renewed for %v", grant.Lane, long)
		}
	}
	if held := a.renew(long, kept, left); !slices.Equal(held, []storage.Lease{kept.Lease}) {
		t.Errorf("after the takeover of lane %d, the relay renewed %+v", left.Lane, held)
	}
}

// A relay that restarts with the same name has none of its predecessor's leases and doesn't renew
// them. The old leases expire. If the predecessor is still alive, it can neither renew its leases
// nor settle rows.
func restartedRelayHasNoLeases(t testing.TB, table Table) {
	before, after, b := hire(t, table, "a"), hire(t, table, "a"), hire(t, table, "b")
	before.beat(storage.ByLanes, long)
	before.takeOver(storage.Lanes, short)
	row := write(t, table, keyed("k", 1)...)[0]
	old := before.row(row)
	lane := old.Lane
	before.renewAll(short)

	after.beat(storage.ByLanes, long)
	own := after.takeOver(1, long)[0] // all leases of the predecessor have ended now, because they were renewed together
	if held := after.renew(long, storage.Renewal{Lease: own.Lease}); len(held) != 1 {
		t.Fatalf("a renewal of the lease %+v renewed %+v", own.Lease, held)
	}
	for _, grant := range b.takeOver(storage.Lanes-1, long) {
		if grant.Lane == own.Lane {
			t.Errorf("lane %d was taken over although its lease was renewed for %v", own.Lane, long)
		}
	}
	for l := range storage.Lanes {
		if held := before.renew(long, storage.Renewal{Lease: before.lease(l)}); len(held) != 0 {
			t.Errorf("the predecessor renewed its lease of lane %d, which another relay has leased", l)
		}
	}
	if got, want := before.settle(before.as(storage.StateDone, old)), (storage.Settled{Fenced: 1}); got != want {
		t.Errorf("the predecessor settled in lane %d under its old lease: %+v, want %+v", lane, got, want)
	}
	if held := after.renew(long, storage.Renewal{Lease: own.Lease}); len(held) != 1 {
		t.Errorf("the restarted relay lost its lease")
	}
}

// If a relay deregisters while it has leases, they end at their normal time and not earlier, because
// the relay may still be sending.
func deregisteringKeepsLeases(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.beat(storage.ByLanes, long)
	a.acquire(2, long)
	kept, ends := storage.Renewal{Lease: a.lease(a.anyLane(0))}, storage.Renewal{Lease: a.lease(a.anyLane(1))}
	a.renew(short, kept, ends)
	a.renew(long, kept)
	a.leave()
	for _, grant := range b.takeOver(storage.Lanes-1, long) {
		if grant.Lane == kept.Lane {
			t.Errorf("lane %d was taken over after its relay had deregistered, although its lease lasts for %v", grant.Lane, long)
		}
	}
	if late := b.acquire(storage.Lanes, long); len(late) != 0 {
		t.Errorf("%+v was taken over after its relay had deregistered, although its lease lasts for %v", late, long)
	}
}

// If a renewal of expired leases races a takeover, no lane is both renewed and taken over.
func renewalRacesTakeover(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.beat(storage.ByLanes, long)
	for range 20 {
		a.acquire(storage.Lanes, long)
		a.renewAll(-time.Second) // the leases have expired now
		var renewals []storage.Renewal
		for lane := range storage.Lanes {
			renewals = append(renewals, storage.Renewal{Lease: a.lease(lane)})
		}
		var held []storage.Lease
		var granted []storage.Grant
		var both sync.WaitGroup
		race := func(what string, call func(ctx context.Context) error) {
			both.Go(func() {
				if err := again(t, call); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		race("renew during a takeover", func(ctx context.Context) (err error) {
			held, err = a.store.Renew(ctx, a.name, renewals, long)
			return err
		})
		race("take over during a renewal", func(ctx context.Context) (err error) {
			granted, err = b.store.Acquire(ctx, b.name, storage.Lanes, long)
			return err
		})
		both.Wait()
		taken := map[int]bool{}
		for _, grant := range granted {
			taken[grant.Lane], b.fences[grant.Lane] = true, grant.Fence
		}
		for _, lease := range held {
			if taken[lease.Lane] {
				t.Fatalf("lane %d was renewed by one relay and granted to another", lease.Lane)
			}
		}
		a.releaseAll()
		b.releaseAll()
	}
}
