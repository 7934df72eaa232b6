package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Reclaim frees the rows of an expired claim and no others, and counts a crash for each. The rows
// can then be claimed again, and only the new claim can settle them.
func reclaimFreesExpiredClaims(t testing.TB, table Table) {
	a, b := byRows(t, table, "a"), byRows(t, table, "b")
	written := write(t, table, plain(5)...)
	start := time.Now()
	ended := a.claim(storage.ClaimRequest{Token: "ended", Limit: 2, TTL: short})
	lasting := a.claim(storage.ClaimRequest{Token: "lasting", Limit: 2})
	b.freed(2)
	if waited := time.Since(start); waited < short-slack {
		t.Errorf("claims of %v were freed after %v", short, waited)
	}
	if got, want := a.settle(allClaimed("ended", storage.StateDone, ended)...), (storage.Settled{Fenced: 2}); got != want {
		t.Errorf("settled with a claim that had expired: %+v, want %+v", got, want)
	}
	again := b.claim(storage.ClaimRequest{Token: "again", Limit: 5, Unprompted: true})
	wantIDs(t, "claimed again", ids(again), slices.Concat(ids(ended), written[4:]))
	for _, row := range again {
		if want := map[bool]int{true: 1}[row.ID != written[4]]; row.Crashes != want || row.Attempts != 0 {
			t.Errorf("row %d has %d crashes and %d attempts, want %d and 0", row.ID, row.Crashes, row.Attempts, want)
		}
	}
	if got, want := a.settle(allClaimed("ended", storage.StateError, ended)...), (storage.Settled{Fenced: 2}); got != want {
		t.Errorf("settled rows that another relay has claimed: %+v, want %+v", got, want)
	}
	a.mustSettle(allClaimed("lasting", storage.StateDone, lasting)...)
	b.mustSettle(allClaimed("again", storage.StateDone, again)...)
}

// If several relays call Reclaim concurrently, each expired claim is freed once.
func reclaimConcurrently(t testing.TB, table Table) {
	const count, relays = 40, 5
	a := byRows(t, table, "a")
	write(t, table, plain(count)...)
	a.claim(storage.ClaimRequest{Token: "ended", Limit: count, TTL: short})
	var mu sync.Mutex
	var all sync.WaitGroup
	total := 0
	start := time.Now()
	for range relays {
		store := table.Store(t)
		all.Go(func() {
			for enough := false; !enough && time.Since(start) < patience; time.Sleep(pause) {
				var n int
				if err := again(t, func(ctx context.Context) (err error) {
					n, err = store.Reclaim(ctx, 7)
					return err
				}); err != nil || n > 7 {
					t.Errorf("Reclaim with a limit of 7 returned %d and the error %v", n, err)
				}
				mu.Lock()
				total += n
				enough = total >= count
				mu.Unlock()
			}
		})
	}
	all.Wait()
	rows := a.claim(storage.ClaimRequest{Token: "again", Limit: plenty})
	crashed := slices.IndexFunc(rows, func(row storage.Row) bool { return row.Crashes != 1 })
	if total != count || len(rows) != count || crashed >= 0 {
		t.Errorf("freed %d rows and claimed %d again, want %d; the first row that doesn't have exactly one crash has the index %d (-1: none)", total, len(rows), count, crashed)
	}
}

// A claim that was extended does not expire at its original end. Extend changes only the rows that
// are still claimed with the token.
func extendKeepsTheClaim(t testing.TB, table Table) {
	a, b := byRows(t, table, "a"), byRows(t, table, "b")
	write(t, table, plain(4)...)
	rows := ids(a.claim(storage.ClaimRequest{Token: "one", Limit: 4, TTL: short}))
	wantIDs(t, "extended with another's token", a.extend("two", rows), nil)
	wantIDs(t, "extended", a.extend("one", rows[:2]), rows[:2])
	b.freed(2)
	freed := ids(b.claim(storage.ClaimRequest{Token: "two", Limit: 4}))
	wantIDs(t, "claimed after the expiry", freed, rows[2:])
	wantIDs(t, "extended by the old holder, which has lost some rows", a.extend("one", rows), rows[:2])
	wantIDs(t, "extended by the new holder", b.extend("two", rows), rows[2:])
}

func (w *worker) extend(token string, ids []int64) (still []int64) {
	w.Helper()
	w.do("extend", func(ctx context.Context) (err error) {
		still, err = w.store.Extend(ctx, token, ids, long)
		return err
	})
	slices.Sort(still)
	return still
}

// Reclaim moves deferred rows back when they are due, and keeps their attempts. It doesn't move parked
// rows.
func reclaimMovesDueRowsBack(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	write(t, table, plain(5)...)
	rows := a.claim(storage.ClaimRequest{Token: "one", Limit: 5})
	settlements := allClaimed("one", storage.StateRetry, rows)
	settlements[0].Attempts, settlements[0].Error = 3, "boom"
	settlements[1].Delay = time.Hour
	settlements[2].State = storage.StateError
	settlements[3].State = storage.StateScheduled
	settlements[4].State = storage.StateDone
	a.mustSettle(settlements...)
	if rest := a.claim(storage.ClaimRequest{Token: "rest", Limit: 5}); len(rest) != 0 {
		t.Errorf("claimed deferred rows: %v", inOrder(rest))
	}
	a.freed(2)
	back := a.claim(storage.ClaimRequest{Token: "two", Limit: 5})
	wantIDs(t, "moved back", inOrder(back), []int64{rows[0].ID, rows[3].ID})
	for _, row := range back[:min(1, len(back))] {
		if row.Attempts != 3 || row.Deferred {
			t.Errorf("a row that was moved back has %d attempts, want 3, and is deferred: %t", row.Attempts, row.Deferred)
		}
	}
	a.wantState(storage.StateRetry, rows[1].ID)
	a.wantState(storage.StateError, rows[2].ID)
	a.wantState(storage.StateDone, rows[4].ID)
	if info := a.info(rows[0].ID); info.LastError != "boom" || info.State != storage.StateClaimed {
		t.Errorf("a row that was moved back and claimed: %+v", info)
	}
}

// A row can be settled to each state, but only with the token of its claim. A repeated settlement
// changes nothing: the row counts as missing or, if it was settled as pending, as fenced.
func settleByToken(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	for _, state := range append(states(), storage.StatePending) {
		id := write(t, table, plain(1)...)[0]
		row := a.claim(storage.ClaimRequest{Token: "right", Limit: 1})[0]
		if got, want := a.settle(claimed("wrong", state, row)), (storage.Settled{Fenced: 1}); got != want {
			t.Errorf("settled as %s with a wrong token: %+v, want %+v", state, got, want)
		}
		a.wantState(storage.StateClaimed, id)
		a.mustSettle(claimed("right", state, row))
		want := storage.Settled{Missing: 1}
		if state == storage.StatePending {
			want = storage.Settled{Fenced: 1} // the row exists and is not claimed
		}
		if got := a.settle(claimed("right", state, row)); got != want {
			t.Errorf("settled as %s again: %+v, want %+v", state, got, want)
		}
		a.claim(storage.ClaimRequest{Token: newToken(), Limit: 1})
	}
}

// A row that is settled as pending can be claimed again immediately, and keeps the attempts and
// crashes that the settlement wrote.
func settleAsPendingFreesTheRow(t testing.TB, table Table) {
	a, b := byRows(t, table, "a"), byRows(t, table, "b")
	id := write(t, table, plain(1)...)[0]
	rows := a.claim(storage.ClaimRequest{Token: "one", Limit: 1})
	back := allClaimed("one", storage.StatePending, rows)
	back[0].Attempts, back[0].Crashes = 2, 1
	a.mustSettle(back...)
	a.wantState(storage.StatePending, id)
	rows = b.claim(storage.ClaimRequest{Token: "two", Limit: 1})
	if len(rows) != 1 || rows[0].ID != id || rows[0].Attempts != 2 || rows[0].Crashes != 1 {
		t.Errorf("settled as pending with 2 attempts and 1 crash, and claimed again: %+v", rows)
	}
}
