package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func picks() []storage.Pick { return []storage.Pick{storage.Oldest, storage.Newest, storage.Priority} }

// A claim skips rows that another session has locked: it doesn't wait, and claims other rows.
func claimSkipsLockedRows(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	for _, pick := range picks() {
		written := write(t, table, plain(10)...)
		locked := written[:3]
		if pick == storage.Newest {
			locked = written[7:]
		}
		var unlocks []func()
		for _, id := range locked {
			_, unlock := lockRow(t, table, id)
			unlocks = append(unlocks, unlock)
		}
		free := slices.DeleteFunc(slices.Clone(written), func(id int64) bool { return slices.Contains(locked, id) })
		wantIDs(t, "claimed with the pick "+string(pick)+" while rows are locked", a.claimSoon(pick, 5), someOf(free, pick, 5))
		wantIDs(t, "claimed with the pick "+string(pick)+" a second time", a.claimSoon(pick, 5), someOf(free, pick, -2))
		for _, unlock := range unlocks {
			unlock()
		}
		wantIDs(t, "claimed with the pick "+string(pick)+" after the rows were unlocked", a.claimSoon(pick, 5), locked)
	}
}

// someOf returns the count ids that a claim with this pick takes first or, if count is negative, the -count
// ids that it takes last. The ids must be sorted, and so is the result.
func someOf(ids []int64, pick storage.Pick, count int) []int64 {
	if pick == storage.Newest {
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

// claimSoon claims rows, and fails if the claim takes too long.
func (w *worker) claimSoon(pick storage.Pick, limit int) []int64 {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience/3)
	defer cancel()
	rows, err := w.store.Claim(ctx, storage.ClaimRequest{Relay: w.name, Token: newToken(), TTL: long, Limit: limit, Pick: pick})
	if err != nil {
		w.Errorf("claim with the pick %s: %v", pick, err)
	}
	return ids(rows)
}

// newToken returns a unique token.
func newToken() string { return outbox.NewID() }

// A claim takes the oldest rows, the newest rows, or the rows of the highest priority first, and
// returns them in that order.
func claimObeysThePick(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	priorities := []int16{0, 5, -1, 5, 0, 9}
	messages := plain(len(priorities))
	for i, priority := range priorities {
		messages[i].Priority = priority
	}
	for pick, order := range map[storage.Pick][]int{
		storage.Oldest:   {0, 1, 2, 3, 4, 5},
		storage.Newest:   {5, 4, 3, 2, 1, 0},
		storage.Priority: {5, 1, 3, 0, 4, 2},
	} {
		written := write(t, table, messages...)
		for _, part := range [][]int{order[:2], order[2:5], order[5:]} {
			var want []int64
			for _, i := range part {
				want = append(want, written[i])
			}
			wantIDs(t, "claimed with the pick "+string(pick), inOrder(a.claim(storage.ClaimRequest{Token: newToken(), Limit: len(part), Pick: pick})), want)
		}
		if rest := a.claim(storage.ClaimRequest{Token: newToken(), Limit: 10, Pick: pick}); len(rest) != 0 {
			t.Errorf("rows %v were claimed twice", inOrder(rest))
		}
	}
}

// A claim can be limited to some topics, or leave some topics out.
func claimObeysTopics(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	topics := []string{"a", "A", "a ", "b", "c", `d'"\`} // "a" and "a " are different topics
	var messages []outbox.Message
	for _, topic := range topics {
		messages = append(messages, outbox.Message{Topic: topic})
	}
	tests := []struct{ topics, except, want []string }{
		{nil, nil, topics},
		{[]string{"a"}, nil, []string{"a"}},
		{[]string{"b", `d'"\`}, nil, []string{"b", `d'"\`}},
		{nil, []string{"a", "c"}, []string{"A", "a ", "b", `d'"\`}},
		{nil, []string{"a ", "c"}, []string{"A", "a", "b", `d'"\`}},
		{[]string{"a "}, nil, []string{"a "}},
		{[]string{"b", "c"}, []string{"c", "A"}, []string{"b"}},
		{[]string{"none"}, nil, nil},
	}
	for _, pick := range picks() {
		for _, test := range tests {
			write(t, table, messages...)
			var got []string
			for _, row := range a.claim(storage.ClaimRequest{Token: newToken(), Limit: 10, Pick: pick, Topics: test.topics, Except: test.except}) {
				got = append(got, row.Message.Topic)
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(test.want)); !slices.Equal(got, want) {
				t.Errorf("claimed topics %v except %v: %v, want %v", test.topics, test.except, got, want)
			}
			a.claim(storage.ClaimRequest{Token: newToken(), Limit: plenty})
		}
	}
}
