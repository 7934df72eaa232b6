package storetest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A settlement changes a row once, and a later read doesn't return the row in its old state. Relays rely
// on this, because they may read a part of a lane twice, for example after dropping a page, or because
// the stored low-water mark was out of date.

// byID returns rows in the order of their ids.
func byID(rows []storage.Row) []storage.Row {
	return slices.SortedFunc(slices.Values(rows), func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
}

// Read and Scan return only pending rows, whatever the positions. Due returns only deferred rows that are
// due, and Pick returns no parked or delivered rows. This is still true after the settlements are repeated.
func readsLeaveOutSettledRows(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, plain(24)...)
	var settlements []storage.Settlement
	var pending, due, waiting []int64
	wantIDs(t, "scanned before the settlements", ids(a.scan(everything(), nil)), written)
	for i, row := range byID(a.pending()) {
		states := []storage.State{storage.StatePending, storage.StateDone, storage.StateError, storage.StateDiscarded, storage.StateRetry, storage.StateRetry}
		s := a.as(states[i%len(states)], row)
		switch {
		case s.State == storage.StatePending:
			pending = append(pending, row.ID)
			continue
		case i%len(states) == 4:
			due = append(due, row.ID)
		case s.State == storage.StateRetry:
			s.Delay = time.Hour
			waiting = append(waiting, row.ID)
		}
		settlements = append(settlements, s)
	}
	a.mustSettle(settlements...)
	compare := func(when string) {
		for _, after := range append([]int64{0}, written...) {
			positions := everything()
			for i := range positions {
				positions[i].After = after
			}
			want := slices.DeleteFunc(slices.Clone(pending), func(id int64) bool { return id <= after })
			wantIDs(t, "read "+when, ids(a.read(positions, plenty, plentyBytes).Rows), want)
			wantIDs(t, "scanned "+when, ids(a.scan(positions, nil)), want)
		}
		wantIDs(t, "due "+when, ids(a.due()), due)
		journaler, able := a.store.(storage.Journaler)
		if !able {
			return
		}
		var all []storage.RowID
		for _, lane := range lanes() {
			for _, id := range written {
				all = append(all, storage.RowID{Lane: lane, ID: id})
			}
		}
		var picked []storage.Row
		a.do("pick", func(ctx context.Context) (err error) {
			picked, err = journaler.Pick(ctx, all)
			return err
		})
		wantIDs(t, "picked "+when, ids(picked), slices.Sorted(slices.Values(slices.Concat(pending, due, waiting))))
	}
	compare("after the settlements")
	if got, want := a.settle(settlements...), (storage.Settled{Missing: len(settlements)}); got != want {
		t.Errorf("the same settlements again: %+v, want %+v", got, want)
	}
	compare("after the repeated settlements")
}

// A lane's next holder finds all unsettled rows above the mark of its grant, and no rows that the
// last holder settled above the mark. Settlements by the last holder after the takeover change
// nothing.
func nextHolderFindsUnsettledRows(t testing.TB, table Table) {
	a, b := holder(t, table, "a"), hire(t, table, "b")
	written := write(t, table, plain(6*storage.Lanes)...)
	var settlements []storage.Settlement
	var pending []int64
	left := map[int]storage.Row{} // the first unsettled row of each lane
	for i, row := range byID(a.pending()) {
		switch _, found := left[row.Lane]; {
		case i%2 == 0:
			settlements = append(settlements, a.as(storage.StateDone, row))
			continue
		case !found:
			left[row.Lane] = row
		}
		pending = append(pending, row.ID)
	}
	a.mustSettle(settlements...)
	var renewals []storage.Renewal
	for _, lane := range lanes() {
		mark := written[len(written)-1]
		if row, found := left[lane]; found {
			mark = row.ID - 1
		}
		renewals = append(renewals, storage.Renewal{Lease: a.lease(lane), Marks: storage.Marks{Main: mark}})
	}
	a.release(renewals...)
	var positions []storage.Position
	for _, grant := range b.takeOver(storage.Lanes, long) {
		positions = append(positions, storage.Position{Lane: grant.Lane, After: grant.Marks.Main})
	}
	found := b.read(positions, plenty, plentyBytes).Rows
	wantIDs(t, "read above the marks", ids(found), pending)
	wantIDs(t, "scanned above the marks", ids(b.scan(positions, nil)), pending)
	if got, want := a.settle(a.allAs(storage.StateDone, found)...), (storage.Settled{Fenced: len(found)}); got != want {
		t.Errorf("settled under a released lease: %+v, want %+v", got, want)
	}
	wantIDs(t, "read again", ids(b.read(positions, plenty, plentyBytes).Rows), pending)
}
