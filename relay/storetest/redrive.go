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

// The list of parked messages has those that a filter selects, all of them and by id, and no
// others.
func parkedAreListed(t testing.TB, table Table) {
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
				t.Errorf("parked by %+v: %+v, want %+v", test.filter, got, test.want)
			}
		}
	}
	if listed := a.list(storage.Filter{Holds: true}); len(listed) != 1 || listed[0].ID != holds.ID {
		t.Errorf("listed of those that hold their keys: %+v, want %d", listed, holds.ID)
	}
}

// A parked message was overtaken if a later one of its key was delivered, and neither by an
// earlier one, nor by one of another key, nor by one that waits. As far as it is asked for.
func overtakenAreTold(t testing.TB, table Table) {
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
	want("overtaken just so far", storage.Filter{}, rows[3].ID-rows[1].ID, rows[1].ID)
	want("overtaken farther away", storage.Filter{}, rows[3].ID-rows[1].ID-1)
	want("overtaken, not asked", storage.Filter{}, 0)
	a.mustSettle(a.as(storage.StateDone, rows[6]))
	want("overtaken by then", storage.Filter{}, plenty, rows[1].ID, rows[2].ID)
}

// What is redirected is requeued to the one sink; and neither is what holds its key, nor that of
// which another part is held.
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
		n := 0
		a.do("redirect", func(ctx context.Context) (err error) {
			n, err = a.store.Redirect(ctx, filter, "three")
			return err
		})
		if want := []int{1, 1, 0, 0}[i]; n != want {
			t.Errorf("redirected %d rows by %+v, want %d", n, filter, want)
		}
	}
	due := a.due()
	wantIDs(t, "due after a redirect", ids(due), []int64{rows[0].ID, rows[1].ID})
	for _, row := range due {
		if row.Sinks != "three" || row.Attempts != 0 || row.Retrying {
			t.Errorf("redirected is %+v", row)
		}
	}
}
