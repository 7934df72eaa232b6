package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// journal records which messages of a lane are being sent. It returns the lease if the lease is still valid.
func (w *worker) journal(lease storage.Lease, suspects ...storage.Suspect) (held []storage.Lease) {
	w.Helper()
	w.do("write journal", func(ctx context.Context) (err error) {
		held, err = w.journaler().WriteJournal(ctx, w.name, []storage.Journal{{Lease: lease, Suspects: suspects}})
		return err
	})
	return held
}

// The next holder of a lane gets the journal that the last holder wrote. It gets no journal if the last
// holder released the lane, or renewed it with Calm after writing the journal. Other relays can't write
// the journal.
func journalsAreKept(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	suspects := []storage.Suspect{{ID: 1 << 40, Check: 1<<32 - 1, Crashes: 2, Alone: true}, {ID: 7}}
	a.acquire(storage.Lanes, short)
	for lane := range 5 {
		a.journal(a.lease(lane), storage.Suspect{ID: 666})
		if held := a.journal(a.lease(lane), suspects...); !slices.Equal(held, []storage.Lease{a.lease(lane)}) {
			t.Errorf("WriteJournal for the lease %+v returned the leases %+v", a.lease(lane), held)
		}
	}
	a.journal(a.lease(1)) // no message is in flight any more
	a.renew(short, storage.Renewal{Lease: a.lease(2), Calm: true})
	a.release(storage.Renewal{Lease: a.lease(3)})
	for _, grant := range b.takeOver(storage.Lanes, short) {
		wantSuspects(t, grant, map[int][]storage.Suspect{0: suspects, 4: suspects}[grant.Lane])
	}
	wrong := storage.Suspect{ID: 666}
	foreign, stale := a.journal(b.lease(6), wrong), a.journal(a.lease(0), wrong)
	if held := slices.Concat(foreign, stale); len(held) != 0 {
		t.Errorf("relays without the lanes' leases wrote journals for %+v", held)
	}
	b.journal(b.lease(0), suspects[1])
	for _, grant := range c.takeOver(storage.Lanes, long) {
		if grant.Lane != 4 { // the second holder of lane 4 has written no journal
			wantSuspects(t, grant, map[int][]storage.Suspect{0: suspects[1:]}[grant.Lane])
		}
	}
}

func wantSuspects(t testing.TB, grant storage.Grant, want []storage.Suspect) {
	t.Helper()
	if !slices.Equal(grant.Suspects, want) {
		t.Errorf("lane %d was granted with the suspects %+v, want %+v", grant.Lane, grant.Suspects, want)
	}
}
