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

// Remaining returns exactly the rows that are due, whether pending or deferred, even if another row
// blocks their key.
func remainingReturnsTheDueRows(t testing.TB, table Table) {
	a := holder(t, table, "a")
	found := a.oneOfEach(table) // the retry is due, the scheduled row isn't
	const key = "it's \"ü\""
	messages := []outbox.Message{
		{Topic: "t", Key: key}, {Topic: "t", Key: key}, {Topic: "past", AvailableAt: time.Now().Add(-time.Hour)}, {Topic: "past", AvailableAt: time.Now().Add(-time.Hour)},
		{Topic: "later", AvailableAt: time.Now().Add(time.Hour)}, {Topic: "t", Key: "parts"},
	}
	written := write(t, table, messages...)
	waits := a.as(storage.StateRetry, a.row(written[0]))
	waits.Delay = time.Hour
	a.mustSettle(waits, a.as(storage.StateScheduled, a.row(written[3])))
	part := a.part(storage.StateRetry, a.row(written[5]), "a", "b,c")
	a.mustSettle(part)
	want := map[int64]bool{found[storage.StatePending]: false, found[storage.StateRetry]: true, written[1]: false, written[2]: false, written[3]: true}
	var rows []storage.Row
	for id, held := range want {
		info := a.info(id)
		rows = append(rows, due(info.Row, held))
	}
	pending := due(a.row(written[5]), false)
	held := pending
	held.Sinks, held.Deferred = "a", true
	rows = append(rows, pending, held)
	a.wantRemaining("by lanes", rows)
}

// When claiming by rows, Remaining doesn't return claimed rows until their claim has expired.
func remainingLeavesOutClaimedRows(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	write(t, table, plain(5)...)
	ended := a.claim(storage.ClaimRequest{Token: "ended", Limit: 2, TTL: short})
	lasting := a.claim(storage.ClaimRequest{Token: "lasting", Limit: 2})
	eventually(t, "two claims end", func() bool { return len(a.remaining(0)) == 3 })
	for _, row := range a.remaining(0) {
		if slices.Contains(ids(lasting), row.ID) {
			t.Errorf("Remaining returned the claimed row %d", row.ID)
		}
	}
	a.mustSettle(allClaimed("lasting", storage.StateDone, lasting)...)
	a.mustSettle(allClaimed("ended", storage.StateDone, ended)...)
	if left := a.remaining(0); len(left) != 1 {
		t.Errorf("%d rows remain, want only the row that was never claimed", len(left))
	}
}

// due returns the row with only the fields that Remaining fills in.
func due(row storage.Row, held bool) storage.Row {
	m := &row.Message
	return storage.Row{ID: row.ID, Lane: row.Lane, Sinks: row.Sinks, Deferred: held, Message: outbox.Message{ID: m.ID, Topic: m.Topic, Key: m.Key}}
}

func (w *worker) remaining(limit int) (rows []storage.Row) {
	w.Helper()
	w.do("remaining", func(ctx context.Context) error {
		rows = nil
		return w.store.Remaining(ctx, limit, func(row *storage.Row) bool {
			rows = append(rows, *row)
			return true
		})
	})
	slices.SortFunc(rows, byPlace)
	return rows
}

func byPlace(a, b storage.Row) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Sinks, b.Sinks))
}

// wantRemaining requires that Remaining returns these rows. It also requires that a call with a limit
// returns at least that number of rows, and that a call ends when its callback returns false.
func (w *worker) wantRemaining(what string, want []storage.Row) {
	w.Helper()
	slices.SortFunc(want, byPlace)
	got := w.remaining(0)
	if len(got) != len(want) {
		w.Errorf("%s: %d rows remain, want %d: %v", what, len(got), len(want), ids(got))
	}
	for i := range min(len(got), len(want)) {
		if g, h := due(got[i], got[i].Deferred), want[i]; g.ID != h.ID || g.Lane != h.Lane || g.Sinks != h.Sinks || g.Deferred != h.Deferred ||
			g.Message.ID != h.Message.ID || g.Message.Topic != h.Message.Topic || g.Message.Key != h.Message.Key {
			w.Errorf("%s: row %+v remains, want %+v", what, g, h)
		}
	}
	for limit := range len(want) {
		if n := len(w.remaining(limit + 1)); n <= limit {
			w.Errorf("%s: with a limit of %d, Remaining returned %d of %d rows", what, limit+1, n, len(want))
		}
	}
	calls := 0
	w.do("remaining", func(ctx context.Context) error {
		calls = 0
		return w.store.Remaining(ctx, 0, func(*storage.Row) bool { calls++; return calls < 2 })
	})
	if calls != min(2, len(want)) {
		w.Errorf("%s: the callback was called %d times, although it returned false for the second row", what, calls)
	}
}
