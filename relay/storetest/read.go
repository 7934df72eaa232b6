package storetest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Read returns only rows that match its positions: the lane, After, Until and the key.
func readObeysPositions(t testing.TB, table Table) {
	a := holder(t, table, "a")
	one := write(t, table, keyed("one", 6)...)
	lane := a.row(one[0]).Lane
	two := write(t, table, keyed(sameLane(a, table, lane), 3)...)
	fill(t, table, plain(2*storage.Lanes)...)
	all := map[int][]int64{}
	for _, row := range a.pending() {
		all[row.Lane] = append(all[row.Lane], row.ID)
	}
	key := a.row(two[0]).Message.Key
	tests := []struct {
		what     string
		position storage.Position
		want     []int64
	}{
		{"a lane", storage.Position{Lane: lane}, all[lane]},
		{"another lane", storage.Position{Lane: (lane + 1) % storage.Lanes}, all[(lane+1)%storage.Lanes]},
		{"after the second row of a key", storage.Position{Lane: lane, After: one[1], Key: "one"}, one[2:]},
		{"up to the third row of a key", storage.Position{Lane: lane, Until: one[2], Key: "one"}, one[:3]},
		{"between", storage.Position{Lane: lane, After: one[0], Until: one[2]}, one[1:3]},
		{"nothing", storage.Position{Lane: lane, After: all[lane][len(all[lane])-1]}, []int64{}},
		{"the other key", storage.Position{Lane: lane, Key: key}, two},
		{"a key that is in another lane", storage.Position{Lane: (lane + 1) % storage.Lanes, Key: "one"}, []int64{}},
	}
	for _, test := range tests {
		page := a.read([]storage.Position{test.position}, plenty, plentyBytes)
		wantIDs(t, test.what, inOrder(page.Rows), test.want)
		wantIDs(t, "scan of "+test.what, inOrder(a.scan([]storage.Position{test.position}, nil)), test.want)
		if page.More {
			t.Errorf("%s: a page of %d rows has More set", test.what, len(page.Rows))
		}
	}
}

// sameLane returns another key of the lane. It writes rows with different keys until one is in the lane,
// and settles these rows.
func sameLane(w *worker, table Table, lane int) string {
	for i := 0; i < plenty; i += 100 {
		messages := plain(100)
		for j := range messages {
			messages[j].Key = "key-" + time.Duration(i+j).String()
		}
		write(w, table, messages...)
		found := ""
		for _, row := range w.pending() {
			if row.Message.Key == "one" {
				continue
			}
			if row.Lane == lane {
				found = row.Message.Key
			}
			w.mustSettle(w.as(storage.StateDone, row))
		}
		if found != "" {
			return found
		}
	}
	w.Fatalf("none of %d keys is in lane %d", plenty, lane)
	return ""
}

// A lane's rows are returned in the order of ids. If a page reaches its limit, it leaves out only
// the last rows of each lane.
func readInOrder(t testing.TB, table Table) {
	a := holder(t, table, "a")
	write(t, table, slices.Concat(keyed("a", 7), plain(40), keyed("b", 7), keyed("a", 7), plain(40))...)
	all := byLane(a.pending())
	for _, limit := range []int{1, 2, 7, 30, 100} {
		positions := everything()
		var got []storage.Row
		for more := true; more; {
			page := a.read(positions, limit, plentyBytes)
			if len(page.Rows) > limit {
				t.Fatalf("%d rows were read, the limit was %d", len(page.Rows), limit)
			}
			got = append(got, page.Rows...)
			wantThrough(t, page, all, got)
			for _, row := range page.Rows {
				positions[row.Lane].After = max(positions[row.Lane].After, row.ID)
			}
			more = page.More && len(page.Rows) > 0 && len(got) < plenty
		}
		for lane, want := range all {
			wantIDs(t, "all pages of a lane", byLane(got)[lane], want)
		}
	}
}

// wantThrough requires that a page with More set, together with the earlier pages, has all rows with ids up to the page's Through.
func wantThrough(t testing.TB, page storage.Page, all map[int][]int64, got []storage.Row) {
	t.Helper()
	if !page.More {
		return
	}
	there := ids(got)
	for _, id := range slices.Concat(slices.Collect(maps.Values(all))...) {
		if id <= page.Through && !slices.Contains(there, id) {
			t.Errorf("a page has Through %d, but row %d is missing", page.Through, id)
		}
	}
}

// byLane groups the ids of the rows by lane, and keeps their order.
func byLane(rows []storage.Row) map[int][]int64 {
	groups := map[int][]int64{}
	for _, row := range rows {
		groups[row.Lane] = append(groups[row.Lane], row.ID)
	}
	return groups
}

// A full page reports that more rows exist. It may begin with a row of the first position in
// the list, or with the oldest row of all lanes. Otherwise a lane with a high number could starve.
func readFirstPositionsFirst(t testing.TB, table Table) {
	a := holder(t, table, "a")
	fill(t, table, plain(6*storage.Lanes)...)
	all := a.pending()
	low, high := busiest(all)
	oldest := byLane(all)[high][0]
	there := map[int]storage.Position{low: {Lane: low, After: oldest}, high: {Lane: high}}
	for _, order := range [][]int{{low, high}, {high, low}} {
		for _, limit := range []int{1, 2} {
			page := a.read([]storage.Position{there[order[0]], there[order[1]]}, limit, plentyBytes)
			if len(page.Rows) > limit || !page.More {
				t.Errorf("read %d of about 12 rows with a limit of %d, More: %t", len(page.Rows), limit, page.More)
			}
			if len(page.Rows) == 0 || page.Rows[0].Lane != order[0] && page.Rows[0].ID != oldest {
				t.Errorf("read lanes %v with a limit of %d; want the first row to be in the first lane or to be the oldest", order, limit)
			}
		}
	}
}

// busiest returns the two lanes with the most rows, the lower one first. A check can't know these
// lanes in advance, because messages without a key may be in any lane.
func busiest(rows []storage.Row) (low, high int) {
	groups := byLane(rows)
	lanes := slices.SortedFunc(maps.Keys(groups), func(a, b int) int { return cmp.Compare(len(groups[b]), len(groups[a])) })
	return min(lanes[0], lanes[1]), max(lanes[0], lanes[1])
}

// A page ends when it reaches its limit of bytes, but has at least one row, and reports that more
// rows exist.
func readObeysTheByteLimit(t testing.TB, table Table) {
	const size, count = 1000, 10
	a := holder(t, table, "a")
	message := outbox.Message{Topic: "t", Key: "k", Payload: make([]byte, size)}
	written := write(t, table, slices.Repeat([]outbox.Message{message}, count)...)
	for _, maxBytes := range []int{1, size - 1, size, size + 1, 3*size + 1, count*size - 1} {
		page := a.read(everything(), plenty, maxBytes)
		// A store may return the row that exceeds the limit of bytes, or leave it out.
		if least, most := max(1, maxBytes/size), maxBytes/size+1; len(page.Rows) < least || len(page.Rows) > most {
			t.Errorf("a page of at most %d bytes, with messages of %d bytes, has %d rows, want %d to %d", maxBytes, size, len(page.Rows), least, most)
		}
		wantIDs(t, "the page", inOrder(page.Rows), written[:min(count, len(page.Rows))])
		if !page.More && len(page.Rows) < count {
			t.Errorf("a page has %d of %d rows, but More is not set", len(page.Rows), count)
		}
	}
	for _, row := range a.pending() {
		a.mustSettle(a.as(storage.StateRetry, row))
	}
	a.do("due", func(ctx context.Context) error {
		rows, _, err := a.store.Due(ctx, lanes(), storage.DueCursor{}, plenty, 3*size)
		if len(rows) < 3 || len(rows) > 4 {
			t.Errorf("Due returned %d rows of %d bytes with a limit of %d bytes, want 3 or 4 rows", len(rows), size, 3*size)
		}
		return err
	})
}
