package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A relay that has lost a lane can't settle the lane's rows to any state. Each such settlement is
// counted as fenced.
func oldFenceChangesNothing(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.acquire(storage.Lanes, long)
	pending := write(t, table, plain(4)...)
	held := write(t, table, plain(4)...)
	for _, id := range held {
		a.mustSettle(a.as(storage.StateRetry, a.row(id)))
	}
	a.renewAll(short)
	rows := slices.Concat(a.pending(), a.due())
	if len(rows) != 8 {
		t.Fatalf("%d rows are pending or due, want 8", len(rows))
	}
	b.takeOver(storage.Lanes, long)
	for _, state := range []storage.State{storage.StateDone, storage.StateRetry, storage.StateError, storage.StateScheduled} {
		if got, want := a.settle(a.allAs(state, rows)...), (storage.Settled{Fenced: 8}); got != want {
			t.Errorf("settled as %s under a lost lease: %+v, want %+v", state, got, want)
		}
		b.wantState(storage.StatePending, pending...)
		b.wantState(storage.StateRetry, held...)
	}
	b.mustSettle(b.allAs(storage.StateDone, rows)...)
}

func (w *worker) renewAll(ttl time.Duration) {
	w.Helper()
	var renewals []storage.Renewal
	for lane := range w.fences {
		renewals = append(renewals, storage.Renewal{Lease: w.lease(lane)})
	}
	if held := w.renew(ttl, renewals...); len(held) != len(renewals) {
		w.Fatalf("%s tried to renew %d leases, but the store renewed %d", w.name, len(renewals), len(held))
	}
}

// A relay that has leased a lane again may settle outcomes of the old lease together with new ones,
// even of the same row. Only outcomes of the new lease change rows.
func batchWithOldAndCurrentLease(t testing.TB, table Table) {
	a := hire(t, table, "a")
	write(t, table, plain(8)...)
	a.acquire(storage.Lanes, short)
	rows := a.pending()
	old := a.allAs(storage.StateRetry, rows)
	a.takeOver(storage.Lanes, long)
	var settlements []storage.Settlement
	for i, settlement := range a.allAs(storage.StateDone, rows) {
		if i%2 == 0 {
			settlements = append(settlements, old[i], settlement)
		} else {
			settlements = append(settlements, settlement, old[i])
		}
	}
	if got, want := a.settle(settlements...), (storage.Settled{Changed: 8, Fenced: 8}); got != want {
		t.Errorf("settled under two fences: %+v, want %+v", got, want)
	}
	a.wantState(storage.StateDone, ids(rows)...)
}

// A fence that was never granted is rejected like an old one.
func wrongFenceChangesNothing(t testing.TB, table Table) {
	a := holder(t, table, "a")
	id := write(t, table, plain(1)...)[0]
	settlement := a.as(storage.StateDone, a.row(id))
	for _, by := range []int64{-1, 1} {
		wrong := settlement
		wrong.Fence += by
		if got, want := a.settle(wrong), (storage.Settled{Fenced: 1}); got != want {
			t.Errorf("settled with a fence that differs by %d: %+v, want %+v", by, got, want)
		}
	}
	a.wantState(storage.StatePending, id)
}

// A batch may settle rows of currently leased lanes, rows of lost lanes, and rows that no longer exist.
// These rows are counted as changed, fenced and missing, respectively.
func batchWithCurrentAndLostLeases(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.acquire(storage.Lanes/2, long)
	kept := len(a.fences)
	a.acquire(storage.Lanes, short)
	fill(t, table, plain(2*storage.Lanes)...)
	rows := a.pending()
	lost := map[int]bool{}
	for _, grant := range b.takeOver(storage.Lanes-kept, long) {
		lost[grant.Lane] = true
	}
	gone := slices.IndexFunc(rows, func(row storage.Row) bool { return !lost[row.Lane] })
	a.mustSettle(a.as(storage.StateDone, rows[gone]))
	want := storage.Settled{Missing: 1, Changed: -1}
	for _, row := range rows {
		if lost[row.Lane] {
			want.Fenced++
		} else {
			want.Changed++
		}
	}
	if got := a.settle(a.allAs(storage.StateDone, rows)...); got != want {
		t.Errorf("settled %d rows, 1 of them gone, with %d lost lanes: %+v, want %+v", len(rows), len(lost), got, want)
	}
	for _, row := range b.pending() {
		if !lost[row.Lane] {
			t.Errorf("row %d was settled, but is still pending", row.ID)
		}
	}
}

// A settlement begins before a takeover, and waits for a locked row while the takeover runs. Depending
// on the store, the takeover waits for the settlement or skips the lane, or the settlement is fenced.
// In each case the old holder must not change a row that the new holder has read.
func settleDuringTakeover(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.acquire(storage.Lanes, long)
	id := write(t, table, keyed("k", 1)...)[0]
	row := a.row(id)
	a.renewAll(short)
	waiting, unlock := lockRow(t, table, id)
	settled := make(chan storage.Settled, 1)
	go func() {
		defer close(settled)
		settled <- settleOrReport(t, a, a.as(storage.StateDone, row))
	}()
	eventually(t, "the settlement waits for the row", waiting)
	defer time.AfterFunc(8*short, unlock).Stop() // in some stores the takeover waits for the settlement, which waits for this row
	b.takeOverPassing(row.Lane, unlock)
	read := slices.Contains(ids(b.pending()), id)
	unlock()
	counts := <-settled
	if counts.Changed+counts.Fenced != 1 {
		t.Fatalf("the settlement that waited: %+v, want one row changed or fenced", counts)
	}
	if changed := counts.Changed == 1; changed == read {
		t.Errorf("the old holder changed the row: %t; the new holder read the row: %t; want exactly one of the two", changed, read)
	}
}

// takeOverPassing takes over all lanes. Whenever only the given lane is left, it calls the
// function allOthers.
func (w *worker) takeOverPassing(lane int, allOthers func()) {
	w.Helper()
	eventually(w, w.name+" takes over all lanes", func() bool {
		w.acquire(storage.Lanes, long)
		_, there := w.fences[lane]
		if !there && len(w.fences) == storage.Lanes-1 {
			allOthers()
		}
		return there
	})
}

func settleOrReport(t testing.TB, w *worker, settlements ...storage.Settlement) (counts storage.Settled) {
	if err := again(t, func(ctx context.Context) (err error) {
		counts, err = w.store.Settle(ctx, w.name, true, settlements)
		return err
	}); err != nil {
		t.Errorf("settle by %s: %v", w.name, err)
	}
	return counts
}

// Settlements race takeovers at random times. In each round the new holder reads exactly the rows
// that the old holder hasn't changed.
func settleRacesTakeover(t testing.TB, table Table) {
	const rounds, ttl = 20, 15 * time.Millisecond
	a, b := hire(t, table, "a"), hire(t, table, "b")
	for range rounds {
		a.takeOver(storage.Lanes, ttl)
		write(t, table, keyed("k", 3)...)
		rows := a.pending()
		settled := make(chan storage.Settled, 1)
		go func() {
			defer close(settled)
			time.Sleep(rand.N(2 * ttl))
			settled <- settleOrReport(t, a, a.allAs(storage.StateDone, rows)...)
		}()
		b.takeOver(storage.Lanes, long)
		read := len(b.pending())
		counts := <-settled
		if counts.Changed+counts.Fenced != len(rows) || read != counts.Fenced {
			t.Fatalf("the new holder read %[2]d of %[1]d rows; the old holder's settlement: %+[3]v", len(rows), read, counts)
		}
		b.mustSettle(b.allAs(storage.StateDone, b.pending())...)
		b.releaseAll()
	}
}

func (w *worker) releaseAll() {
	w.Helper()
	var renewals []storage.Renewal
	for lane := range w.fences {
		renewals = append(renewals, storage.Renewal{Lease: w.lease(lane)})
	}
	w.release(renewals...)
}
