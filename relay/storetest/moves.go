package storetest

import (
	"bytes"
	"context"
	"maps"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// variants returns messages that a store could change by mistake.
func variants() []outbox.Message {
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	abroad := time.FixedZone("abroad", 5*60*60+30*60)
	return []outbox.Message{
		{ID: "0197a3b4-0000-7abc-8def-0123456789ab", Topic: "no payload", Payload: nil},
		{ID: "0197a3b4-0001-7abc-8def-0123456789ab", Topic: "empty payload", Payload: []byte{}},
		{ID: "0197a3b4-0002-7abc-8def-0123456789ab", Topic: "all bytes", Payload: allBytes, Key: "k", Priority: -32768},
		{ID: "0197a3b4-0003-7abc-8def-0123456789ab", Topic: "text", Payload: []byte(`C:\n''"\\%`), Key: `\'"%_; --`, Priority: 32767},
		{ID: "0197a3b4-0004-7abc-8def-0123456789ab", Topic: "überwiesen/✓", Key: "ключ", Headers: map[string]string{"traceparent": "00-ab", "ü": `"✓"\n`, "empty": ""}},
		{ID: "0197a3b4-0005-7abc-8def-0123456789ab", Topic: "available", AvailableAt: time.Now().Add(-time.Hour).In(abroad)},
		{ID: "0197a3b4-0006-7abc-8def-0123456789ab", Topic: "expires", ExpiresAt: time.Now().Add(time.Hour).In(abroad)},
	}
}

// A message stays the same when its row becomes a retry, is parked, is requeued, and becomes done.
func movesKeepTheMessage(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for _, message := range variants() {
		a.moveAbout(table, message)
	}
}

func (w *worker) moveAbout(table Table, message outbox.Message) {
	id := write(w, table, message)[0]
	row := w.row(id)
	wantMessage(w, "pending", row.Message, message)
	wantTime(w, "available_at", row.Message.AvailableAt, message.AvailableAt)
	wantExpiry(w, "pending", row, message, false)
	if row.Deferred || row.Retrying || row.Later || row.Malformed != "" || row.Attempts != 0 || row.Crashes != 0 {
		w.Errorf("a new row is not in its initial state: %+v", row)
	}
	if age := time.Since(row.CreatedAt).Abs(); age > 15*time.Minute {
		w.Errorf("row %d was created at %v, which differs from the test's clock by %v", id, row.CreatedAt, age)
	}
	step := w.stepper(row)
	step(storage.Settlement{State: storage.StateRetry, Attempts: 1, Crashes: 2, Error: `boom "1"`}, storage.Info{State: storage.StateRetry, LastError: `boom "1"`})
	step(storage.Settlement{State: storage.StateRetry, Attempts: 2, Crashes: 2}, storage.Info{State: storage.StateRetry, LastError: `boom "1"`})
	step(storage.Settlement{State: storage.StateError, Attempts: 3, Crashes: 3, Error: "boom 2"}, storage.Info{State: storage.StateError, LastError: "boom 2"})
	if requeued := w.requeue(storage.Filter{IDs: []string{message.ID}}); requeued != 1 {
		w.Fatalf("requeued %d rows, want 1", requeued)
	}
	step(storage.Settlement{State: storage.StateDone, Attempts: 4, Receipt: "receipt ✓"}, storage.Info{State: storage.StateDone, LastError: "boom 2", Receipt: "receipt ✓"})
}

// stepper returns a function that settles the row and then compares it with the given Info. The row may
// be pending or deferred.
func (w *worker) stepper(row storage.Row) func(storage.Settlement, storage.Info) {
	return func(settlement storage.Settlement, want storage.Info) {
		w.Helper()
		settlement.ID, settlement.Lane, settlement.MessageID = row.ID, row.Lane, row.Message.ID
		settlement.Fence, settlement.Deferred = w.fences[row.Lane], row.Deferred
		w.mustSettle(settlement)
		info := w.info(row.ID)
		if info.State != want.State || info.LastError != want.LastError || info.Receipt != want.Receipt {
			w.Errorf("after the settlement %+v the list has %+v", settlement, info)
		}
		if done := info.State == storage.StateDone; done == info.FinishedAt.IsZero() {
			w.Errorf("a row in the state %s has the FinishedAt %v", info.State, info.FinishedAt)
		}
		wantSame(w, info.Row, row, settlement)
		for _, due := range w.due() {
			wantSame(w, due, row, settlement)
		}
		row.Deferred = true
	}
}

// wantSame requires that the row has the settlement's attempts and crashes, and is otherwise
// unchanged.
func wantSame(t testing.TB, got, before storage.Row, s storage.Settlement) {
	t.Helper()
	wantMessage(t, string(s.State), got.Message, before.Message)
	if got.ID != before.ID || got.Lane != before.Lane || !got.CreatedAt.Equal(before.CreatedAt) {
		t.Errorf("%s: id %d, lane %d, created at %v; before it was id %d, lane %d, created at %v", s.State,
			got.ID, got.Lane, got.CreatedAt, before.ID, before.Lane, before.CreatedAt)
	}
	wantExpiry(t, string(s.State), got, before.Message, false)
	if got.Attempts != s.Attempts || got.Crashes != s.Crashes {
		t.Errorf("%s: %d attempts and %d crashes, want %d and %d", s.State, got.Attempts, got.Crashes, s.Attempts, s.Crashes)
	}
}

// wantMessage requires that two messages are equal, except for their times.
func wantMessage(t testing.TB, what string, got, want outbox.Message) {
	t.Helper()
	same := got.ID == want.ID && got.Topic == want.Topic && got.Key == want.Key && got.Priority == want.Priority &&
		bytes.Equal(got.Payload, want.Payload) && (got.Payload == nil) == (want.Payload == nil) && maps.Equal(got.Headers, want.Headers)
	if !same {
		t.Errorf("%s: the message is %#v, want %#v", what, got, want)
	}
}

func wantTime(t testing.TB, what string, got, want time.Time) {
	t.Helper()
	if got.IsZero() != want.IsZero() || got.Sub(want).Abs() > time.Millisecond {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// A retry becomes due after its delay, on the database's clock, and not earlier.
func retryIsDueAfterItsDelay(t testing.TB, table Table) {
	a := holder(t, table, "a")
	id := write(t, table, plain(1)...)[0]
	settlement := a.as(storage.StateRetry, a.row(id))
	settlement.Delay = short
	start := time.Now()
	a.mustSettle(settlement)
	wantIDs(t, "pending after a retry", ids(a.pending()), []int64{})
	eventually(t, "the retry is due", func() bool { return len(a.due()) == 1 })
	if waited := time.Since(start); waited < short-slack {
		t.Errorf("a retry with a delay of %v was due after %v", short, waited)
	}
}

// A row that is settled as scheduled keeps its AvailableAt.
func scheduledKeepsItsTime(t testing.TB, table Table) {
	a := holder(t, table, "a")
	later := time.Now().Add(time.Hour)
	ids := write(t, table, outbox.Message{Topic: "t", AvailableAt: later}, outbox.Message{Topic: "t"})
	for _, row := range a.pending() {
		if want := row.ID == ids[0]; row.Later != want {
			t.Errorf("row %d, available at %v, was read with Later %t", row.ID, row.Message.AvailableAt, row.Later)
		}
		a.mustSettle(a.as(storage.StateScheduled, row))
	}
	wantTime(t, "available_at", a.info(ids[0]).Message.AvailableAt, later)
	wantTime(t, "available_at", a.info(ids[1]).Message.AvailableAt, time.Time{})
	a.wantState(storage.StateScheduled, ids[0])
	a.wantState(storage.StatePending, ids[1]) // the row is deferred, but due
	wantIDs(t, "pending", inOrder(a.pending()), []int64{})
	wantIDs(t, "due", inOrder(a.due()), ids[1:])
}

// If delivered rows aren't kept, they are deleted.
func doneRowsAreDeleted(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, plain(3)...)
	a.mustSettle(a.as(storage.StateRetry, a.row(written[0])))
	rows := append(a.due(), a.row(written[1]))
	var counts storage.Settled
	a.do("settle", func(ctx context.Context) (err error) {
		counts, err = a.store.Settle(ctx, a.name, false, a.allAs(storage.StateDone, rows))
		return err
	})
	if want := (storage.Settled{Changed: 2}); counts != want {
		t.Fatalf("settled a deferred and a pending row: %+v, want %+v", counts, want)
	}
	if left := a.list(storage.Filter{}); len(left) != 1 || left[0].ID != written[2] {
		t.Errorf("the list has %+v, want only row %d", left, written[2])
	}
}
