package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

const (
	long  = time.Hour              // a lease that doesn't end within a check
	short = 250 * time.Millisecond // a lease that ends during a check

	patience = 6 * time.Minute // the maximum time to wait for an asynchronous result
	pause    = 3 * time.Millisecond

	// slack is the tolerance when times are compared, because some databases round times to milliseconds.
	slack = 5 * time.Millisecond

	plenty      = 10_000  // a limit of rows that no result reaches
	plentyBytes = 1 << 30 // a limit of payload bytes that no result reaches
)

// worker is a relay that a check controls. Only the test's goroutine may call its methods, because
// they end the test when the store fails.
type worker struct {
	testing.TB
	store  Store
	name   string
	fences map[int]int64
}

// hire returns a worker without lanes.
func hire(t testing.TB, table Table, name string) *worker {
	return &worker{TB: t, store: table.Store(t), name: name, fences: map[int]int64{}}
}

// holder returns a worker that holds all lanes.
func holder(t testing.TB, table Table, name string) *worker {
	t.Helper()
	w := hire(t, table, name)
	if got := len(w.acquire(storage.Lanes, long)); got != storage.Lanes {
		t.Fatalf("%s acquired %d free lanes, want all %d", name, got, storage.Lanes)
	}
	return w
}

// do makes a call, retries it while the database is busy, and ends the test if it fails.
func (w *worker) do(what string, call func(ctx context.Context) error) {
	w.Helper()
	if err := again(w, call); err != nil {
		w.Fatalf("%s by %s: %v", what, w.name, err)
	}
}

// again makes a call, retries it while the database is busy, and returns its error.
func again(t testing.TB, call func(ctx context.Context) error) error {
	for start := time.Now(); ; time.Sleep(pause) {
		err := call(t.Context())
		if !errors.Is(err, storage.ErrBusy) || time.Since(start) > patience {
			return err
		}
	}
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(pause) {
		if time.Since(start) > patience {
			t.Fatalf("still not true after %v: %s", patience, what)
		}
	}
}

// The method `as` returns the settlement that gives the row a new state and changes nothing else.
func (w *worker) as(state storage.State, row storage.Row) storage.Settlement {
	return storage.Settlement{
		ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: w.fences[row.Lane], Deferred: row.Deferred, Sinks: row.Sinks,
		State: state, Attempts: row.Attempts, Crashes: row.Crashes,
	}
}

func (w *worker) allAs(state storage.State, rows []storage.Row) []storage.Settlement {
	settlements := make([]storage.Settlement, len(rows))
	for i, row := range rows {
		settlements[i] = w.as(state, row)
	}
	return settlements
}

// settle settles rows. Delivered rows are kept.
func (w *worker) settle(settlements ...storage.Settlement) (counts storage.Settled) {
	w.Helper()
	w.do("settle", func(ctx context.Context) (err error) {
		counts, err = w.store.Settle(ctx, w.name, true, settlements)
		return err
	})
	return counts
}

// mustSettle requires that every settlement changed its row.
func (w *worker) mustSettle(settlements ...storage.Settlement) {
	w.Helper()
	if got, want := w.settle(settlements...), (storage.Settled{Changed: len(settlements)}); got != want {
		w.Fatalf("settle by %s: %+v, want %+v", w.name, got, want)
	}
}
