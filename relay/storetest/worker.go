package storetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
)

const (
	long  = time.Minute            // a lease that doesn't end within a check
	short = 250 * time.Millisecond // a lease that a check lets end

	patience = 30 * time.Second // for what must happen sooner or later
	pause    = 3 * time.Millisecond

	// slack is how much earlier than due something may happen: databases keep
	// times in milliseconds, some rounded.
	slack = 5 * time.Millisecond

	plenty      = 10_000  // rows
	plentyBytes = 1 << 30 // of payload
)

// worker is one relay at work on the table. Its methods are for the test's own
// goroutine: they end the test when the store fails.
type worker struct {
	testing.TB
	store  Store
	name   string
	fences map[int]int64
}

// hire returns a worker that holds no lane.
func hire(t testing.TB, table Table, name string) *worker {
	return &worker{TB: t, store: table.Store(t), name: name, fences: map[int]int64{}}
}

// holder returns a worker that holds all lanes.
func holder(t testing.TB, table Table, name string) *worker {
	t.Helper()
	w := hire(t, table, name)
	if got := len(w.acquire(relay.Lanes, long)); got != relay.Lanes {
		t.Fatalf("%s acquired %d free lanes, want all %d", name, got, relay.Lanes)
	}
	return w
}

// do makes a call, again while the database is busy, and ends the test if it
// fails.
func (w *worker) do(what string, call func(ctx context.Context) error) {
	w.Helper()
	if err := again(w, call); err != nil {
		w.Fatalf("%s by %s: %v", what, w.name, err)
	}
}

// again makes a call, again while the database is busy.
func again(t testing.TB, call func(ctx context.Context) error) error {
	for start := time.Now(); ; time.Sleep(pause) {
		err := call(t.Context())
		if !errors.Is(err, relay.ErrBusy) || time.Since(start) > patience {
			return err
		}
	}
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); time.Sleep(pause) {
		if time.Since(start) > patience {
			t.Fatalf("waited %v in vain for this: %s", patience, what)
		}
	}
}

func (w *worker) acquire(count int, ttl time.Duration) (grants []relay.Grant) {
	w.Helper()
	w.do("acquire", func(ctx context.Context) (err error) {
		grants, err = w.store.Acquire(ctx, w.name, count, ttl)
		return err
	})
	for _, grant := range grants {
		w.fences[grant.Lane] = grant.Fence
	}
	return grants
}

// takeOver acquires lanes until it has so many more.
func (w *worker) takeOver(count int, ttl time.Duration) (grants []relay.Grant) {
	w.Helper()
	eventually(w, w.name+" takes over "+strconv.Itoa(count)+" lanes", func() bool {
		grants = append(grants, w.acquire(count-len(grants), ttl)...)
		return len(grants) >= count
	})
	return grants
}

func (w *worker) renew(ttl time.Duration, renewals ...relay.Renewal) (held []relay.Lease) {
	w.Helper()
	w.do("renew", func(ctx context.Context) (err error) {
		held, err = w.store.Renew(ctx, w.name, renewals, ttl)
		return err
	})
	return held
}

func (w *worker) release(renewals ...relay.Renewal) {
	w.Helper()
	w.do("release", func(ctx context.Context) error { return w.store.Release(ctx, w.name, renewals) })
}

// lease is the worker's right to the lane, as far as it knows.
func (w *worker) lease(lane int) relay.Lease {
	return relay.Lease{Lane: lane, Fence: w.fences[lane]}
}

func (w *worker) read(positions []relay.Position, limit, maxBytes int) (page relay.Page) {
	w.Helper()
	w.do("read", func(ctx context.Context) (err error) {
		page, err = w.store.Read(ctx, positions, limit, maxBytes)
		return err
	})
	return page
}

// pending reads everything that is to be delivered now.
func (w *worker) pending() []relay.Row {
	w.Helper()
	return w.read(everything(), plenty, plentyBytes).Rows
}

// row reads one pending row.
func (w *worker) row(id int64) relay.Row {
	w.Helper()
	rows := w.pending()
	at := slices.IndexFunc(rows, func(row relay.Row) bool { return row.ID == id })
	if at < 0 {
		w.Fatalf("row %d is not pending; pending are %v", id, ids(rows))
	}
	return rows[at]
}

func (w *worker) due() (rows []relay.Row) {
	w.Helper()
	w.do("due", func(ctx context.Context) (err error) {
		rows, _, err = w.store.Due(ctx, lanes(), relay.DueCursor{}, plenty, plentyBytes)
		return err
	})
	return rows
}

func (w *worker) heldKeys() (keys []relay.HeldKey) {
	w.Helper()
	w.do("held keys", func(ctx context.Context) (err error) {
		keys, err = w.store.HeldKeys(ctx, lanes(), plenty)
		return err
	})
	return keys
}

// as is the row's settlement in a new state, and nothing else changed.
func (w *worker) as(state relay.State, row relay.Row) relay.Settlement {
	return relay.Settlement{
		ID: row.ID, Lane: row.Lane, Fence: w.fences[row.Lane], Held: row.Held,
		State: state, Attempts: row.Attempts, Crashes: row.Crashes,
	}
}

func (w *worker) allAs(state relay.State, rows []relay.Row) []relay.Settlement {
	settlements := make([]relay.Settlement, len(rows))
	for i, row := range rows {
		settlements[i] = w.as(state, row)
	}
	return settlements
}

// settle keeps done rows.
func (w *worker) settle(settlements ...relay.Settlement) (counts relay.Settled) {
	w.Helper()
	w.do("settle", func(ctx context.Context) (err error) {
		counts, err = w.store.Settle(ctx, w.name, true, settlements)
		return err
	})
	return counts
}

// mustSettle requires that every settlement changed its row.
func (w *worker) mustSettle(settlements ...relay.Settlement) {
	w.Helper()
	if got, want := w.settle(settlements...), (relay.Settled{Changed: len(settlements)}); got != want {
		w.Fatalf("settle by %s: %+v, want %+v", w.name, got, want)
	}
}

func (w *worker) list(filter relay.Filter) (infos []relay.Info) {
	w.Helper()
	w.do("list", func(ctx context.Context) (err error) {
		infos, err = w.store.List(ctx, filter)
		return err
	})
	return infos
}

// info is what is known of one row.
func (w *worker) info(id int64) relay.Info {
	w.Helper()
	infos := w.list(relay.Filter{IDs: []string{strconv.FormatInt(id, 10)}})
	if len(infos) != 1 || infos[0].ID != id {
		w.Fatalf("the list has %d rows for id %d, want it alone", len(infos), id)
	}
	return infos[0]
}

// wantState requires that the rows are in this state.
func (w *worker) wantState(want relay.State, ids ...int64) {
	w.Helper()
	for _, id := range ids {
		if got := w.info(id).State; got != want {
			w.Errorf("row %d is %s, want %s", id, got, want)
		}
	}
}

func (w *worker) requeue(filter relay.Filter) (count int) {
	w.Helper()
	w.do("requeue", func(ctx context.Context) (err error) {
		count, err = w.store.Requeue(ctx, filter)
		return err
	})
	return count
}

func (w *worker) discard(filter relay.Filter) (count int) {
	w.Helper()
	w.do("discard", func(ctx context.Context) (err error) {
		count, err = w.store.Discard(ctx, filter)
		return err
	})
	return count
}

func (w *worker) status() (status relay.Status) {
	w.Helper()
	w.do("status", func(ctx context.Context) (err error) {
		status, err = w.store.Status(ctx)
		return err
	})
	return status
}

// write inserts messages in one transaction of their own.
func write(t testing.TB, table Table, messages ...outbox.Message) []int64 {
	tx := table.Begin(t)
	written := make([]int64, len(messages))
	for i, message := range messages {
		written[i] = tx.Insert(message)
	}
	tx.Commit()
	return written
}

// lockRow locks a row as another session.
func lockRow(t testing.TB, table Table, id int64) (waiting func() bool, unlock func()) {
	t.Helper()
	locker, able := table.(RowLocker)
	if !able {
		t.Fatal("the harness's tables can't lock rows: implement RowLocker, or set OneWriter")
	}
	return locker.LockRow(t, id)
}

// plain makes messages without a key, and so in many lanes.
func plain(count int) []outbox.Message {
	messages := make([]outbox.Message, count)
	for i := range messages {
		messages[i] = outbox.Message{Topic: "plain", Payload: []byte(strconv.Itoa(i))}
	}
	return messages
}

// keyed makes messages of one key, and so in one lane.
func keyed(key string, count int) []outbox.Message {
	messages := plain(count)
	for i := range messages {
		messages[i].Key = key
	}
	return messages
}

func lanes() []int {
	all := make([]int, relay.Lanes)
	for i := range all {
		all[i] = i
	}
	return all
}

// everything is all lanes from their start.
func everything() []relay.Position {
	positions := make([]relay.Position, relay.Lanes)
	for i := range positions {
		positions[i].Lane = i
	}
	return positions
}

// ids returns the rows' ids, sorted.
func ids(rows []relay.Row) []int64 {
	found := inOrder(rows)
	slices.Sort(found)
	return found
}

// inOrder returns the rows' ids as they stand.
func inOrder(rows []relay.Row) []int64 {
	found := make([]int64, len(rows))
	for i, row := range rows {
		found[i] = row.ID
	}
	return found
}

// wantIDs requires that the ids are these.
func wantIDs(t testing.TB, what string, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: rows %v, want %v", what, got, want)
	}
}
