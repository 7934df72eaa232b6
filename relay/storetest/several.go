package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// These checks are about messages that several sinks need. One row names the sinks that still need
// the message, and separate rows have the message's states for the other sinks.

// part returns a settlement of the row for some of its sinks.
func (w *worker) part(state storage.State, row storage.Row, part, left string) storage.Settlement {
	s := w.as(state, row)
	s.For, s.Left = part, left
	return s
}

// parts returns the rows of a message, each with its sinks and state, sorted.
func (w *worker) parts(id int64) (infos []storage.Info) {
	w.Helper()
	infos = w.list(storage.Filter{IDs: []string{strconv.FormatInt(id, 10)}})
	if len(infos) == 0 {
		w.Fatalf("row %d is gone", id)
	}
	slices.SortFunc(infos, func(a, b storage.Info) int { return strings.Compare(a.Sinks, b.Sinks) })
	return infos
}

// wantParts requires that a message has exactly these rows. The argument want has the sinks and the state of each row:
// "b done" is a delivered row of sink b.
func (w *worker) wantParts(what string, id int64, want ...string) {
	w.Helper()
	var got []string
	for _, info := range w.list(storage.Filter{IDs: []string{strconv.FormatInt(id, 10)}}) {
		got = append(got, strings.TrimSpace(info.Sinks+" "+string(info.State)))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		w.Errorf("%s: the message has the rows %q, want %q", what, got, want)
	}
}

// waiting returns the row with these sinks if it is pending, or deferred and due.
func (w *worker) waiting(id int64, sinks string) storage.Row {
	w.Helper()
	rows := append(w.pending(), w.due()...)
	at := slices.IndexFunc(rows, func(row storage.Row) bool { return row.ID == id && row.Sinks == sinks })
	if at < 0 {
		w.Fatalf("no row with id %d waits for the sinks %q", id, sinks)
	}
	return rows[at]
}

// waitingAt writes a message and returns its row, pending or deferred.
func (w *worker) waitingAt(table Table, held bool, message outbox.Message) storage.Row {
	w.Helper()
	id := write(w, table, message)[0]
	if held {
		w.mustSettle(w.as(storage.StateRetry, w.row(id)))
	}
	return w.waiting(id, "")
}

// A settlement for some of a message's sinks writes a separate row for these sinks. The message's row stays
// in its table, unchanged except for its sinks. A repeated settlement changes nothing. The settlement for
// the remaining sinks moves the message's row.
func settleForSome(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for _, held := range []bool{false, true} {
		stays := storage.StatePending
		if held {
			stays = storage.StateRetry
		}
		for _, state := range []storage.State{storage.StateDone, storage.StateRetry, storage.StateError, storage.StateDiscarded} {
			what := fmt.Sprintf("a %s row, settled as %s for one sink", stays, state)
			row := a.waitingAt(table, held, outbox.Message{Topic: "several", Key: "k", Payload: []byte("p"), Headers: map[string]string{"h": "v"}})
			part := a.part(state, row, "a", "b,c")
			part.Attempts, part.Crashes, part.Error = 3, 1, "why"
			if state == storage.StateDone {
				part.Receipt = "r"
			}
			want := []string{"a " + string(state), "b,c " + string(stays)}
			if state == storage.StateDiscarded {
				want = want[1:]
			}
			a.mustSettle(part)
			a.wantParts(what, row.ID, want...)
			rows := a.parts(row.ID)
			for _, got := range rows[:len(rows)-1] {
				same := got.Lane == row.Lane && got.Message.ID == row.Message.ID && got.Message.Key == "k" && string(got.Message.Payload) == "p" && got.Message.Headers["h"] == "v"
				if !same || got.Attempts != 3 || got.Crashes != 1 || got.LastError != "why" || got.Receipt != part.Receipt {
					t.Errorf("%s: the written row is %+v, the row was %+v", what, got, row)
				}
			}
			if left := rows[len(rows)-1]; left.Attempts != row.Attempts || left.Crashes != row.Crashes || left.LastError != "" || !left.Message.AvailableAt.Equal(row.Message.AvailableAt) {
				t.Errorf("%s: the row was %+v and is now %+v", what, row, left)
			}
			if got, again := a.settle(part), (storage.Settled{Missing: 1}); got != again {
				t.Errorf("%s, settled again: %+v, want %+v", what, got, again)
			}
			a.wantParts(what+", settled again", row.ID, want...)
			a.mustSettle(a.as(storage.StateDone, a.waiting(row.ID, "b,c")))
			want[len(want)-1] = "b,c done"
			a.wantParts(what+", and then settled for the other sinks", row.ID, want...)
		}
	}
}

// If delivered rows aren't kept, no separate row is written for a delivery. For any other state, a
// separate row is still written.
func settleForSomeWithoutDoneRows(t testing.TB, table Table) {
	a := holder(t, table, "a")
	row := a.waitingAt(table, false, outbox.Message{Topic: "several"})
	for _, part := range []storage.Settlement{a.part(storage.StateDone, row, "a", "b,c"), a.part(storage.StateError, row, "b", "c")} {
		part.Sinks = a.row(row.ID).Sinks
		a.do("settle", func(ctx context.Context) error {
			counts, err := a.store.Settle(ctx, a.name, false, []storage.Settlement{part})
			if want := (storage.Settled{Changed: 1}); err == nil && counts != want {
				t.Errorf("settled for %s: %+v, want %+v", part.For, counts, want)
			}
			return err
		})
	}
	a.wantParts("without done rows", row.ID, "b error", "c pending")
}

// A settlement for some sinks changes the row only under the lane's lease, and only if the row has the
// settlement's message id and sinks. When claiming by rows, such a settlement is an error. A valid
// settlement changes its row even if other settlements of the batch are fenced or missing.
func settleForSomeRequires(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for _, held := range []bool{false, true} {
		row, other := a.waitingAt(table, held, outbox.Message{Topic: "several"}), a.waitingAt(table, held, outbox.Message{Topic: "several"})
		fenced := a.part(storage.StateDone, row, "a", "b")
		fenced.Fence++
		sinks := a.part(storage.StateError, row, "a", "b")
		sinks.Sinks = "a,b"
		message := a.part(storage.StateDone, row, "a", "b")
		message.MessageID = other.Message.ID
		want := storage.Settled{Changed: 1, Fenced: 1, Missing: 2}
		if got := a.settle(fenced, sinks, a.part(storage.StateRetry, other, "a", "b"), message); got != want {
			t.Errorf("settled in one batch with a wrong fence, with wrong sinks, correctly, and with a wrong message: %+v, want %+v", got, want)
		}
		last := a.as(storage.StateDone, row)
		last.Sinks = "b"
		if got, missing := a.settle(last), (storage.Settled{Missing: 1}); got != missing {
			t.Errorf("settled with sinks that the row doesn't have: %+v, want %+v", got, missing)
		}
		state := map[bool]string{false: "pending", true: "retry"}[held]
		a.wantParts("after settlements with a wrong fence, wrong sinks and a wrong message", row.ID, state)
		a.wantParts("after the correct settlement", other.ID, "a retry", "b "+state)
	}
	id := a.waitingAt(table, false, outbox.Message{Topic: "several"}).Message.ID
	for name, wrong := range map[string]storage.Settlement{
		"without For": {Left: "b"}, "without Left": {For: "a"}, "with a For that isn't in Sinks": {For: "a", Left: "b", Sinks: "b"}, "by rows": {For: "a", Left: "b", Token: "t"},
	} {
		wrong.MessageID, wrong.State = id, storage.StateDone
		if _, err := a.store.Settle(t.Context(), a.name, true, []storage.Settlement{wrong}); err == nil {
			t.Errorf("Settle accepted a settlement %s, want an error", name)
		}
	}
}

// A message may have a waiting row for each of its sinks. A settlement changes only the row that has
// the settlement's sinks.
func partsAreSettledSeparately(t testing.TB, table Table) {
	a := holder(t, table, "a")
	states := []storage.State{storage.StateDone, storage.StateError, storage.StateRetry, storage.StateDiscarded}
	var settlements []storage.Settlement
	ids := map[int64]int{}
	for i, state := range states {
		for j, other := range states {
			row := a.waitingAt(table, false, outbox.Message{Topic: "several", Key: fmt.Sprint("key", i)})
			a.mustSettle(a.part(storage.StateRetry, row, "it's a", "b"))
			a.mustSettle(a.as(storage.StateRetry, a.waiting(row.ID, "b")))
			settlements = append(settlements, a.as(state, a.waiting(row.ID, "it's a")), a.as(other, a.waiting(row.ID, "b")))
			settlements[len(settlements)-1].Attempts = 5
			ids[row.ID] = len(states)*i + j
		}
	}
	a.mustSettle(settlements[2:]...)
	a.mustSettle(settlements[1]) // a batch of one
	for id, n := range ids {
		want := []string{"b " + string(states[n%len(states)]), "it's a " + string(states[n/len(states)])}
		if n == 0 {
			want[1] = "it's a retry"
		}
		a.wantParts("two rows of a message", id, slices.DeleteFunc(want, func(part string) bool { return strings.HasSuffix(part, string(storage.StateDiscarded)) })...)
	}
	for _, s := range settlements[1:] {
		if got, want := a.settle(s), (storage.Settled{Missing: 1}); s.State != storage.StateRetry && got != want {
			t.Errorf("settled %q as %s again: %+v, want %+v", s.Sinks, s.State, got, want)
		}
	}
}

// A batch may settle some rows for some of their sinks and other rows as a whole. Settle refuses a batch
// that settles a row twice if one of the two settlements is only for some of the row's sinks.
func settlePartsAndWholeRows(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for _, held := range []bool{false, true} {
		row, other, third := a.waitingAt(table, held, outbox.Message{Topic: "several"}), a.waitingAt(table, held, outbox.Message{Topic: "several"}), a.waitingAt(table, false, outbox.Message{Topic: "several"})
		fourth := a.waitingAt(table, held, outbox.Message{Topic: "several"})
		first, second, last := a.part(storage.StateDone, row, "a", "b,c"), a.part(storage.StateError, row, "c", "b"), a.as(storage.StateRetry, row)
		for what, twice := range map[string]storage.Settlement{"for other sinks": a.part(storage.StateError, row, "c", "a,b"), "as a whole": last} {
			if _, err := a.store.Settle(t.Context(), a.name, true, []storage.Settlement{first, twice}); err == nil {
				t.Errorf("Settle accepted a batch that settles a row for some sinks and then %s, want an error", what)
			}
		}
		second.Sinks, last.Sinks = "b,c", "b"
		a.mustSettle(first, a.part(storage.StateDone, other, "a", "b"), a.as(storage.StateDone, third))
		a.mustSettle(second, a.part(storage.StateDiscarded, fourth, "a", "b"))
		fourth.Sinks, other.Sinks = "b", "b"
		a.mustSettle(last, a.as(storage.StateDiscarded, fourth), a.part(storage.StateRetry, a.waitingAt(table, false, outbox.Message{Topic: "several"}), "a", "b"))
		a.wantParts("one sink after the other", row.ID, "a done", "b retry", "c error")
		a.wantParts("another row of the batch", other.ID, "a done", "b "+map[bool]string{false: "pending", true: "retry"}[held])
		a.wantParts("as a whole", third.ID, "done")
		a.wantParts("discarded", fourth.ID)
	}
}

// All calls that read rows return their sinks. A blocked key is returned once for each combination of
// topic and sinks.
func readsReturnTheSinks(t testing.TB, table Table) {
	a := holder(t, table, "a")
	first, second := a.waitingAt(table, false, outbox.Message{Topic: "several", Key: "k"}), a.waitingAt(table, false, outbox.Message{Topic: "several", Key: "k"})
	a.mustSettle(a.part(storage.StateRetry, first, "b", "a"), a.part(storage.StateRetry, second, "b", "a"))
	third := a.waitingAt(table, false, outbox.Message{Topic: "several", Key: "k"})
	a.mustSettle(a.part(storage.StateRetry, third, "c,d", "e"))
	want := func(what string, rows []storage.Row, want ...string) {
		t.Helper()
		var got []string
		for _, row := range rows {
			got = append(got, fmt.Sprint(slices.Index([]int64{first.ID, second.ID, third.ID}, row.ID), row.Sinks))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: rows and sinks %q, want %q", what, got, want)
		}
	}
	want("pending", a.pending(), "0a", "1a", "2e")
	want("due", a.due(), "0b", "1b", "2c,d")
	var rows []storage.Row
	var candidates []storage.Row
	a.do("scan", func(ctx context.Context) (err error) {
		candidates = nil
		rows, _, err = a.store.Scan(ctx, everything(), nil, func(c storage.Candidate) bool {
			candidates = append(candidates, storage.Row{ID: c.ID, Sinks: c.Sinks})
			return true
		})
		return err
	})
	want("scanned", rows, "0a", "1a", "2e")
	want("candidates", candidates, "0a", "1a", "2e")
	a.do("pick", func(ctx context.Context) (err error) {
		rows, err = a.journaler().Pick(ctx, []storage.RowID{{Lane: first.Lane, ID: first.ID}, {Lane: third.Lane, ID: third.ID}})
		return err
	})
	want("picked", rows, "0a", "0b", "2c,d", "2e")
	held := func(row storage.Row, sinks string) storage.BlockedKey {
		return storage.BlockedKey{Lane: row.Lane, Key: "k", Topic: "several", Sinks: sinks, ID: row.ID}
	}
	got := a.heldKeys()
	if all := []storage.BlockedKey{held(first, "b"), held(second, "b"), held(third, "c,d")}; !slices.Equal(got, all) {
		t.Errorf("blocked keys are %+v, want %+v", got, all)
	}
	a.wantHeldAmong([]storage.LaneKey{{Lane: first.Lane, Key: "k"}}, []storage.BlockedKey{held(first, "b"), held(third, "c,d")})
}

// A filter by sink selects the rows that name the sink, and no rows that name sinks with similar
// names.
func filterBySink(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := map[string]int64{}
	for _, sinks := range []string{"a", "ab,b", "b,a", "b,ba", "A", "a%", "%,x_y", "x.y", "ä"} {
		row := a.waitingAt(table, false, outbox.Message{Topic: "several"})
		a.mustSettle(a.part(storage.StateDiscarded, row, "other", sinks))
		written[sinks] = row.ID
	}
	a.waitingAt(table, false, outbox.Message{Topic: "several"})
	for sink, sinks := range map[string][]string{
		"a": {"a", "b,a"}, "b": {"ab,b", "b,a", "b,ba"}, "ab": {"ab,b"}, "%": {"%,x_y"}, "x_y": {"%,x_y"}, "ä": {"ä"}, "c": nil,
	} {
		want := []int64{}
		for _, sinks := range sinks {
			want = append(want, written[sinks])
		}
		slices.Sort(want)
		var got []storage.Row
		for _, info := range a.list(storage.Filter{Sink: sink}) {
			got = append(got, info.Row)
		}
		wantIDs(t, "listed by sink "+sink, ids(got), want)
	}
}

// An operator's change of a message that is parked for one sink doesn't affect the other sinks.
func operatorsChangeOnePart(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for what, change := range map[string]func(storage.Filter) int{"retry": a.requeue, "retry (skip)": a.skip, "retry (discard)": a.discard, "": a.discard} {
		row := a.waitingAt(table, false, outbox.Message{Topic: "several", Key: "k" + what})
		for _, part := range []storage.Settlement{a.part(storage.StateError, row, "a", "b,c"), a.part(storage.StateError, row, "b", "c"), a.as(storage.StateError, row)} {
			part.Sinks, part.Holds = a.row(row.ID).Sinks, what != ""
			a.mustSettle(part)
		}
		filter := storage.Filter{Sink: "b", IDs: []string{row.Message.ID}}
		state, _, _ := strings.Cut(what, " ")
		want := []string{"a error", "b " + state, "c error"}
		if n := change(filter); n != 1 {
			t.Errorf("the change %q for one sink changed %d rows, want 1", what, n)
		}
		if what == "" {
			want = []string{"a error", "c error"}
		}
		a.wantParts(fmt.Sprintf("after the change %q for sink b", what), row.ID, want...)
		filter.Sink, filter.Limit = "", 1
		if n := change(filter); n != 1 {
			t.Errorf("the change %q with a limit of 1 changed %d rows of one message, want 1", what, n)
		}
		errors := len(a.list(storage.Filter{IDs: filter.IDs, State: storage.StateError}))
		if errors != 1 {
			t.Errorf("the change %q left %d of the other rows parked, want 1", what, errors)
		}
	}
}

// If a page of a listing reaches its limit of bytes, it still has all rows of its last message,
// because the next page begins after that message.
func listPageHasAllParts(t testing.TB, table Table) {
	a := holder(t, table, "a")
	row := a.waitingAt(table, false, outbox.Message{Topic: "several", Payload: []byte("some bytes")})
	a.waitingAt(table, false, outbox.Message{Topic: "several"})
	a.mustSettle(a.part(storage.StateDone, row, "a", "b,c"))
	a.mustSettle(a.part(storage.StateError, a.waiting(row.ID, "b,c"), "b", "c"))
	var got []storage.Row
	for _, info := range a.list(storage.Filter{MaxBytes: 1}) {
		got = append(got, info.Row)
	}
	wantIDs(t, "a page with a limit of one byte", ids(got), []int64{row.ID, row.ID, row.ID})
}

// When claiming by rows, Reclaim moves back only one of a message's rows at a time.
func reclaimMovesOnePart(t testing.TB, table Table) {
	a := holder(t, table, "a")
	row := a.waitingAt(table, false, outbox.Message{Topic: "several", Key: "k"})
	a.mustSettle(a.part(storage.StateRetry, row, "a", "b"))
	a.mustSettle(a.as(storage.StateRetry, a.waiting(row.ID, "b")))
	b := byRows(t, table, "b")
	sinks := map[string]bool{}
	for _, token := range []string{"one", "two"} {
		b.freed(1)
		rows := b.claim(storage.ClaimRequest{Token: token, Limit: 2, TTL: time.Hour})
		if len(rows) != 1 {
			t.Fatalf("claimed %d rows of one message, want 1", len(rows))
		}
		sinks[rows[0].Sinks] = true
		b.mustSettle(claimed(token, storage.StateDone, rows[0]))
	}
	if !sinks["a"] || !sinks["b"] {
		t.Errorf("claimed rows of the sinks %v, want a and b", sinks)
	}
	b.wantParts("claimed one after the other", row.ID, "a done", "b done")
}
