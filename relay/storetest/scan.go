package storetest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A read that begins after a settlement has returned doesn't return the settled rows.
func readAfterSettle(t testing.TB, table Table) {
	const count = 60
	a, b := holder(t, table, "a"), hire(t, table, "b")
	write(t, table, plain(count)...)
	rows := a.pending()
	if len(rows) != count {
		t.Fatalf("wrote %d rows, %d are pending", count, len(rows))
	}
	settled := make(chan int64, count)
	go func() {
		defer close(settled)
		for _, row := range rows {
			settleOrReport(t, a, a.as(storage.StateDone, row))
			settled <- row.ID
		}
	}()
	gone := map[int64]bool{}
	for id := range settled {
		gone[id] = true
		for _, row := range b.pending() {
			if gone[row.ID] {
				t.Errorf("row %d was read after its settlement had returned", row.ID)
			}
		}
	}
}

// Scan calls the function keep once for each pending row, and returns all columns of the rows that this function accepts.
func scanCallsKeepOncePerRow(t testing.TB, table Table) {
	a := holder(t, table, "a")
	message := outbox.Message{Topic: "rare", Key: "k", Payload: []byte("p"), Headers: map[string]string{"h": "v"}}
	later := outbox.Message{Topic: "rare", AvailableAt: time.Now().Add(time.Hour)}
	written := write(t, table, append(plain(150), message, later)...)
	asked := map[int64]storage.Candidate{}
	rows := a.scan(everything(), func(c storage.Candidate) bool {
		if _, before := asked[c.ID]; before {
			t.Errorf("the callback was called twice for row %d", c.ID)
		}
		asked[c.ID] = c
		return c.Topic == "rare"
	})
	wantIDs(t, "accepted", ids(rows), written[150:])
	if len(asked) != len(written) {
		t.Errorf("the callback was called for %d rows, want %d", len(asked), len(written))
	}
	for _, row := range rows {
		if want := (storage.Candidate{ID: row.ID, Lane: row.Lane, Topic: "rare", Key: row.Message.Key, Bytes: len(row.Message.Payload)}); asked[row.ID] != want {
			t.Errorf("the callback was called with %+v, want %+v", asked[row.ID], want)
		}
		if row.Later != (row.ID == written[151]) {
			t.Errorf("row %d of the scan, available at %v, has Later %t", row.ID, row.Message.AvailableAt, row.Later)
		}
	}
	want := a.row(written[150])
	for _, row := range rows[:min(1, len(rows))] {
		wantMessage(t, "scanned", row.Message, want.Message)
	}
}

// scan returns the rows that the function keep accepts, or all rows if it is nil.
func (w *worker) scan(positions []storage.Position, keep func(storage.Candidate) bool) (rows []storage.Row) {
	w.Helper()
	if keep == nil {
		keep = func(storage.Candidate) bool { return true }
	}
	for left := positions; len(left) > 0; {
		w.do("scan", func(ctx context.Context) (err error) {
			var some []storage.Row
			some, left, err = w.store.Scan(ctx, left, nil, keep)
			rows = append(rows, some...)
			return err
		})
	}
	slices.SortFunc(rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}

// A read and a scan that leave out a topic return all rows of other topics, even if their names are
// similar. They also return rows of the left-out topic that name sinks. A page that reaches the
// end of the table has the last assigned id, even if the page leaves out the row with that id.
func exceptLeavesOutOnlyItsTopics(t testing.TB, table Table) {
	a := holder(t, table, "a")
	named := a.waitingAt(table, false, outbox.Message{Topic: "plain", Key: "k"})
	a.mustSettle(a.part(storage.StateRetry, named, "b", "a"))
	want := append(write(t, table, outbox.Message{Topic: "plain "}, outbox.Message{Topic: "Plain"}, outbox.Message{Topic: "other"}), named.ID)
	slices.Sort(want)
	plain := write(t, table, plain(3)...)
	positions := everything()
	for i := range positions {
		positions[i].Until = plain[2] + 100
	}
	request := storage.ReadRequest{Positions: positions, Limit: plenty, MaxBytes: plentyBytes, Except: []string{"absent", "plain"}}
	others := func(rows []storage.Row) []int64 { // a store may also return rows of the left-out topic
		return slices.DeleteFunc(ids(rows), func(id int64) bool { return slices.Contains(plain, id) })
	}
	var page storage.Page
	var scanned []storage.Row
	a.do("read", func(ctx context.Context) (err error) {
		page, err = a.store.Read(ctx, request)
		return err
	})
	a.do("scan", func(ctx context.Context) (err error) {
		scanned, _, err = a.store.Scan(ctx, positions, request.Except, func(storage.Candidate) bool { return true })
		return err
	})
	wantIDs(t, "read", others(page.Rows), want)
	wantIDs(t, "scanned", others(scanned), want)
	if page.LastID < plain[2] || page.LastID > plain[2]+50 {
		t.Errorf("the page's last id is %d, and the last row has %d", page.LastID, plain[2])
	}
	for _, row := range a.pending() {
		if slices.Contains(want, row.ID) {
			a.mustSettle(a.as(storage.StateDone, row))
		}
	}
	request.Positions = everything()
	for range 2 { // before the second read, a store may already know that no new row exists
		a.do("read", func(ctx context.Context) (err error) {
			page, err = a.store.Read(ctx, request)
			return err
		})
		wantIDs(t, "read after the others were settled", others(page.Rows), []int64{})
	}
	wantIDs(t, "left", ids(a.pending()), plain)
}

// Scan examines at most ScanTogether rows per call, and returns the positions from which to continue.
// Rows of topics in Except don't end the scan early.
func scanInSteps(t testing.TB, table Table) {
	const more = 100
	a := holder(t, table, "a")
	for range 10 {
		fill(t, table, plain(storage.ScanTogether/10)...)
	}
	fill(t, table, plain(more)...)
	rare := write(t, table, outbox.Message{Topic: "rare"})
	met := map[int64]int{}
	steps := 0
	for left := everything(); len(left) > 0; steps++ {
		walked := 0
		a.do("scan", func(ctx context.Context) (err error) {
			_, left, err = a.store.Scan(ctx, left, nil, func(c storage.Candidate) bool { met[c.ID]++; walked++; return false })
			return err
		})
		if walked > storage.ScanTogether {
			t.Errorf("a scan called its callback for %d rows, want at most %d", walked, storage.ScanTogether)
		}
	}
	if steps < 2 {
		t.Errorf("the callback was called for %d rows in %d steps, want at least 2 steps", len(met), steps)
	}
	for id, times := range met {
		if times != 1 {
			t.Fatalf("the callback was called %d times for row %d, want once", times, id)
		}
	}
	if all := storage.ScanTogether + more + 1; len(met) != all || met[rare[0]] != 1 {
		t.Fatalf("the callback was called for %d of %d rows, and %d times for the last row", len(met), all, met[rare[0]])
	}
	found := false
	for left := everything(); len(left) > 0; {
		a.do("scan", func(ctx context.Context) (err error) {
			_, left, err = a.store.Scan(ctx, left, []string{"plain"}, func(c storage.Candidate) bool { found = found || c.ID == rare[0]; return false })
			return err
		})
	}
	if !found {
		t.Error("a scan that leaves out one topic missed a row of another")
	}
}
