package storetest

import (
	"reflect"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A renewed lease ends at the time that the renewal sets, and not at its original end.
func renewExtends(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.acquire(storage.Lanes, short)
	kept := storage.Renewal{Lease: a.lease(5)}
	if held := a.renew(long, kept); !slices.Equal(held, []storage.Lease{kept.Lease}) {
		t.Fatalf("a renewal of the lease %+v renewed %+v", kept.Lease, held)
	}
	for _, grant := range b.takeOver(storage.Lanes-1, long) {
		if grant.Lane == 5 {
			t.Errorf("lane 5 was taken over although its lease was renewed for %v", long)
		}
	}
	if late := b.acquire(storage.Lanes, long); len(late) != 0 {
		t.Errorf("%+v was taken over although its lease was renewed for %v", late, long)
	}
}

// An expired lease that no relay has taken over is renewed like any other.
func renewAfterExpiry(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.acquire(storage.Lanes, short)
	taken := b.takeOver(1, long)[0] // so all leases of relay a have ended
	var renewals []storage.Renewal
	for lane := range storage.Lanes {
		renewals = append(renewals, storage.Renewal{Lease: a.lease(lane)})
	}
	held := a.renew(long, renewals...)
	if len(held) != storage.Lanes-1 || slices.Contains(held, a.lease(taken.Lane)) {
		t.Errorf("a renewal of %d expired leases, one of which had been taken over, renewed %d leases", len(renewals), len(held))
	}
	if late := b.acquire(storage.Lanes, long); len(late) != 0 {
		t.Errorf("took over %d lanes after they had been renewed", len(late))
	}
}

// Only the holder can renew a lane. A renewal by a former holder, with a wrong fence or with a
// wrong name is refused, and its marks are not stored.
func onlyTheHolderRenews(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	a.acquire(storage.Lanes, short)
	b.takeOver(storage.Lanes, short)
	right, wrong := storage.Marks{Main: 1}, storage.Marks{Main: 666}
	stale := storage.Renewal{Lease: a.lease(3), Marks: wrong}
	ahead := storage.Renewal{Lease: storage.Lease{Lane: 3, Fence: b.fences[3] + 1}, Marks: wrong}
	foreign := storage.Renewal{Lease: b.lease(3), Marks: wrong}
	if held := slices.Concat(a.renew(long, stale), b.renew(long, ahead), a.renew(long, foreign)); len(held) != 0 {
		t.Errorf("relays renewed leases that they don't hold: %+v", held)
	}
	own := storage.Renewal{Lease: b.lease(5), Marks: right}
	if held := b.renew(short, stale, own, ahead); !slices.Equal(held, []storage.Lease{own.Lease}) {
		t.Errorf("a renewal of the relay's own lease and of two wrong leases renewed %+v, want only its own lease", held)
	}
	for _, grant := range c.takeOver(storage.Lanes, long) {
		wantMarks(t, grant, map[int]storage.Marks{5: right}[grant.Lane])
	}
}

// Only the holder can release a lane.
func onlyTheHolderReleases(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	a.acquire(storage.Lanes, short)
	b.takeOver(storage.Lanes, short)
	wrong := storage.Marks{Main: 666}
	a.release(storage.Renewal{Lease: a.lease(3), Marks: wrong}, storage.Renewal{Lease: b.lease(4), Marks: wrong})
	b.release(storage.Renewal{Lease: a.lease(5), Marks: wrong})
	grants := c.takeOver(storage.Lanes, long)
	wantCrashes(t, grants, 2) // no lane was released
	for _, grant := range grants {
		wantMarks(t, grant, storage.Marks{})
	}
}

// A lane is granted with the marks that the last renewal or release stored.
func marksAreKept(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	for _, grant := range a.acquire(storage.Lanes, short) {
		if !reflect.DeepEqual(grant.Marks, storage.Marks{}) {
			t.Fatalf("a new lane has the marks %+v", grant.Marks)
		}
	}
	renewed := storage.Marks{Routes: `f"1`, Main: 1 << 40, Sinks: map[string]int64{"kafka": 7, "https://x": 0}}
	a.renew(short, storage.Renewal{Lease: a.lease(1), Marks: renewed})
	for _, grant := range b.takeOver(storage.Lanes, long) {
		wantMarks(t, grant, map[int]storage.Marks{1: renewed}[grant.Lane])
	}
	released := storage.Marks{Routes: "f2", Main: 12}
	b.release(storage.Renewal{Lease: b.lease(1), Marks: released}, storage.Renewal{Lease: b.lease(2), Marks: renewed})
	grants := c.acquire(storage.Lanes, long)
	if len(grants) != 2 {
		t.Fatalf("2 lanes were released, but %d were granted", len(grants))
	}
	for _, grant := range grants {
		wantMarks(t, grant, map[int]storage.Marks{1: released, 2: renewed}[grant.Lane])
	}
}

func wantMarks(t testing.TB, grant storage.Grant, want storage.Marks) {
	t.Helper()
	if !reflect.DeepEqual(grant.Marks, want) {
		t.Errorf("lane %d was granted with the marks %+v, want %+v", grant.Lane, grant.Marks, want)
	}
}
