package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A listing and a change with the same filter select the same rows. The check uses filters with one
// field and with several.
func filtersSelect(t testing.TB, table Table) {
	a := holder(t, table, "a")
	const none = "0197a3b4-ffff-7abc-8def-0123456789ab"
	uuid := func(i int) string { return fmt.Sprintf("0197a3b4-%04d-7abc-8def-0123456789ab", i) }
	var written []int64
	for i, topic := range []string{"a", "a", "A", "b"} {
		message := outbox.Message{ID: uuid(i), Topic: topic, Key: []string{"k", "K"}[i%2]}
		written = append(written, write(t, table, message)...)
	}
	pending := write(t, table, outbox.Message{ID: uuid(4), Topic: "a", Key: "k"})[0]
	for i, text := range []string{"100% full", "100 full", `it's "x"_y`, ""} {
		park := a.as(storage.StateError, a.row(written[i]))
		park.Error = text
		a.mustSettle(park)
	}
	id := func(i int) string { return strconv.FormatInt(written[i], 10) }
	tests := []struct {
		filter storage.Filter
		want   []int64 // the ids of the parked rows that the filter selects
	}{
		{storage.Filter{}, written},
		{storage.Filter{State: storage.StateError}, written},
		{storage.Filter{State: storage.StateRetry}, nil},
		{storage.Filter{Topic: "a"}, written[:2]},
		{storage.Filter{TopicPrefix: "a"}, written[:2]},
		{storage.Filter{TopicPrefix: "%"}, nil},
		{storage.Filter{Key: "K"}, []int64{written[1], written[3]}},
		{storage.Filter{Topic: "a", Key: "K"}, written[1:2]},
		{storage.Filter{IDs: []string{id(0), uuid(2), id(3), uuid(3), none, "999999999"}}, []int64{written[0], written[2], written[3]}},
		{storage.Filter{IDs: []string{none}}, nil},
		{storage.Filter{IDs: []string{uuid(0), uuid(2)}, Topic: "A"}, written[2:3]},
		{storage.Filter{Error: "100%"}, written[:1]},
		{storage.Filter{Error: "full"}, written[:2]},
		{storage.Filter{Error: `'s "x"_`}, written[2:3]},
		{storage.Filter{Error: `"x"%y`}, nil},
		{storage.Filter{Since: time.Now().Add(-time.Hour)}, written},
		{storage.Filter{Since: time.Now().Add(time.Hour)}, nil},
		{storage.Filter{AfterID: written[1]}, written[2:]},
		{storage.Filter{AfterID: written[0], Limit: 2}, written[1:3]},
	}
	for _, test := range tests {
		var listed []int64
		for _, info := range a.list(test.filter) {
			if info.State == storage.StateError {
				listed = append(listed, info.ID)
			}
		}
		wantIDs(t, fmt.Sprintf("list %+v", test.filter), listed, test.want)
		if len(test.filter.IDs) > 0 {
			a.wantFound(test.filter, test.want)
		}
		if n := a.requeue(test.filter); n != len(test.want) {
			t.Errorf("requeue %+v: %d rows, want %d", test.filter, n, len(test.want))
		}
		a.parkAgain()
	}
	a.discardEach(tests[12].filter, 2, written[2:])
	a.wantState(storage.StatePending, pending)
}

// wantFound requires that Find searches all rows, and returns exactly these parked rows.
func (w *worker) wantFound(filter storage.Filter, want []int64) {
	w.Helper()
	var found storage.Found
	w.do("find", func(ctx context.Context) (err error) {
		found, err = w.store.Find(ctx, filter, 0)
		return err
	})
	if !found.All() {
		w.Errorf("find %+v: searched up to id %d of %d", filter, found.Until, found.Last)
	}
	var ids []int64
	for _, info := range found.Infos {
		if info.State == storage.StateError {
			ids = append(ids, info.ID)
		}
	}
	wantIDs(w, fmt.Sprintf("find %+v", filter), ids, want)
}

// parkAgain parks the requeued rows again.
func (w *worker) parkAgain() {
	w.Helper()
	w.mustSettle(w.allAs(storage.StateError, w.due())...)
}

// discardEach discards count rows: first one, then the others. It requires that exactly the rows in left
// stay parked.
func (w *worker) discardEach(filter storage.Filter, count int, left []int64) {
	w.Helper()
	one := filter
	one.Limit = 1
	if n := w.discard(one); n != 1 {
		w.Errorf("discard %+v: %d rows, want 1", one, n)
	}
	if n := w.discard(filter); n != count-1 {
		w.Errorf("discard %+v: %d rows, want %d", filter, n, count-1)
	}
	w.wantState(storage.StateError, left...)
	if all := w.list(storage.Filter{State: storage.StateError}); len(all) != len(left) {
		w.Errorf("%d parked rows are left, want %d", len(all), len(left))
	}
}

// A page of a listing ends at its Limit, by default a hundred rows, or at its MaxBytes. The next page
// begins after the last row of the page.
func listPages(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, plain(130)...)
	rows := a.pending()
	for i, state := range states() { // so that the listing has rows of all tables
		a.mustSettle(a.as(state, rows[i*11]))
	}
	wantIDs(t, "the first page", infoIDs(a.list(storage.Filter{})), written[:100])
	var got []int64
	for page := a.list(storage.Filter{Limit: 7}); len(page) > 0 && len(got) < plenty; page = a.list(storage.Filter{Limit: 7, AfterID: got[len(got)-1]}) {
		if len(page) > 7 {
			t.Fatalf("a page with a limit of 7 rows has %d rows", len(page))
		}
		got = append(got, infoIDs(page)...)
	}
	wantIDs(t, "all pages", got, written)

	large := write(t, table, slices.Repeat([]outbox.Message{{Topic: "large", Payload: make([]byte, 20_000)}}, 5)...)
	for i, want := range [][]int64{large[:2], large[2:4], large[4:]} { // the row that exceeds the limit of bytes is still returned
		page := a.list(storage.Filter{Topic: "large", MaxBytes: 30_000, AfterID: large[2*i] - 1})
		wantIDs(t, "a page with a limit of 30,000 bytes", infoIDs(page), want)
	}
}

func infoIDs(infos []storage.Info) []int64 {
	var found []int64
	for _, info := range infos {
		found = append(found, info.ID)
	}
	return found
}

// Requeuing or discarding many rows changes all of them.
func requeueAndDiscardChangeAllRows(t testing.TB, table Table) {
	const count = 1100
	a := holder(t, table, "a")
	fill(t, table, plain(count)...)
	a.mustSettle(a.allAs(storage.StateError, a.pending())...)
	if n := a.requeue(storage.Filter{Topic: "plain"}); n != count {
		t.Errorf("requeued %d rows, want %d", n, count)
	}
	a.parkAgain()
	if n := a.discard(storage.Filter{Topic: "plain"}); n != count {
		t.Errorf("discarded %d rows, want %d", n, count)
	}
	if left := a.list(storage.Filter{}); !slices.Equal(infoIDs(left), nil) {
		t.Errorf("rows %v are left after the discard", infoIDs(left))
	}
}
