package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
)

// byRows returns a worker on a table that is claimed by rows.
func byRows(t testing.TB, table Table, name string) *worker {
	t.Helper()
	w := hire(t, table, name)
	w.do("adopt", func(ctx context.Context) error { return w.store.Adopt(ctx, relay.ByRows) })
	return w
}

func (w *worker) claim(request relay.ClaimRequest) (rows []relay.Row) {
	w.Helper()
	request.Relay = w.name
	if request.TTL == 0 {
		request.TTL = long
	}
	w.do("claim", func(ctx context.Context) (err error) {
		rows, err = w.store.Claim(ctx, request)
		return err
	})
	if len(rows) > request.Limit {
		w.Fatalf("claimed %d rows, the limit was %d", len(rows), request.Limit)
	}
	return rows
}

// claimed is the settlement of a row that was claimed with the token.
func claimed(token string, state relay.State, row relay.Row) relay.Settlement {
	return relay.Settlement{ID: row.ID, Lane: row.Lane, Token: token, State: state, Attempts: row.Attempts, Crashes: row.Crashes}
}

func allClaimed(token string, state relay.State, rows []relay.Row) []relay.Settlement {
	settlements := make([]relay.Settlement, len(rows))
	for i, row := range rows {
		settlements[i] = claimed(token, state, row)
	}
	return settlements
}

// freed calls Reclaim until it has freed so many rows.
func (w *worker) freed(count int) {
	w.Helper()
	total := 0
	eventually(w, strconv.Itoa(count)+" rows are made free", func() bool {
		w.do("reclaim", func(ctx context.Context) error {
			n, err := w.store.Reclaim(ctx, plenty)
			total += n
			return err
		})
		return total >= count
	})
	if total != count {
		w.Errorf("reclaimed %d rows, want %d", total, count)
	}
}

func picks() []relay.Pick { return []relay.Pick{relay.Oldest, relay.Newest, relay.Priority} }

// Thirty consumers on a hundred rows: each row is claimed once, no claim is
// over its limit, and none comes back empty while there are free rows.
func claimsAreDistinct(t testing.TB, table Table) {
	const consumers, count, limit = 30, 100, 4
	byRows(t, table, "first")
	messages := plain(count)
	for i := range messages {
		messages[i].Priority = int16(i % 3)
	}
	for _, pick := range picks() {
		written := write(t, table, messages...)
		claims := make([][]relay.Row, consumers)
		var all sync.WaitGroup
		for i := range consumers {
			store := table.Store(t)
			request := relay.ClaimRequest{Relay: fmt.Sprint(pick, i), Token: fmt.Sprint(pick, i), TTL: long, Limit: limit, Pick: pick}
			all.Go(func() {
				if err := again(t, func(ctx context.Context) (err error) {
					claims[i], err = store.Claim(ctx, request)
					return err
				}); err != nil {
					t.Errorf("claim: %v", err)
				}
			})
		}
		all.Wait()
		wantDistinct(t, claims, limit, written)
	}
}

func wantDistinct(t testing.TB, claims [][]relay.Row, limit int, written []int64) {
	t.Helper()
	var got []int64
	for _, claim := range claims {
		if len(claim) > limit {
			t.Errorf("claimed %d rows, the limit was %d", len(claim), limit)
		}
		got = append(got, inOrder(claim)...)
	}
	slices.Sort(got)
	wantIDs(t, strconv.Itoa(len(claims))+" claims at once", got, written)
}

// A claim passes over rows that another session has locked: it waits for
// nobody, and is filled with others.
func claimPassesOverLockedRows(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	for _, pick := range picks() {
		written := write(t, table, plain(10)...)
		locked := written[:3]
		if pick == relay.Newest {
			locked = written[7:]
		}
		var unlocks []func()
		for _, id := range locked {
			_, unlock := lockRow(t, table, id)
			unlocks = append(unlocks, unlock)
		}
		free := slices.DeleteFunc(slices.Clone(written), func(id int64) bool { return slices.Contains(locked, id) })
		wantIDs(t, "claimed by "+string(pick)+" beside locked rows", a.claimSoon(pick, 5), someOf(free, pick, 5))
		wantIDs(t, "claimed by "+string(pick)+" then", a.claimSoon(pick, 5), someOf(free, pick, -2))
		for _, unlock := range unlocks {
			unlock()
		}
		wantIDs(t, "claimed by "+string(pick)+" when unlocked", a.claimSoon(pick, 5), locked)
	}
}

// someOf returns the first so many by the order of the pick, or the last ones,
// sorted.
func someOf(ids []int64, pick relay.Pick, count int) []int64 {
	if pick == relay.Newest {
		count = -count
		if count > 0 {
			return ids[:count]
		}
		return ids[len(ids)+count:]
	}
	if count < 0 {
		return ids[len(ids)+count:]
	}
	return ids[:count]
}

// claimSoon claims rows and gives up if that takes long.
func (w *worker) claimSoon(pick relay.Pick, limit int) []int64 {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience/3)
	defer cancel()
	rows, err := w.store.Claim(ctx, relay.ClaimRequest{Relay: w.name, Token: newToken(), TTL: long, Limit: limit, Pick: pick})
	if err != nil {
		w.Errorf("claim by %s: %v", pick, err)
	}
	return ids(rows)
}

// newToken is unique.
func newToken() string { return outbox.NewID() }

// A claim takes the oldest first, or the newest, or the highest priority, and
// returns them in that order.
func claimPicks(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	priorities := []int16{0, 5, -1, 5, 0, 9}
	messages := plain(len(priorities))
	for i, priority := range priorities {
		messages[i].Priority = priority
	}
	for pick, order := range map[relay.Pick][]int{
		relay.Oldest:   {0, 1, 2, 3, 4, 5},
		relay.Newest:   {5, 4, 3, 2, 1, 0},
		relay.Priority: {5, 1, 3, 0, 4, 2},
	} {
		written := write(t, table, messages...)
		for _, part := range [][]int{order[:2], order[2:5], order[5:]} {
			var want []int64
			for _, i := range part {
				want = append(want, written[i])
			}
			wantIDs(t, "claimed by "+string(pick), inOrder(a.claim(relay.ClaimRequest{Token: newToken(), Limit: len(part), Pick: pick})), want)
		}
		if rest := a.claim(relay.ClaimRequest{Token: newToken(), Limit: 10, Pick: pick}); len(rest) != 0 {
			t.Errorf("claimed twice: %v", inOrder(rest))
		}
	}
}

// A claim can be limited to some topics, and leave out others.
func claimKeepsToTopics(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	topics := []string{"a", "A", "b", "c", `d'"\`}
	var messages []outbox.Message
	for _, topic := range topics {
		messages = append(messages, outbox.Message{Topic: topic})
	}
	tests := []struct{ topics, except, want []string }{
		{nil, nil, topics},
		{[]string{"a"}, nil, []string{"a"}},
		{[]string{"b", `d'"\`}, nil, []string{"b", `d'"\`}},
		{nil, []string{"a", "c"}, []string{"A", "b", `d'"\`}},
		{[]string{"b", "c"}, []string{"c", "A"}, []string{"b"}},
		{[]string{"none"}, nil, nil},
	}
	for _, pick := range picks() {
		for _, test := range tests {
			write(t, table, messages...)
			var got []string
			for _, row := range a.claim(relay.ClaimRequest{Token: newToken(), Limit: 10, Pick: pick, Topics: test.topics, Except: test.except}) {
				got = append(got, row.Message.Topic)
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(test.want)); !slices.Equal(got, want) {
				t.Errorf("claimed topics %v except %v: %v, want %v", test.topics, test.except, got, want)
			}
			a.claim(relay.ClaimRequest{Token: newToken(), Limit: plenty})
		}
	}
}

// A claimed row is whole, and says if its time is still to come.
func claimReturnsTheMessage(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	for _, message := range append(variants(), outbox.Message{ID: outbox.NewID(), Topic: "later", AvailableAt: time.Now().Add(time.Hour)}) {
		id := write(t, table, message)[0]
		rows := a.claim(relay.ClaimRequest{Token: newToken(), Limit: 10})
		if len(rows) != 1 || rows[0].ID != id {
			t.Fatalf("claimed %v, want row %d", inOrder(rows), id)
		}
		wantMessage(t, "claimed", rows[0].Message, message)
		if later := message.Topic == "later"; rows[0].Later != later || rows[0].Held {
			t.Errorf("claimed a row, available at %v, that is later: %t, held: %t", message.AvailableAt, rows[0].Later, rows[0].Held)
		}
		a.wantState(relay.StateClaimed, id)
		if by := a.info(id).ClaimedBy; by != a.name {
			t.Errorf("a row that %s has claimed is claimed by %q", a.name, by)
		}
	}
}
