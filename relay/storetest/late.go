package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// reader reads all lanes repeatedly, and checks each row that the earlier pages did not have. The row's
// id must be above the safe ids of the earlier pages. If a higher id was read before, the row's id must
// also be above the LateAfter of its page.
type reader struct {
	*worker
	seen    map[int64]bool // rows of earlier pages
	highest int64          // the highest id in seen
	safeID  int64          // the highest safe id of earlier pages
}

func newReader(t testing.TB, table Table, name string) *reader {
	return &reader{worker: hire(t, table, name), seen: map[int64]bool{}}
}

// look reads a page of all lanes and compares it with the earlier pages.
func (r *reader) look() storage.Page {
	r.Helper()
	page := r.read(everything(), plenty, plentyBytes)
	for _, row := range page.Rows {
		if !r.seen[row.ID] {
			r.met(row.ID, page.LateAfter)
		}
	}
	for _, row := range page.Rows {
		r.seen[row.ID] = true
		r.highest = max(r.highest, row.ID)
	}
	r.safeID = max(r.safeID, page.SafeID)
	return page
}

// met checks a row that the earlier pages did not have.
func (r *reader) met(id, lateAfter int64) {
	r.Helper()
	if id <= r.safeID {
		r.Errorf("row %d appeared at or below the safe id %d of an earlier page", id, r.safeID)
	}
	if id <= r.highest && (lateAfter < 0 || lateAfter >= id) {
		r.Errorf("row %d appeared below row %d, which had been read; the page's LateAfter is %d", id, r.highest, lateAfter)
	}
}

// A transaction may commit after higher ids were read and settled. The transaction's row must not be
// lost: a page reports that rows may have appeared, a scan finds the row, and no earlier safe id was at
// or above the row's id.
func lateCommit(t testing.TB, table Table) {
	a := holder(t, table, "a")
	r := &reader{worker: a, seen: map[int64]bool{}}
	slow := table.Begin(t)
	late := slow.Insert(outbox.Message{Topic: "late"})
	for range 3 {
		write(t, table, plain(10)...)
		page := r.look()
		if len(page.Rows) != 10 {
			t.Fatalf("%d rows are pending, want 10", len(page.Rows))
		}
		if page.SafeID >= late {
			t.Errorf("the safe id is %d, but row %d isn't committed yet", page.SafeID, late)
		}
		a.mustSettle(a.allAs(storage.StateDone, page.Rows)...)
	}
	slow.Commit()
	wantIDs(t, "scanned from the safe id", ids(a.scan(after(r.safeID), nil)), []int64{late})
	wantIDs(t, "read", ids(r.look().Rows), []int64{late})
	a.mustSettle(a.as(storage.StateDone, a.row(late)))
	r.wantSafeID(r.highest)
}

// wantSafeID waits for a page whose safe id is at least this id and that reports no late rows below it.
func (r *reader) wantSafeID(id int64) {
	r.Helper()
	eventually(r, "the safe id reaches the last row", func() bool {
		page := r.look()
		return page.SafeID >= id && (page.LateAfter < 0 || page.LateAfter >= id)
	})
}

func after(id int64) []storage.Position {
	positions := everything()
	for i := range positions {
		positions[i].After = id
	}
	return positions
}

// Transaction T1 inserts a row of key A and stays open. T2 inserts a row and commits, and the relay
// reads. Then T1 commits, and another transaction commits a second row of key A. The page with that row
// must report T1's row as late. The check varies which transaction is first. If T2 is first, a store that
// compared snapshots only by xmax would have a safe id above T1's row, and would lose the key's order.
func lateCommitWithinAKey(t testing.TB, table Table) {
	for range 3 { // repeated, because other transactions on the server affect the result
		for _, first := range []string{"T1", "T2", "an insert by T2"} {
			for looks := 1; looks <= 2; looks++ {
				lateWithin(t, table, first, looks)
			}
		}
	}
}

// A read without positions returns no rows, but still reports late rows, even after pages without
// rows. The next read returns new rows.
func lateRowsWithoutPositions(t testing.TB, table Table) {
	r := newReader(t, table, "reader")
	slow := table.Begin(t)
	late := slow.Insert(outbox.Message{Topic: "late"})
	write(t, table, plain(3)...)
	last := highestOf(r.look().Rows)
	for range 2 {
		r.read(after(last), plenty, plentyBytes) // an empty page
	}
	slow.Commit()
	page := r.read(nil, plenty, plentyBytes)
	if len(page.Rows) > 0 || page.LateAfter < 0 || page.LateAfter >= late {
		t.Errorf("a read without positions returned %d rows and LateAfter %d, but row %d has appeared", len(page.Rows), page.LateAfter, late)
	}
	wantIDs(t, "scanned", ids(r.scan(after(page.LateAfter), func(c storage.Candidate) bool { return c.ID == late })), []int64{late})
	next := write(t, table, outbox.Message{Topic: "next"})
	wantIDs(t, "read after the last row", ids(r.read(after(last), plenty, plentyBytes).Rows), next)
}

func highestOf(rows []storage.Row) (id int64) {
	for _, row := range rows {
		id = max(id, row.ID)
	}
	return id
}

// lateWithin runs the events of lateCommitWithinAKey once. The argument `looks` is the number of pages
// that the reader reads before T1 commits.
func lateWithin(t testing.TB, table Table, first string, looks int) {
	r := newReader(t, table, "reader")
	t1, t2 := beginBoth(t, table, first)
	one := t1.Insert(outbox.Message{Topic: "t", Key: "A"})
	two := t2.Insert(outbox.Message{Topic: "t"})
	t2.Commit()
	for range looks {
		if page := r.look(); page.SafeID >= one {
			t.Errorf("%s first: the safe id is %d, but row %d isn't committed yet", first, page.SafeID, one)
		}
	}
	t1.Commit()
	three := write(t, table, outbox.Message{Topic: "t", Key: "A"})[0]
	if !(one < two && two < three) {
		t.Fatalf("the ids are %d, %d, %d, want them in ascending order", one, two, three)
	}
	// Like the engine, continue to read above the last row. The page's LateAfter must make the engine scan for the late row.
	page := r.read(after(two), plenty, plentyBytes)
	if !slices.Equal(ids(page.Rows), []int64{three}) || page.LateAfter < 0 || page.LateAfter >= one {
		t.Errorf("%s first: read rows %v with LateAfter %d, but row %d has appeared", first, ids(page.Rows), page.LateAfter, one)
	}
}

// beginBoth begins two transactions. The argument `first` names the transaction that begins first, or the
// insert by which T2 gets its transaction id before T1 begins.
func beginBoth(t testing.TB, table Table, first string) (t1, t2 Tx) {
	if first == "T1" {
		return table.Begin(t), table.Begin(t)
	}
	t2 = table.Begin(t)
	if first == "an insert by T2" {
		t2.Insert(outbox.Message{Topic: "t"})
	}
	return table.Begin(t), t2
}

// A transaction begins while a settlement waits for a lock. A store may learn from its
// settlements which transactions are open. This settlement shows only the transactions that were open
// when it began, so the safe id must stay below the row of the new transaction.
func lateCommitDuringASlowSettle(t testing.TB, table Table) {
	a := holder(t, table, "a")
	r := &reader{worker: a, seen: map[int64]bool{}}
	first := write(t, table, plain(1)...)[0]
	row := a.row(first)
	waiting, unlock := lockRow(t, table, first)
	settled := make(chan storage.Settled, 1)
	go func() {
		defer close(settled)
		settled <- settleOrReport(t, a, a.as(storage.StateDone, row))
	}()
	eventually(t, "the settlement waits for the row", waiting)
	slow := table.Begin(t)
	late := slow.Insert(outbox.Message{Topic: "late"})
	write(t, table, plain(3)...)
	r.look()
	unlock()
	<-settled
	for range 3 {
		if page := r.look(); page.SafeID >= late {
			t.Errorf("the safe id is %d, but row %d isn't committed yet", page.SafeID, late)
		}
		write(t, table, plain(3)...)
	}
	slow.Commit()
	r.look()
	r.wantSafeID(r.highest)
}

// The safe id rises above the ids of rolled-back transactions, whose rows never appear.
func gapsByRollbacks(t testing.TB, table Table) {
	r := newReader(t, table, "reader")
	var want []int64
	for range 5 {
		lost := table.Begin(t)
		lost.Insert(outbox.Message{Topic: "lost"})
		lost.Insert(outbox.Message{Topic: "lost", Key: "k"})
		r.look()
		lost.Rollback()
		want = append(want, write(t, table, keyed("k", 1)...)...)
		wantIDs(t, "read", ids(r.look().Rows), want)
	}
	r.wantSafeID(want[len(want)-1])
}

// A failed read must not lose the report of late rows: the next read reports all rows that have
// appeared since the last successful read.
func failedReadKeepsTheReport(t testing.TB, table Table) {
	r := newReader(t, table, "reader")
	slow := table.Begin(t)
	slow.Insert(outbox.Message{Topic: "late"})
	write(t, table, plain(3)...)
	r.look()
	slow.Commit()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := r.store.Read(ended, storage.ReadRequest{Positions: everything(), Limit: plenty, MaxBytes: plentyBytes}); err == nil {
		t.Error("a read with an ended context returned no error")
	}
	r.look()
}

// If two relays read one table, from one process or from two, a late row is reported to both.
func everyReaderGetsTheReport(t testing.TB, table Table) {
	one, two := newReader(t, table, "one"), newReader(t, table, "two")
	slow := table.Begin(t)
	slow.Insert(outbox.Message{Topic: "late"})
	write(t, table, plain(3)...)
	one.look()
	two.look()
	slow.Commit()
	one.look()
	one.look()
	two.look()
}
