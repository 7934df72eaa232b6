package storetest

import (
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A page has the same epoch as the heartbeat. Its last id is at least the id of each existing row,
// even in a page that begins above all rows.
func pageHasTheEpoch(t testing.TB, table Table) {
	a, b := holder(t, table, "a"), hire(t, table, "b")
	written := write(t, table, plain(3)...)
	epoch := a.beat(storage.ByLanes, long).Epoch
	for range 2 { // the second read may use a cheaper query
		page := a.read(everything(), plenty, plentyBytes)
		if page.Epoch != epoch {
			t.Errorf("a page has the epoch %q, and the heartbeat has %q", page.Epoch, epoch)
		}
		if last := written[len(written)-1]; page.LastID < last {
			t.Errorf("a page has the last id %d, but row %d exists", page.LastID, last)
		}
		a.mustSettle(a.allAs(storage.StateDone, page.Rows)...)
	}
	last, above := written[len(written)-1], everything()
	for i := range above {
		above[i].After = last
	}
	if page := b.read(above, plenty, plentyBytes); page.LastID < last {
		t.Errorf("a page that begins above row %d has the last id %d", last, page.LastID)
	}
}

// If a renewal or release has marks of another epoch, the store ignores these marks, but still renews or
// releases the lease.
func marksOfAnotherEpoch(t testing.TB, table Table) {
	a, b := holder(t, table, "a"), hire(t, table, "b")
	epoch := a.beat(storage.ByLanes, long).Epoch
	if epoch == "" {
		return // a store that never loses commits has no epoch
	}
	right, wrong := storage.Marks{Main: 1}, storage.Marks{Main: 666}
	a.renew(long, storage.Renewal{Lease: a.lease(3), Marks: right, Epoch: epoch}, storage.Renewal{Lease: a.lease(4), Marks: right, Epoch: epoch})
	if held := a.renew(long, storage.Renewal{Lease: a.lease(3), Marks: wrong, Epoch: "another"}, storage.Renewal{Lease: a.lease(4), Marks: right, Epoch: epoch}); len(held) != 2 {
		t.Errorf("%d leases were renewed, want 2", len(held))
	}
	a.release(storage.Renewal{Lease: a.lease(3), Marks: wrong, Epoch: "another"}, storage.Renewal{Lease: a.lease(4), Marks: right, Epoch: epoch})
	grants := b.acquire(2, long)
	if len(grants) != 2 {
		t.Fatalf("%d lanes were acquired, want 2", len(grants))
	}
	for _, grant := range grants {
		if grant.Marks.Main != right.Main {
			t.Errorf("lane %d has the mark %d, want %d", grant.Lane, grant.Marks.Main, right.Main)
		}
	}
}
