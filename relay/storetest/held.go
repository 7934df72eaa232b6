package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Due returns deferred rows in the order of their times, in pages, each row once. It returns only
// due rows of the requested lanes.
func dueInOrder(t testing.TB, table Table) {
	const count = 25
	a := holder(t, table, "a")
	now := time.Now()
	messages := plain(count)
	for i := range messages {
		// Several rows have the same AvailableAt, one has none, and some are not due.
		messages[i].AvailableAt = now.Add(-time.Duration(i*7%10) * time.Minute)
	}
	messages[3].AvailableAt = time.Time{}
	messages[4].AvailableAt, messages[5].AvailableAt = now.Add(time.Hour), now.Add(time.Minute)
	write(t, table, messages...)
	rows := a.pending()
	a.mustSettle(a.allAs(storage.StateScheduled, rows)...)
	a.mustSettle(a.allAs(storage.StateError, a.due()[:2])...)
	want := a.due()
	if len(want) != count-4 {
		t.Fatalf("%d rows are due, want %d: two are not due yet, and two are parked", len(want), count-4)
	}
	if !slices.IsSortedFunc(want, byTime) {
		t.Errorf("due rows out of order: %v", inOrder(want))
	}
	for _, limit := range []int{1, 2, 7, count} {
		wantIDs(t, "the pages of due rows", inOrder(a.duePages(lanes(), limit)), inOrder(want))
	}
	some := []int{want[0].Lane, want[3].Lane}
	others := slices.DeleteFunc(slices.Clone(want), func(row storage.Row) bool { return !slices.Contains(some, row.Lane) })
	wantIDs(t, "due of some lanes", inOrder(a.duePages(some, 1)), inOrder(others))
}

func byTime(a, b storage.Row) int {
	if c := a.Message.AvailableAt.Compare(b.Message.AvailableAt); c != 0 {
		return c
	}
	return int(a.ID - b.ID)
}

// duePages reads all due rows in pages of at most limit rows.
func (w *worker) duePages(lanes []int, limit int) (rows []storage.Row) {
	w.Helper()
	var cursor storage.DueCursor
	for {
		var page []storage.Row
		w.do("due", func(ctx context.Context) (err error) {
			page, cursor, err = w.store.Due(ctx, lanes, cursor, limit, plentyBytes)
			return err
		})
		if len(page) > limit {
			w.Fatalf("read %d due rows with a limit of %d", len(page), limit)
		}
		if rows = append(rows, page...); len(page) == 0 || len(rows) > plenty/10 {
			return rows
		}
	}
}

// A due row shows whether it is a retry, which blocks its key, or a scheduled message.
func dueDistinguishesRetries(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, slices.Concat(keyed("a", 1), keyed("b", 1))...)
	a.mustSettle(a.as(storage.StateRetry, a.row(written[0])), a.as(storage.StateScheduled, a.row(written[1])))
	rows := a.due()
	wantIDs(t, "due", ids(rows), written)
	for _, row := range rows {
		if retry := row.ID == written[0]; !row.Deferred || row.Retrying != retry || row.Later {
			t.Errorf("Due returned a row (a retry: %t) with Deferred %t, Retrying %t and Later %t", retry, row.Deferred, row.Retrying, row.Later)
		}
	}
}

// A retry blocks its key, whether it is due or not. Scheduled rows, finished rows and rows without a key
// block no key. Nor do parked and requeued rows, unless they hold their keys.
func retriesBlockTheirKeys(t testing.TB, table Table) {
	a := holder(t, table, "a")
	var rows []storage.Row
	for _, key := range []string{"later", "due", "scheduled", "error", "requeued", "done", ""} {
		rows = append(rows, a.row(write(t, table, outbox.Message{Topic: "t", Key: key})[0]))
	}
	a.mustSettle(a.allAs(storage.StateRetry, rows)...)
	if got := len(a.heldKeys()); got != 6 {
		t.Errorf("6 keys have a retry, %d are blocked", got)
	}
	for i := range rows {
		rows[i].Deferred = true
	}
	later := a.as(storage.StateRetry, rows[0])
	later.Delay = time.Hour
	a.mustSettle(later, a.as(storage.StateScheduled, rows[2]), a.as(storage.StateError, rows[3]), a.as(storage.StateError, rows[4]), a.as(storage.StateDone, rows[5]))
	if n := a.requeue(storage.Filter{Key: "requeued"}); n != 1 {
		t.Fatalf("requeued %d rows, want 1", n)
	}
	want := []storage.BlockedKey{
		{Lane: rows[0].Lane, Key: "later", Topic: "t", ID: rows[0].ID},
		{Lane: rows[1].Lane, Key: "due", Topic: "t", ID: rows[1].ID},
	}
	got := a.heldKeys()
	if !slices.Equal(got, want) {
		t.Errorf("blocked keys are %+v, want %+v", got, want)
	}
	a.wantHeldKeys(want)
}

// wantHeldKeys requires that BlockedKeys returns each of these keys for its lane, and that it obeys its limit.
func (w *worker) wantHeldKeys(all []storage.BlockedKey) {
	w.Helper()
	for _, want := range all {
		w.do("blocked keys", func(ctx context.Context) error {
			got, err := w.store.BlockedKeys(ctx, []int{want.Lane}, 10)
			if !slices.Contains(got, want) {
				w.Errorf("blocked keys of lane %d are %+v, want %+v among them", want.Lane, got, want)
			}
			for _, key := range got {
				if key.Lane != want.Lane {
					w.Errorf("requested the blocked keys of lane %d and got %+v", want.Lane, key)
				}
			}
			return err
		})
		w.do("blocked keys", func(ctx context.Context) error {
			got, err := w.store.BlockedKeys(ctx, lanes(), 1)
			if len(got) != 1 {
				w.Errorf("requested 1 blocked key and got %d", len(got))
			}
			return err
		})
	}
}

// BlockedAmong returns the given keys that a retry blocks. For each topic of a blocked key, it returns
// the first row that blocks the key. Scheduled rows, and parked rows that don't hold their keys, block no
// key. Keys that differ only in a space or in case are different keys.
func blockedAmongOthers(t testing.TB, table Table) {
	a := holder(t, table, "a")
	var rows []storage.Row
	for _, m := range []outbox.Message{
		{Topic: "t", Key: "k"}, {Topic: "t", Key: "k"}, {Topic: "u", Key: "k"}, {Topic: "t", Key: "K"}, {Topic: "t", Key: "it's \"ü\""},
		{Topic: "t", Key: "scheduled"}, {Topic: "t", Key: "parked"}, {Topic: "t", Key: "done"}, {Topic: "t"}, {Topic: "t", Key: "pending"},
	} {
		rows = append(rows, a.row(write(t, table, m)[0]))
	}
	var others []outbox.Message
	for i := range 300 {
		others = append(others, outbox.Message{Topic: "t", Key: fmt.Sprint("other", i)})
	}
	write(t, table, others...)
	var settlements []storage.Settlement
	for _, row := range a.pending() {
		state := storage.StateRetry
		switch row.Message.Key {
		case "scheduled":
			state = storage.StateScheduled
		case "parked":
			state = storage.StateError
		case "done":
			state = storage.StateDone
		case "pending":
			continue
		}
		settlements = append(settlements, a.as(state, row))
	}
	a.mustSettle(settlements...)
	asked := []storage.LaneKey{{Lane: rows[0].Lane, Key: "k "}, {Lane: (rows[0].Lane + 1) % storage.Lanes, Key: "k"}, {Lane: rows[0].Lane, Key: "never"}}
	for _, row := range slices.Concat(rows[:1], rows[3:8], rows[9:]) {
		asked = append(asked, storage.LaneKey{Lane: row.Lane, Key: row.Message.Key})
	}
	want := []storage.BlockedKey{
		{Lane: rows[0].Lane, Key: "k", Topic: "t", ID: rows[0].ID},
		{Lane: rows[0].Lane, Key: "k", Topic: "u", ID: rows[2].ID},
		{Lane: rows[3].Lane, Key: "K", Topic: "t", ID: rows[3].ID},
		{Lane: rows[4].Lane, Key: rows[4].Message.Key, Topic: "t", ID: rows[4].ID},
	}
	a.wantHeldAmong(asked, want)
	a.wantHeldAmong(asked[3:4], want[:2])
	a.wantHeldAmong(nil, nil)
	many := slices.Clone(asked)
	for i := range 2000 {
		many = append(many, storage.LaneKey{Lane: i % storage.Lanes, Key: fmt.Sprint("not", i)})
	}
	a.wantHeldAmong(many, want)
}

func (w *worker) wantHeldAmong(asked []storage.LaneKey, want []storage.BlockedKey) {
	w.Helper()
	w.do("blocked among", func(ctx context.Context) error {
		got, err := w.store.BlockedAmong(ctx, asked)
		slices.SortFunc(got, func(a, b storage.BlockedKey) int { return int(a.ID - b.ID) })
		if err == nil && !slices.Equal(got, want) {
			w.Errorf("the blocked keys among %d keys are %+v, want %+v", len(asked), got, want)
		}
		return err
	})
}

// A relay that takes over a lane finds the lane's blocked keys and deferred rows.
func deferredAcrossTakeover(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	a.acquire(storage.Lanes, long)
	written := write(t, table, keyed("k", 2)...)
	row := a.row(written[0])
	retry := a.as(storage.StateRetry, row)
	retry.Attempts = 4
	a.mustSettle(retry)
	a.renewAll(short)
	b.takeOver(storage.Lanes, long)
	if got, want := b.heldKeys(), []storage.BlockedKey{{Lane: row.Lane, Key: "k", Topic: "plain", ID: row.ID}}; !slices.Equal(got, want) {
		t.Errorf("blocked keys after a takeover are %+v, want %+v", got, want)
	}
	due := b.due()
	if len(due) != 1 || due[0].ID != row.ID || due[0].Attempts != 4 || !due[0].Retrying {
		t.Fatalf("due after a takeover: %+v", due)
	}
	if got, want := a.settle(a.allAs(storage.StateDone, due)...), (storage.Settled{Fenced: 1}); got != want {
		t.Errorf("the old holder settled a deferred row: %+v, want %+v", got, want)
	}
	b.mustSettle(b.allAs(storage.StateDone, due)...)
	wantIDs(t, "pending", ids(b.pending()), written[1:])
}
