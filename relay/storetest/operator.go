package storetest

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// oneOfEach writes one row of each state that exists when claiming by lanes, and returns the rows'
// ids by state. The worker holds all lanes.
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

// Requeue makes parked rows due and resets their attempts. Requeued rows don't block their keys. Rows
// in other states don't change.
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
		t.Errorf("requeued %d rows again, want none", n)
	}
	a.mustSettle(a.allAs(storage.StateDone, due)...)
}

// Discard deletes parked rows, but no pending, scheduled or delivered rows.
func discardParked(t testing.TB, table Table) {
	a := holder(t, table, "a")
	found := a.oneOfEach(table)
	for _, state := range []storage.State{storage.StatePending, storage.StateScheduled, storage.StateDone} {
		if n := a.discard(storage.Filter{State: state}); n != 0 {
			t.Errorf("discarded %d rows in state %s", n, state)
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

// When claiming by rows, Reclaim moves a requeued row back to the pending rows, which can be claimed.
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

// parkHolding parks rows so that they hold their keys.
func (w *worker) parkHolding(rows ...storage.Row) {
	w.Helper()
	settlements := w.allAs(storage.StateError, rows)
	for i := range settlements {
		settlements[i].Holds = true
	}
	w.mustSettle(settlements...)
}

// wantHolders requires that BlockedKeys and BlockedAmong return exactly these rows.
func (w *worker) wantHolders(rows ...storage.Row) {
	w.Helper()
	var want []storage.BlockedKey
	for _, row := range rows {
		want = append(want, storage.BlockedKey{Lane: row.Lane, Key: row.Message.Key, Topic: row.Message.Topic, ID: row.ID})
	}
	got := w.heldKeys()
	if !slices.Equal(got, want) {
		w.Errorf("blocked keys are %+v, want %+v", got, want)
	}
	var asked []storage.LaneKey
	for _, info := range w.list(storage.Filter{}) {
		asked = append(asked, storage.LaneKey{Lane: info.Lane, Key: info.Message.Key})
	}
	w.wantHeldAmong(asked, want)
}

// A row can be parked so that it holds its key, whether it was pending or a retry. A parked row is
// never due, and it blocks the key that it holds. A requeue makes the row a retry that is due, with
// its attempts reset. The retry blocks the key until it is done.
func parkedHoldTheirKeys(t testing.TB, table Table) {
	a := holder(t, table, "a")
	wrote := time.Now()
	if s := a.status(); s.HeldKeys != 0 || s.OldestHeld != 0 || s.OldestRetry != 0 {
		t.Errorf("status of an empty table: %+v", s)
	}
	var rows []storage.Row
	for _, key := range []string{"hot", "retried", "plain", "mixed"} {
		rows = append(rows, a.row(write(t, table, outbox.Message{Topic: "t", Key: key})[0]))
	}
	a.mustSettle(a.as(storage.StateRetry, rows[1]))
	rows[1].Deferred = true
	start := time.Now()
	hot, retried := a.as(storage.StateError, rows[0]), a.as(storage.StateError, rows[1])
	hot.Holds, retried.Holds, hot.Attempts, retried.Attempts, hot.Error = true, true, 7, 8, "no"
	a.mustSettle(hot, a.as(storage.StateError, rows[2]))
	a.mustSettle(retried, a.as(storage.StateRetry, rows[3]))
	a.wantHolders(rows[0], rows[1], rows[3])
	wantIDs(t, "due", ids(a.due()), []int64{rows[3].ID})
	for i, want := range []storage.Hold{storage.HoldsKey, storage.HoldsKey, storage.NoHold} {
		info := a.info(rows[i].ID)
		if info.State != storage.StateError || info.Holds != want || info.Attempts != []int{7, 8, 0}[i] {
			t.Errorf("the parked row with key %s is %+v, want Holds %d", info.Message.Key, info, want)
		}
	}
	eventually(t, "the oldest row that holds its key is older than "+short.String(), func() bool { return a.status().OldestHeld > short })
	if s := a.status(); s.OldestRetry <= short || s.OldestRetry > time.Since(wrote)+slack {
		t.Errorf("the oldest retry has the age %[2]v, but it was written at most %[1]v ago", time.Since(wrote), s.OldestRetry)
	}
	if s := a.status(); s.HeldKeys != 2 || s.OldestHeld > time.Since(start)+slack || s.Counts[storage.StateError] != 3 {
		t.Errorf("2 keys are held, for at most %v; the status is %+v", time.Since(start), s)
	}

	b := hire(t, table, "b")
	a.renewAll(short)
	b.takeOver(storage.Lanes, long)
	if n := b.requeue(storage.Filter{Topic: "t"}); n != 3 {
		t.Errorf("requeued %d rows, want 3", n)
	}
	due := b.due()
	if len(due) != 4 {
		t.Fatalf("due after a requeue: %v", ids(due))
	}
	for _, row := range due {
		if row.Attempts != 0 || row.Holds != storage.NoHold || row.Retrying != (row.ID != rows[2].ID) {
			t.Errorf("due after a requeue: %+v", row)
		}
	}
	b.wantHolders(rows[0], rows[1], rows[3])
	if s := b.status(); s.HeldKeys != 0 || s.OldestHeld != 0 {
		t.Errorf("no message is parked any more; the status is %+v", s)
	}
	b.mustSettle(b.allAs(storage.StateDone, due)...)
	b.wantHolders()
}

// Skipping a row that holds its key makes the row due, so that the relay can carry out the skip. The
// row holds its key until the relay has parked it again. Other parked rows don't change.
func skipUnblocksAHeldKey(t testing.TB, table Table) {
	a := holder(t, table, "a")
	holds, plain := a.row(write(t, table, keyed("holds", 1)...)[0]), a.row(write(t, table, keyed("plain", 1)...)[0])
	a.parkHolding(holds)
	a.mustSettle(a.as(storage.StateError, plain))
	if n := a.skip(storage.Filter{Key: "plain"}); n != 0 {
		t.Errorf("skipped %d rows that don't hold their key", n)
	}
	if n := a.skip(storage.Filter{}); n != 1 {
		t.Errorf("skipped %d rows, want 1", n)
	}
	due := a.due()
	if len(due) != 1 || due[0].ID != holds.ID || due[0].Holds != storage.WantSkip || !due[0].Retrying {
		t.Fatalf("due after a skip: %+v", due)
	}
	a.wantHolders(holds)
	if s := a.status(); s.HeldKeys != 0 {
		t.Errorf("the row was skipped; the status is %+v", s)
	}
	if n := a.skip(storage.Filter{}) + a.discard(storage.Filter{Key: "holds"}) + a.requeue(storage.Filter{Key: "holds"}); n != 0 {
		t.Errorf("changed %d rows that are not parked", n)
	}
	a.mustSettle(a.allAs(storage.StateError, due)...)
	a.wantHolders()
	a.wantState(storage.StateError, holds.ID, plain.ID)
	wantIDs(t, "due", ids(a.due()), nil)
	if info := a.info(holds.ID); info.Holds != storage.NoHold {
		t.Errorf("the skipped row still holds its key: %+v", info)
	}
}

// Discarding a row that holds its key makes the row due, so that the relay can delete it. Rows that
// don't hold their keys are deleted immediately.
func discardUnblocksAHeldKey(t testing.TB, table Table) {
	a := holder(t, table, "a")
	var rows []storage.Row
	for _, key := range []string{"one", "two", "plain"} {
		rows = append(rows, a.row(write(t, table, keyed(key, 1)...)[0]))
	}
	a.parkHolding(rows[:2]...)
	a.mustSettle(a.as(storage.StateError, rows[2]))
	if n := a.discard(storage.Filter{Limit: 1}) + a.discard(storage.Filter{}); n != 3 {
		t.Errorf("discarded %d rows, want 3", n)
	}
	due := a.due()
	wantIDs(t, "due after a discard", ids(due), []int64{rows[0].ID, rows[1].ID})
	for _, row := range due {
		if row.Holds != storage.WantDiscard || !row.Retrying {
			t.Errorf("due after a discard: %+v", row)
		}
	}
	a.wantHolders(rows[:2]...)
	a.mustSettle(a.allAs(storage.StateDiscarded, due)...)
	a.wantHolders()
	if left := a.list(storage.Filter{}); len(left) != 0 {
		t.Errorf("%d rows are left", len(left))
	}
}

// An operator changes a row after a settlement whose response was lost. When the relay repeats the
// settlement, the change remains, and the settlement's dead letter is not written again.
func repeatedSettlementKeepsAChange(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for number, test := range []struct {
		name  string
		state storage.State
		holds bool
		then  func(storage.Filter) int
	}{
		{"retry", storage.StateRetry, false, a.requeue},
		{"requeue", storage.StateError, false, a.requeue},
		{"requeue of a held key", storage.StateError, true, a.requeue},
	} {
		row := a.row(write(t, table, keyed(test.name, 1)...)[0])
		a.mustSettle(a.as(storage.StateRetry, row))
		row = a.due()[0]
		s := a.as(test.state, row)
		s.AvailableAt, s.Holds, s.Delay, s.Error = row.Message.AvailableAt, test.holds, time.Hour, "no"
		if test.state == storage.StateError {
			s = dying(s, number)
		}
		time.Sleep(pause) // lets the database's clock advance
		a.mustSettle(s)
		letters := len(a.deadLetters())
		time.Sleep(pause) // lets the database's clock advance
		if n := test.then(storage.Filter{State: test.state, Key: test.name}); n != 1 {
			t.Errorf("%s: changed %d rows, want 1", test.name, n)
		}
		if counts := a.settle(s); counts != (storage.Settled{Missing: 1}) {
			t.Errorf("%s: settled again: %+v", test.name, counts)
		}
		due := a.due()
		if len(due) != 1 || due[0].ID != row.ID || len(a.deadLetters()) != letters {
			t.Errorf("%s: due after the repeated settlement: %+v, and %d dead letters", test.name, due, len(a.deadLetters()))
			continue
		}
		again := a.as(storage.StateRetry, due[0])
		again.AvailableAt = due[0].Message.AvailableAt
		a.mustSettle(again) // this settlement was made from the row's current version, so it changes the row
		a.mustSettle(a.allAs(storage.StateDone, a.due())...)
	}
}

// A relay may park or retry a row, lose the response, and repeat the settlement. If an operator has
// made a decision in between, the repeat does not undo it.
func repeatedSettlementKeepsADecision(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for _, state := range []storage.State{storage.StateError, storage.StateRetry} {
		var settlements []storage.Settlement
		for _, key := range []string{"skip", "discard"} {
			row := a.row(write(t, table, keyed(key, 1)...)[0])
			a.mustSettle(a.as(storage.StateRetry, row))
			row.Deferred = true
			s := a.as(state, row)
			s.Holds, s.Delay, s.Error = state == storage.StateError, time.Hour, "no"
			settlements = append(settlements, s)
		}
		a.mustSettle(settlements...)
		of := func(key string) storage.Filter { return storage.Filter{State: state, Key: key} }
		if n := a.skip(of("skip")) + a.discard(of("discard")); n != 2 {
			t.Errorf("%s: skipped and discarded %d rows, want 2", state, n)
		}
		if counts := a.settle(settlements...); counts != (storage.Settled{Missing: 2}) {
			t.Errorf("%s: settled again: %+v", state, counts)
		}
		due := a.due()
		slices.SortFunc(due, func(a, b storage.Row) int { return int(a.ID - b.ID) })
		if len(due) != 2 || due[0].Holds != storage.WantSkip || due[1].Holds != storage.WantDiscard {
			t.Errorf("%s: due after the repeated settlements: %+v", state, due)
		}
		a.mustSettle(a.allAs(storage.StateDiscarded, due)...)
	}
}

// An operator can make a retry due. The retry then keeps its attempts. An operator can also skip or discard
// a retry, like a parked message that holds its key. Other rows don't change, and neither does a retry that is due,
// because a relay may be sending it.
func operatorsChangeRetries(t testing.TB, table Table) {
	a := holder(t, table, "a")
	waiting := storage.Filter{State: storage.StateRetry}
	var rows []storage.Row
	for _, key := range []string{"now", "skip", "discard", "due", "parked"} {
		rows = append(rows, a.row(write(t, table, keyed(key, 1)...)[0]))
	}
	retries := a.allAs(storage.StateRetry, rows[:3])
	for i := range retries {
		retries[i].Delay, retries[i].Attempts, retries[i].Error = time.Hour, 7, "boom"
	}
	a.mustSettle(append(retries, a.as(storage.StateRetry, rows[3]), a.as(storage.StateError, rows[4]))...)
	of := func(key string) storage.Filter { return storage.Filter{State: storage.StateRetry, Key: key} }
	if n := a.requeue(of("now")) + a.skip(of("skip")) + a.discard(of("discard")); n != 3 {
		t.Errorf("changed %d rows, want 3", n)
	}
	if n := a.requeue(waiting) + a.skip(waiting) + a.discard(waiting); n != 0 {
		t.Errorf("changed %d rows that are due or parked", n)
	}
	wants := map[int64]storage.Hold{rows[0].ID: storage.NoHold, rows[1].ID: storage.WantSkip, rows[2].ID: storage.WantDiscard, rows[3].ID: storage.NoHold}
	due := a.due()
	for _, row := range due {
		if want, found := wants[row.ID]; !found || row.Holds != want || !row.Retrying || row.Holds == storage.NoHold && row.ID == rows[0].ID && row.Attempts != 7 {
			t.Errorf("due after the changes: %+v", row)
		}
	}
	if len(due) != 4 {
		t.Errorf("%d rows are due, want 4", len(due))
	}
	a.wantState(storage.StateError, rows[4].ID)
	a.wantHolders(rows[:4]...)
}

// When claiming by rows, a discarded retry is deleted immediately, without a relay. A retry can't be
// skipped, because in this mode it blocks no key.
func operatorsChangeRetriesByRows(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	ids := write(t, table, plain(2)...)
	retries := allClaimed("one", storage.StateRetry, a.claim(storage.ClaimRequest{Token: "one", Limit: 2}))
	for i := range retries {
		retries[i].Delay = time.Hour
	}
	a.mustSettle(retries...)
	waiting := func(id int64) storage.Filter {
		return storage.Filter{State: storage.StateRetry, IDs: []string{strconv.FormatInt(id, 10)}}
	}
	if n := a.skip(storage.Filter{State: storage.StateRetry}); n != 0 {
		t.Errorf("skipped %d rows, want none", n)
	}
	if n := a.requeue(waiting(ids[0])) + a.discard(waiting(ids[1])); n != 2 {
		t.Errorf("changed %d rows, want 2", n)
	}
	left := a.list(storage.Filter{})
	if len(left) != 1 || left[0].ID != ids[0] || left[0].State != storage.StateRetry || left[0].Later {
		t.Errorf("the list has %+v, want only the requeued row", left)
	}
}
