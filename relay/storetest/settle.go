package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// states returns the states to which a relay that claims by lanes settles rows.
func states() []storage.State {
	return []storage.State{storage.StateDone, storage.StateRetry, storage.StateError, storage.StateScheduled}
}

// If a row is settled twice, the second settlement counts as missing and doesn't change the row.
func settleTwice(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for _, state := range states() {
		id := write(t, table, plain(1)...)[0]
		row := a.row(id)
		a.mustSettle(a.as(state, row))
		before := a.info(id)
		for _, again := range states() {
			if got, want := a.settle(a.as(again, row)), (storage.Settled{Missing: 1}); got != want {
				t.Errorf("settled as %s, and then as %s without reading the row again: %+v, want %+v", state, again, got, want)
			}
		}
		if after := a.info(id); after.State != before.State || after.Attempts != before.Attempts {
			t.Errorf("the second settlement changed the row from %+v to %+v", before, after)
		}
	}
}

// A relay can't settle a parked, delivered or discarded row.
func parkedRowsCannotBeSettled(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, plain(3)...)
	for _, id := range written {
		a.mustSettle(a.as(storage.StateRetry, a.row(id)))
	}
	rows := a.due()
	if len(rows) != 3 {
		t.Fatalf("%d retries are due, want 3", len(rows))
	}
	a.mustSettle(a.as(storage.StateError, rows[0]), a.as(storage.StateDone, rows[1]), a.as(storage.StateError, rows[2]))
	if n := a.discard(storage.Filter{AfterID: rows[2].ID - 1}); n != 1 {
		t.Fatalf("discarded %d rows, want 1", n)
	}
	for _, state := range states() {
		if got, want := a.settle(a.allAs(state, rows)...), (storage.Settled{Missing: 3}); got != want {
			t.Errorf("settled a parked, a done and a discarded row as %s: %+v, want %+v", state, got, want)
		}
	}
	a.wantState(storage.StateError, rows[0].ID)
	a.wantState(storage.StateDone, rows[1].ID)
}

// A batch may settle rows of both tables to any states, in any order. It may have more rows than a
// statement may have parameters.
func settleMixedBatch(t testing.TB, table Table) {
	const count = 1100
	a := holder(t, table, "a")
	fill(t, table, plain(count)...)
	rows := a.pending()
	if len(rows) != count {
		t.Fatalf("wrote %d rows, %d are pending", count, len(rows))
	}
	a.mustSettle(a.allAs(storage.StateRetry, rows[count/2:])...)
	batch := append(slices.Clone(rows[:count/2]), a.due()...)
	rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	settlements := make([]storage.Settlement, len(batch))
	for i, row := range batch {
		settlements[i] = a.as(states()[i%4], row)
		settlements[i].Attempts = i
	}
	a.mustSettle(settlements...)
	found := map[int64]storage.Info{}
	for _, info := range a.list(storage.Filter{Limit: 2 * count}) {
		found[info.ID] = info
	}
	for _, s := range settlements {
		want := s.State
		if want == storage.StateScheduled {
			want = storage.StatePending // the rows are due
		}
		if got := found[s.ID]; got.State != want || got.Attempts != s.Attempts {
			t.Fatalf("row %d was settled as %s with %d attempts; it has the state %s and %d attempts", s.ID, s.State, s.Attempts, got.State, got.Attempts)
		}
	}
}

// If some rows of a key are settled, the rows between them stay pending.
func settleSomeRowsOfAKey(t testing.TB, table Table) {
	a := holder(t, table, "a")
	fill(t, table, keyed("k", 60)...)
	fill(t, table, plain(600)...)
	fill(t, table, keyed("k", 60)...)
	ofKey := func() []storage.Row {
		return slices.DeleteFunc(a.pending(), func(row storage.Row) bool { return row.Message.Key == "" })
	}
	var done []storage.Row
	var others []int64
	for i, row := range ofKey() {
		if i%3 == 1 {
			others = append(others, row.ID)
		} else {
			done = append(done, row)
		}
	}
	a.mustSettle(a.allAs(storage.StateDone, done)...)
	wantIDs(t, "pending after other rows of the key were settled", ids(ofKey()), others)
}

// An empty batch can be settled.
func settleAnEmptyBatch(t testing.TB, table Table) {
	a := holder(t, table, "a")
	write(t, table, plain(1)...)
	if got := a.settle(); got != (storage.Settled{}) {
		t.Errorf("settled an empty batch: %+v", got)
	}
}

// One relay settles several batches of the same lanes concurrently. A row that is in two batches
// changes once.
func settleConcurrently(t testing.TB, table Table) {
	const batches, each, shared = 6, 20, 5
	a := holder(t, table, "a")
	fill(t, table, plain(batches*each+shared)...)
	rows := a.pending()
	if len(rows) != batches*each+shared {
		t.Fatalf("%d rows are pending, want %d", len(rows), batches*each+shared)
	}
	var total storage.Settled
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range batches {
		batch := slices.Concat(rows[i*each:(i+1)*each], rows[batches*each:])
		rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
		all.Go(func() {
			counts := settleOrReport(t, a, a.allAs(storage.StateDone, batch)...)
			mu.Lock()
			defer mu.Unlock()
			total.Changed += counts.Changed
			total.Missing += counts.Missing
			total.Fenced += counts.Fenced
		})
	}
	all.Wait()
	if want := (storage.Settled{Changed: len(rows), Missing: shared * (batches - 1)}); total != want {
		t.Errorf("%d batches of %d rows, %d of them in all batches: %+v, want %+v", batches, each+shared, shared, total, want)
	}
	wantIDs(t, "pending after all rows were settled", ids(a.pending()), []int64{})
}

// A settlement that is cancelled while it waits returns immediately. Its result may be unknown,
// because cancelling may drop the connection. But the settlement writes either all or nothing, and
// can be repeated.
func cancelledSettleWritesAllOrNothing(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, plain(2)...)
	rows := a.pending()
	waiting, unlock := lockRow(t, table, written[1])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := a.store.Settle(ctx, a.name, true, a.allAs(storage.StateDone, rows))
		failed <- err
	}()
	eventually(t, "the settlement waits for the row", waiting)
	cancel()
	late := time.AfterFunc(patience/3, unlock)
	err := <-failed
	if inTime := late.Stop(); err == nil || errors.Is(err, storage.ErrBusy) || !inTime {
		t.Errorf("a settlement was cancelled while it waited for a locked row; it returned before the row was unlocked: %t, error: %v", inTime, err)
	}
	unlock()
	counts := a.settle(a.allAs(storage.StateDone, rows)...)
	if counts != (storage.Settled{Changed: 2}) && counts != (storage.Settled{Missing: 2}) {
		t.Errorf("a settlement of 2 rows, repeated after it was cancelled: %+v", counts)
	}
	a.wantState(storage.StateDone, written...)
}
