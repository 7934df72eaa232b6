package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func (w *worker) parked(filter storage.Filter, within int64) (parked []storage.Parked) {
	w.Helper()
	w.do("parked", func(ctx context.Context) error {
		return w.store.Parked(ctx, filter, within, func(row storage.Parked) { parked = append(parked, row) })
	})
	return parked
}

// The list of parked messages has all rows that a filter selects, by id or by other fields, and no
// others.
func parkedMessagesAreListed(t testing.TB, table Table) {
	a := holder(t, table, "a")
	found := a.oneOfEach(table)
	holds := a.row(write(t, table, outbox.Message{Topic: "holds", Key: "k"})[0])
	plain := a.row(write(t, table, outbox.Message{Topic: "plain"})[0])
	parked := a.as(storage.StateError, plain)
	parked.Error = strings.Repeat("é", storage.MostParkedError+1)
	a.mustSettle(parked)
	a.parkHolding(holds)
	want := []storage.Parked{
		{ID: found[storage.StateError], Lane: a.info(found[storage.StateError]).Lane, Topic: "t.error", Key: "error"},
		{ID: holds.ID, Lane: holds.Lane, Topic: "holds", Key: "k", HoldsKey: true},
		{ID: plain.ID, Lane: plain.Lane, Topic: "plain"},
	}
	for i := range want {
		want[i].Error = a.info(want[i].ID).LastError
	}
	want[2].Error = strings.Repeat("é", storage.MostParkedError)
	newest := slices.Clone(want)
	slices.Reverse(newest)
	for _, test := range []struct {
		filter storage.Filter
		want   []storage.Parked
	}{
		{storage.Filter{}, want},
		{storage.Filter{State: storage.StateError, Limit: 1, AfterID: plain.ID}, want},
		{storage.Filter{State: storage.StateRetry}, nil},
		{storage.Filter{Topic: "holds"}, want[1:2]},
		{storage.Filter{Key: "error"}, want[:1]},
		{storage.Filter{Holds: true}, want[1:2]},
		{storage.Filter{NewestFirst: true}, newest},
		{storage.Filter{IDs: []string{plain.Message.ID}}, want[2:]},
		{storage.Filter{Since: time.Now().Add(time.Hour)}, nil},
	} {
		for _, within := range []int64{0, plenty} {
			if got := a.parked(test.filter, within); !slices.Equal(got, test.want) {
				t.Errorf("Parked with the filter %+v returned %+v, want %+v", test.filter, got, test.want)
			}
		}
	}
	if listed := a.list(storage.Filter{Holds: true}); len(listed) != 1 || listed[0].ID != holds.ID {
		t.Errorf("the list of rows that hold their keys is %+v, want row %d", listed, holds.ID)
	}
}

// A parked message was overtaken if a later message of its key was delivered. Earlier messages,
// messages of other keys, waiting messages, dead letters and copies by a replay don't count. Only ids
// within the requested distance are searched.
func overtakenMessagesAreMarked(t testing.TB, table Table) {
	a := holder(t, table, "a")
	var rows []storage.Row
	for _, key := range []string{"a", "a", "b", "a", "", "A", "b", "", "c"} {
		rows = append(rows, a.row(write(t, table, outbox.Message{Topic: "t", Key: key})[0]))
	}
	for _, i := range []int{1, 2, 4, 5, 8} {
		a.mustSettle(a.as(storage.StateError, rows[i]))
	}
	for _, i := range []int{0, 3, 7} {
		a.mustSettle(a.as(storage.StateDone, rows[i]))
	}
	want := func(what string, filter storage.Filter, within int64, want ...int64) {
		t.Helper()
		var got []int64
		for _, row := range a.parked(filter, within) {
			if row.Overtaken {
				got = append(got, row.ID)
			}
		}
		wantIDs(t, what, got, want)
	}
	want("overtaken", storage.Filter{}, plenty, rows[1].ID)
	want("overtaken of that key", storage.Filter{Key: "a"}, plenty, rows[1].ID)
	want("overtaken of another key", storage.Filter{Key: "b"}, plenty)
	want("overtaken within exactly the distance", storage.Filter{}, rows[3].ID-rows[1].ID, rows[1].ID)
	want("overtaken beyond the distance", storage.Filter{}, rows[3].ID-rows[1].ID-1)
	want("overtaken without a search", storage.Filter{}, 0)
	a.mustSettle(a.as(storage.StateDone, rows[6]))
	want("overtaken after another delivery", storage.Filter{}, plenty, rows[1].ID, rows[2].ID)

	written := write(t, table, outbox.Message{Topic: "again", Key: "d"}, outbox.Message{Topic: "t", Key: "d"})
	a.mustSettle(a.as(storage.StateDone, a.row(written[0])), dying(a.as(storage.StateError, a.row(written[1])), 1))
	a.mustSettle(a.as(storage.StateDone, a.deadLetters()[0]))
	want("overtaken by its dead letter", storage.Filter{Key: "d"}, plenty)
	_, copies := a.replayed(storage.Replay{Name: "r-1", Topic: "again"})
	if len(copies) != 1 {
		t.Fatalf("the replay wrote the copies %v, want one", copies)
	}
	a.mustSettle(a.as(storage.StateDone, a.row(copies[0].ID)))
	want("overtaken by a copy of an earlier message", storage.Filter{Key: "d"}, plenty)
}

// Redirect requeues parked messages to the given sink. It leaves out rows that hold their keys, and
// messages that have a second deferred row.
func redirectRequeues(t testing.TB, table Table) {
	a := holder(t, table, "a")
	var rows []storage.Row
	for _, key := range []string{"all", "part", "holds", "parts", "other"} {
		rows = append(rows, a.row(write(t, table, outbox.Message{Topic: "t", Key: key})[0]))
	}
	for _, i := range []int{1, 3} {
		first := a.as(map[int]storage.State{1: storage.StateDone, 3: storage.StateError}[i], rows[i])
		first.For, first.Left = "one", "two"
		a.mustSettle(first)
		rows[i] = a.row(rows[i].ID)
	}
	for _, i := range []int{0, 1, 3, 4} {
		park := a.as(storage.StateError, rows[i])
		park.Sinks, park.Attempts = rows[i].Sinks, 20
		a.mustSettle(park)
	}
	a.parkHolding(rows[2])
	for i, filter := range []storage.Filter{{Key: "all"}, {Key: "part"}, {Key: "holds"}, {Key: "parts"}} {
		n := a.redirect(filter, "three")
		if want := []int{1, 1, 0, 0}[i]; n != want {
			t.Errorf("redirected %d rows with the filter %+v, want %d", n, filter, want)
		}
	}
	due := a.due()
	wantIDs(t, "due after a redirect", ids(due), []int64{rows[0].ID, rows[1].ID})
	for _, row := range due {
		if row.Sinks != "three" || row.Attempts != 0 || row.Retrying {
			t.Errorf("the redirected row is %+v", row)
		}
	}
}

func (w *worker) redirect(filter storage.Filter, sink string) (count int) {
	w.Helper()
	w.do("redirect", func(ctx context.Context) (err error) {
		count, err = w.store.Redirect(ctx, filter, sink)
		return err
	})
	return count
}

// Redirect changes the rows that wait for a missing sink, whether pending, retry or scheduled, in
// the order of ids. Retries become due immediately, and scheduled rows keep their times. It
// leaves out rows for other sinks, parked rows, and messages that have another undelivered row.
// If a row was read before the redirect, a settlement of it changes nothing.
func redirectOfWaitingRows(t testing.TB, table Table) {
	a := holder(t, table, "a")
	var rows []storage.Row
	for _, key := range []string{"pending", "retry", "later", "scheduled", "parked", "parts", "two", "none", "last"} {
		message := outbox.Message{Topic: "t", Key: key}
		if key == "scheduled" || key == "later" {
			message.AvailableAt = time.Now().Add(time.Hour)
		}
		row := a.row(write(t, table, message)[0])
		if key != "none" {
			first := a.as(storage.StateDone, row)
			first.For, first.Left = "one", "old"
			switch key {
			case "parts":
				first.State = storage.StateError
			case "two":
				first.Left = "older,old"
			}
			a.mustSettle(first)
			row = a.row(row.ID)
		}
		rows = append(rows, row)
	}
	for i, state := range map[int]storage.State{1: storage.StateRetry, 3: storage.StateScheduled, 4: storage.StateError} {
		s := a.as(state, rows[i])
		s.Attempts, s.Delay = 7, time.Hour
		a.mustSettle(s)
	}
	of := func(i int) storage.Filter {
		return storage.Filter{State: storage.StatePending, Sink: "old", IDs: []string{rows[i].Message.ID}}
	}
	if n := a.redirect(of(7), "new") + a.redirect(storage.Filter{State: storage.StatePending, Sink: "other"}, "new"); n != 0 {
		t.Errorf("redirected %d rows of other sinks", n)
	}
	if n := a.redirect(of(8), "new"); n != 1 {
		t.Errorf("redirected %d rows by an id, want 1", n)
	}
	limited := storage.Filter{State: storage.StatePending, Sink: "old", Limit: 3}
	if n := a.redirect(limited, "new"); n != 3 {
		t.Errorf("redirected %d rows, want the limit of 3", n)
	}
	if n := a.redirect(limited, "new"); n != 1 {
		t.Errorf("redirected %d more rows, want 1", n)
	}
	due := a.due()
	wantIDs(t, "due", ids(due), []int64{rows[0].ID, rows[1].ID, rows[8].ID})
	for _, row := range due {
		if row.Sinks != "new" || row.Attempts != 0 || row.Retrying != (row.ID == rows[1].ID) {
			t.Errorf("the redirected row is %+v", row)
		}
	}
	for i, want := range []struct {
		sinks string
		state storage.State
	}{2: {"new", storage.StateScheduled}, 3: {"new", storage.StateScheduled}, 4: {"old", storage.StateError}, 6: {"older,old", storage.StatePending}, 7: {"", storage.StatePending}} {
		if want.state == "" {
			continue
		}
		isWanted := func(info storage.Info) bool { return info.Sinks == want.sinks && info.State == want.state }
		if infos := a.list(storage.Filter{Key: rows[i].Message.Key}); !slices.ContainsFunc(infos, isWanted) {
			t.Errorf("the rows of key %s are %+v, want one in state %s for the sinks %q", rows[i].Message.Key, infos, want.state, want.sinks)
		}
	}
	if parts := a.list(storage.Filter{IDs: []string{rows[5].Message.ID}, Sink: "old"}); len(parts) != 1 {
		t.Errorf("a row was redirected although its message has another undelivered row: %+v", parts)
	}
	if counts := a.settle(a.as(storage.StateDone, rows[0]), a.as(storage.StateRetry, rows[8])); counts != (storage.Settled{Missing: 2}) {
		t.Errorf("settled rows that were read before the redirect: %+v", counts)
	}
	a.mustSettle(a.allAs(storage.StateDone, due)...)
}

// When claiming by rows, Redirect changes the rows that wait for a missing sink, except claimed
// rows.
func redirectOfWaitingRowsByRows(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	write(t, table, plain(2)...)
	for i, park := range allClaimed("one", storage.StateError, a.claim(storage.ClaimRequest{Token: "one", Limit: 2})) {
		park = dying(park, i)
		park.DeadLetter.Sinks = "old"
		a.mustSettle(park)
	}
	claim := a.claim(storage.ClaimRequest{Token: "two", Limit: 1})
	waiting := storage.Filter{State: storage.StatePending, Sink: "old"}
	if n := a.redirect(waiting, "new"); n != 1 {
		t.Errorf("redirected %d rows while the other one is claimed, want 1", n)
	}
	a.mustSettle(allClaimed("two", storage.StatePending, claim)...)
	if n := a.redirect(waiting, "new"); n != 1 {
		t.Errorf("redirected %d rows after the other claim was released, want 1", n)
	}
	a.freed(2)
	rows := a.claim(storage.ClaimRequest{Token: "three", Limit: 3})
	if len(rows) != 2 || rows[0].Sinks != "new" || rows[1].Sinks != "new" {
		t.Errorf("claimed after a redirect: %+v", rows)
	}
}

// Redirect leaves out a parked row if another row of its message is pending, since both rows could
// get the same sink.
func redirectLeavesOutParts(t testing.TB, table Table) {
	a := holder(t, table, "a")
	row := a.row(write(t, table, outbox.Message{Topic: "t", Key: "k"})[0])
	first := a.as(storage.StateError, row)
	first.For, first.Left = "one", "two"
	a.mustSettle(first)
	if n := a.redirect(storage.Filter{}, "two"); n != 0 {
		t.Errorf("redirected %d rows, want none", n)
	}
	a.mustSettle(a.as(storage.StateRetry, a.row(row.ID)))
}
