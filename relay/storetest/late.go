package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// reader reads everything, again and again, and checks what each page promises
// about the rows that weren't there yet.
type reader struct {
	*worker
	seen    map[int64]bool // rows of earlier pages
	highest int64          // of them
	safeID  int64          // the highest of earlier pages
}

func newReader(t testing.TB, table Table, name string) *reader {
	return &reader{worker: hire(t, table, name), seen: map[int64]bool{}}
}

// look reads a page and holds it against the pages before.
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

// met checks a row that the pages before didn't have.
func (r *reader) met(id, lateAfter int64) {
	r.Helper()
	if id <= r.safeID {
		r.Errorf("row %d appeared at or below the safe id %d of an earlier page", id, r.safeID)
	}
	if id <= r.highest && (lateAfter < 0 || lateAfter >= id) {
		r.Errorf("row %d appeared below row %d, which had been read; the page says late after %d", id, r.highest, lateAfter)
	}
}

// A transaction that commits after later ids were read and settled is not
// lost: the page says that it may have appeared, a scan finds it, and no
// safe id had passed it.
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
			t.Errorf("the safe id is %d, and row %d isn't committed", page.SafeID, late)
		}
		a.mustSettle(a.allAs(storage.StateDone, page.Rows)...)
	}
	slow.Commit()
	wantIDs(t, "scanned from the safe id", ids(a.scan(after(r.safeID), nil)), []int64{late})
	wantIDs(t, "read", ids(r.look().Rows), []int64{late})
	a.mustSettle(a.as(storage.StateDone, a.row(late)))
	r.wantSafeID(r.highest)
}

// wantSafeID waits until nothing is expected any more up to the id.
func (r *reader) wantSafeID(id int64) {
	r.Helper()
	eventually(r, "the safe id passes the last row", func() bool {
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

// The interleaving in which a mark by snapshots that are not careful enough
// loses a key's order: T2 begins; T1 begins, inserts a row of key A and stays
// open; T2 inserts and commits; the relay reads; T1 commits; A writes again.
// Whoever is shown A's second row has been told of the first.
func lateWithinAKey(t testing.TB, table Table) {
	for range 3 { // what else happens on the server matters, too
		for _, first := range []string{"T1", "T2", "a row of T2's own"} {
			for looks := 1; looks <= 2; looks++ {
				lateWithin(t, table, first, looks)
			}
		}
	}
}

// A read at no positions has no rows, and tells what has appeared: also to a store
// that had found nothing, and takes that for what it would find again.
func lateToldWithoutRows(t testing.TB, table Table) {
	r := newReader(t, table, "reader")
	slow := table.Begin(t)
	late := slow.Insert(outbox.Message{Topic: "late"})
	write(t, table, plain(3)...)
	last := highestOf(r.look().Rows)
	for range 2 {
		r.read(after(last), plenty, plentyBytes) // nothing
	}
	slow.Commit()
	page := r.read(nil, plenty, plentyBytes)
	if len(page.Rows) > 0 || page.LateAfter < 0 || page.LateAfter >= late {
		t.Errorf("read %d rows at no positions, late after %d, and row %d has appeared", len(page.Rows), page.LateAfter, late)
	}
	wantIDs(t, "scanned", ids(r.scan(after(page.LateAfter), func(c storage.Candidate) bool { return c.ID == late })), []int64{late})
	next := write(t, table, outbox.Message{Topic: "next"})
	wantIDs(t, "read on to", ids(r.read(after(last), plenty, plentyBytes).Rows), next)
}

func highestOf(rows []storage.Row) (id int64) {
	for _, row := range rows {
		id = max(id, row.ID)
	}
	return id
}

// lateWithin reads so many pages before T1 commits.
func lateWithin(t testing.TB, table Table, first string, looks int) {
	r := newReader(t, table, "reader")
	t1, t2 := beginBoth(t, table, first)
	one := t1.Insert(outbox.Message{Topic: "t", Key: "A"})
	two := t2.Insert(outbox.Message{Topic: "t"})
	t2.Commit()
	for range looks {
		if page := r.look(); page.SafeID >= one {
			t.Errorf("%s first: the safe id is %d, and row %d isn't committed", first, page.SafeID, one)
		}
	}
	t1.Commit()
	three := write(t, table, outbox.Message{Topic: "t", Key: "A"})[0]
	if !(one < two && two < three) {
		t.Fatalf("ids %d, %d, %d were given in turn", one, two, three)
	}
	// The engine reads on from where it was, and is told to look again.
	page := r.read(after(two), plenty, plentyBytes)
	if !slices.Equal(ids(page.Rows), []int64{three}) || page.LateAfter < 0 || page.LateAfter >= one {
		t.Errorf("%s first: read on to %v, late after %d, and row %d has appeared", first, ids(page.Rows), page.LateAfter, one)
	}
}

// beginBoth begins two transactions, of which the named one is known to the
// database first.
func beginBoth(t testing.TB, table Table, first string) (t1, t2 Tx) {
	if first == "T1" {
		return table.Begin(t), table.Begin(t)
	}
	t2 = table.Begin(t)
	if first == "a row of T2's own" {
		t2.Insert(outbox.Message{Topic: "t"})
	}
	return table.Begin(t), t2
}

// A settle that takes long is no yardstick of what came after it: what it
// learns about transactions is as old as its beginning.
func lateBesideASlowSettle(t testing.TB, table Table) {
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
	eventually(t, "the settle waits for the row", waiting)
	slow := table.Begin(t)
	late := slow.Insert(outbox.Message{Topic: "late"})
	write(t, table, plain(3)...)
	r.look()
	unlock()
	<-settled
	for range 3 {
		if page := r.look(); page.SafeID >= late {
			t.Errorf("the safe id is %d, and row %d isn't committed", page.SafeID, late)
		}
		write(t, table, plain(3)...)
	}
	slow.Commit()
	r.look()
	r.wantSafeID(r.highest)
}

// Gaps hold nothing up, and a rolled-back row never appears.
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

// A read that failed has told nobody anything: the next one still says what
// has appeared since the one before.
func failedReadTellsNothing(t testing.TB, table Table) {
	r := newReader(t, table, "reader")
	slow := table.Begin(t)
	slow.Insert(outbox.Message{Topic: "late"})
	write(t, table, plain(3)...)
	r.look()
	slow.Commit()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := r.store.Read(ended, storage.ReadRequest{Positions: everything(), Limit: plenty, MaxBytes: plentyBytes}); err == nil {
		t.Error("a read in a context that had ended returned no error")
	}
	r.look()
}

// Two readers of one table, in one process or in two, each hear of a late row.
func everyReaderHears(t testing.TB, table Table) {
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
