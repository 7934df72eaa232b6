package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// oneOfEach brings one row into each state that it can have by lanes and
// returns the rows' ids by state. The worker holds all lanes.
func (w *worker) oneOfEach(table Table) map[storage.State]int64 {
	w.Helper()
	found := map[storage.State]int64{storage.StatePending: write(w, table, plain(1)...)[0]}
	for _, state := range states() {
		message := outbox.Message{Topic: "t." + string(state), Key: string(state)}
		if state == storage.StateScheduled {
			message.AvailableAt = time.Now().Add(time.Hour)
		}
		id := write(w, table, message)[0]
		w.mustSettle(w.as(state, w.row(id)))
		found[state] = id
	}
	return found
}

// Requeue makes parked rows due, with nothing charged and their key free, and
// touches no other state.
func requeueParked(t testing.TB, table Table) {
	a := holder(t, table, "a")
	found := a.oneOfEach(table)
	parked := a.row(write(t, table, keyed("k", 1)...)[0])
	settlement := a.as(storage.StateError, parked)
	settlement.Attempts, settlement.Crashes, settlement.Delay = 20, 3, time.Hour
	a.mustSettle(settlement)
	if n := a.requeue(storage.Filter{}); n != 2 {
		t.Errorf("requeued %d rows, want the 2 parked ones", n)
	}
	due := a.due()
	wantIDs(t, "due", ids(due), []int64{found[storage.StateRetry], found[storage.StateError], parked.ID})
	for _, row := range due {
		if row.Attempts != 0 || row.Crashes != 0 || row.Retrying != (row.ID == found[storage.StateRetry]) {
			t.Errorf("due after a requeue: %+v", row)
		}
	}
	for _, state := range []storage.State{storage.StatePending, storage.StateRetry, storage.StateScheduled, storage.StateDone} {
		a.wantState(state, found[state])
	}
	if n := a.requeue(storage.Filter{}); n != 0 {
		t.Errorf("requeued %d rows for the second time", n)
	}
	a.mustSettle(a.allAs(storage.StateDone, due)...)
}

// Discard deletes parked rows and nothing else.
func discardParked(t testing.TB, table Table) {
	a := holder(t, table, "a")
	found := a.oneOfEach(table)
	for _, state := range []storage.State{storage.StatePending, storage.StateRetry, storage.StateScheduled, storage.StateDone} {
		if n := a.discard(storage.Filter{State: state}); n != 0 {
			t.Errorf("discarded %d rows that are %s", n, state)
		}
	}
	if n := a.discard(storage.Filter{}); n != 1 {
		t.Errorf("discarded %d rows, want the parked one", n)
	}
	delete(found, storage.StateError)
	left := a.list(storage.Filter{})
	if len(left) != len(found) {
		t.Errorf("%d rows are left, want %d", len(left), len(found))
	}
	for state, id := range found {
		a.wantState(state, id)
	}
}

// By rows, too, an operator's requeue brings a row back.
func requeueByRows(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	id := write(t, table, plain(1)...)[0]
	park := allClaimed("one", storage.StateError, a.claim(storage.ClaimRequest{Token: "one", Limit: 1}))
	park[0].Attempts = 20
	a.mustSettle(park...)
	if n := a.requeue(storage.Filter{IDs: []string{strconv.FormatInt(id, 10)}}); n != 1 {
		t.Errorf("requeued %d rows, want 1", n)
	}
	a.freed(1)
	rows := a.claim(storage.ClaimRequest{Token: "two", Limit: 1})
	if len(rows) != 1 || rows[0].ID != id || rows[0].Attempts != 0 {
		t.Errorf("claimed after a requeue: %+v", rows)
	}
}
