package storetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func (w *worker) beginReplay(replay storage.Replay) (is storage.Replay) {
	w.Helper()
	w.do("begin a replay", func(ctx context.Context) (err error) {
		is, err = w.store.StoreReplay(ctx, nil, replay)
		return err
	})
	return is
}

func (w *worker) replay(was storage.Replay, limit int) (is storage.Replay, copies []storage.RowID) {
	w.Helper()
	w.do("replay", func(ctx context.Context) (err error) {
		is, copies, err = w.store.Replay(ctx, was, limit)
		return err
	})
	return is, copies
}

// replayed runs a whole replay in one step.
func (w *worker) replayed(replay storage.Replay) (storage.Replay, []storage.RowID) {
	w.Helper()
	is, copies := w.replay(w.beginReplay(replay), plenty)
	if !is.Finished || is.Written != int64(len(copies)) {
		w.Errorf("a replay in one step is %+v, with %d copies", is, len(copies))
	}
	return is, copies
}

// deliver writes messages, each in its own transaction. It settles them as done, the last one first.
func (w *worker) deliver(table Table, messages ...outbox.Message) []int64 {
	w.Helper()
	var written []int64
	for _, message := range messages {
		written = append(written, write(w, table, message)...)
	}
	rows := w.pending()
	slices.SortFunc(rows, func(a, b storage.Row) int { return int(b.ID - a.ID) })
	for _, row := range rows {
		w.mustSettle(w.as(storage.StateDone, row))
	}
	return written
}

// A replay copies delivered messages in the order of their ids. A copy is a new message with the same
// message id and content. It isn't scheduled. It keeps the original's expiry, unless that time has
// passed; then the copy never expires. A replay doesn't copy messages in other states or its own
// copies. Another replay may copy a replay's copies.
func replayCopiesInOrder(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.oneOfEach(table)
	first := a.info(a.deliver(table, outbox.Message{Topic: "first"})[0])
	messages := append(variants(), expired)
	a.deliver(table, messages...)
	done := a.list(storage.Filter{State: storage.StateDone})
	before := a.pending()
	is, copies := a.replayed(storage.Replay{Name: "r-1", Rate: 5})
	if len(copies) != len(done) || is.Rate != 5 {
		t.Fatalf("the replay wrote %d copies of %d messages: %+v", len(copies), len(done), is)
	}
	var got []storage.Row
	for _, row := range a.pending() {
		if !slices.ContainsFunc(before, func(old storage.Row) bool { return old.ID == row.ID }) {
			got = append(got, row)
		}
	}
	slices.SortFunc(got, func(a, b storage.Row) int { return int(a.ID - b.ID) })
	slices.SortFunc(copies, func(a, b storage.RowID) int { return int(a.ID - b.ID) })
	for i, row := range got {
		want := done[i].Message
		want.Headers = maps.Clone(want.Headers)
		if want.Headers == nil {
			want.Headers = map[string]string{}
		}
		want.Headers[storage.ReplayedHeader] = "r-1"
		wantMessage(t, "a copy", row.Message, want)
		wantTime(t, "expires_at of a copy", row.Message.ExpiresAt, unlessExpired(want.ExpiresAt))
		if !row.Message.AvailableAt.IsZero() || row.Attempts != 0 || row.ID <= done[len(done)-1].ID {
			t.Errorf("a copy is %+v", row)
		}
		if row.Lane != done[i].Lane && row.Message.Key != "" {
			t.Errorf("a copy of a row in lane %d is in lane %d", done[i].Lane, row.Lane)
		}
		if copies[i] != (storage.RowID{Lane: row.Lane, ID: row.ID}) {
			t.Errorf("a copy was returned as %+v, and its row is %+v", copies[i], row)
		}
	}
	if len(got) != len(done) {
		t.Fatalf("%d copies are pending, want %d", len(got), len(done))
	}
	a.mustSettle(a.allAs(storage.StateDone, got)...)
	if again, more := a.replay(is, plenty); len(more) != 0 || again.Written != is.Written {
		t.Errorf("the replay copied its own copies: %+v", again)
	}
	if _, more := a.replayed(storage.Replay{Name: "r-2", IDs: []string{first.Message.ID}}); len(more) != 2 {
		t.Errorf("another replay has %d copies, want 2: one of the message and one of its copy", len(more))
	}
}

// The check tests each field by which a replay selects messages, and a replay with several of these fields.
func replaySelects(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.deliver(table, outbox.Message{Topic: "old"})
	var between time.Time
	eventually(t, "time passes", func() bool {
		id := a.deliver(table, outbox.Message{Topic: "between"})[0]
		between = a.info(id).FinishedAt
		return between.After(a.list(storage.Filter{Topic: "old"})[0].FinishedAt)
	})
	written := a.deliver(table, outbox.Message{Topic: "t", Key: "a"}, outbox.Message{Topic: "t", Key: "b"}, outbox.Message{Topic: "T", Key: "a"})
	for i, test := range []struct {
		replay storage.Replay
		want   int // -1: at least one
	}{
		{storage.Replay{Topic: "t"}, 2},
		{storage.Replay{Key: "a"}, 2},
		{storage.Replay{Topic: "t", Key: "a"}, 1},
		{storage.Replay{Topic: "none"}, 0},
		{storage.Replay{IDs: []string{strconv.FormatInt(written[0], 10), a.info(written[1]).Message.ID}}, 2},
		{storage.Replay{IDs: []string{strconv.FormatInt(written[0], 10)}, Key: "b"}, 0},
		{storage.Replay{Until: between}, -1},
		{storage.Replay{Topic: "old", Until: between}, 1},
		{storage.Replay{Topic: "old", Since: between}, 0},
		{storage.Replay{Topic: "t", Since: between}, 2},
		{storage.Replay{Topic: "t", Until: between}, 0},
		{storage.Replay{Until: time.Now().Add(-time.Hour)}, 0},
	} {
		test.replay.Name = "r-" + strconv.Itoa(i)
		_, copies := a.replayed(test.replay)
		if len(copies) != test.want && (test.want >= 0 || len(copies) == 0) {
			t.Errorf("%+v has %d copies, want %d", test.replay, len(copies), test.want)
		}
		if rows := a.pending(); len(rows) > 0 {
			settlements := a.allAs(storage.StateDiscarded, rows)
			a.mustSettle(settlements...)
		}
	}
}

// A replay continues from its stored position. A caller with an older state of the replay can't
// continue it, and no caller can start another replay with its name. After a replay has been stopped,
// only a caller that has the stopped state can continue it.
func replayContinues(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.deliver(table, keyed("k", 7)...)
	other := hire(t, table, "b").store
	begun := a.beginReplay(storage.Replay{Name: "r", Topic: "plain", IDs: nil})
	changed := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, storage.ErrReplayChanged) {
			t.Errorf("%s: got the error %v, want %v", what, err, storage.ErrReplayChanged)
		}
	}
	is, copies := a.replay(begun, 3)
	if len(copies) != 3 || is.Written != 3 || is.Finished {
		t.Errorf("after a step of 3: %+v, %d copies", is, len(copies))
	}
	err := again(t, func(ctx context.Context) error { _, _, err := other.Replay(ctx, begun, 3); return err })
	changed("the same step", err)
	err = again(t, func(ctx context.Context) error {
		_, err := other.StoreReplay(ctx, nil, storage.Replay{Name: "r"})
		return err
	})
	changed("another replay of that name", err)
	stopped := is
	stopped.Stopped = true
	if err := again(t, func(ctx context.Context) error { _, err := other.StoreReplay(ctx, &is, stopped); return err }); err != nil {
		t.Errorf("stop: %v", err)
	}
	err = again(t, func(ctx context.Context) error { _, _, err := a.store.Replay(ctx, is, 3); return err })
	changed("a step after the replay was stopped", err)
	stored, err := other.Replays(t.Context())
	if err != nil || len(stored) != 1 || !stored[0].Stopped || stored[0].Written != 3 || stored[0].Name != "r" || stored[0].Topic != "plain" {
		t.Errorf("the stored replays are %+v, %v", stored, err)
	}
	if rows := a.pending(); len(rows) != 3 {
		t.Fatalf("%d copies are pending, want 3", len(rows))
	}
	is, copies = a.replay(stopped, 3)
	if len(copies) != 3 || is.Finished {
		t.Errorf("after another step of 3: %+v, %d copies", is, len(copies))
	}
	is, copies = a.replay(is, 3)
	if len(copies) != 1 || is.Written != 7 || !is.Finished {
		t.Errorf("after the last step: %+v, %d copies", is, len(copies))
	}
	var got []string
	for _, row := range a.pending() {
		got = append(got, string(row.Message.Payload))
	}
	if want := []string{"0", "1", "2", "3", "4", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("copies of a key are %v, want %v", got, want)
	}
}

// CountPending counts the copies that can be delivered now.
func replayCountsPendingCopies(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.deliver(table, plain(5)...)
	_, copies := a.replayed(storage.Replay{Name: "r"})
	count := func(rows []storage.RowID) (n int) {
		t.Helper()
		a.do("count pending", func(ctx context.Context) (err error) {
			n, err = a.store.CountPending(ctx, rows)
			return err
		})
		return n
	}
	if n := count(copies); n != 5 {
		t.Errorf("%d copies are pending, want 5", n)
	}
	if n := count(copies[:2]); n != 2 {
		t.Errorf("%d of 2 copies are pending", n)
	}
	if n := count(nil); n != 0 {
		t.Errorf("counted %d pending copies in an empty list", n)
	}
	rows := a.pending()
	a.mustSettle(a.as(storage.StateDone, rows[0]), a.as(storage.StateError, rows[1]), a.as(storage.StateRetry, rows[2]))
	if n := count(copies); n != 2 {
		t.Errorf("%d copies are pending, want the 2 that were not settled", n)
	}
}

// If a message was settled separately for its sinks, it has several delivered rows. The copy of each
// row is for the sinks of that row, or for the sink that the replay names.
func replayObeysSinks(t testing.TB, table Table) {
	a := holder(t, table, "a")
	row := a.row(write(t, table, outbox.Message{Topic: "t", Key: "k"})[0])
	first := a.as(storage.StateDone, row)
	first.For, first.Left = "one,two", "three"
	a.mustSettle(first)
	a.mustSettle(a.as(storage.StateDone, a.row(row.ID)))
	a.deliver(table, outbox.Message{Topic: "other"})
	for i, test := range []struct {
		replay storage.Replay
		want   []string
	}{
		{storage.Replay{Topic: "t"}, []string{"one,two", "three"}},
		{storage.Replay{Sink: "two"}, []string{"one,two"}},
		{storage.Replay{Sink: "thre"}, nil},
		{storage.Replay{Topic: "other"}, []string{""}},
		{storage.Replay{Topic: "t", To: "four"}, []string{"four"}}, // one copy for both rows of the message
		{storage.Replay{Topic: "other", To: "four"}, []string{"four"}},
	} {
		test.replay.Name = "r-" + strconv.Itoa(i)
		a.replayed(test.replay)
		rows := a.pending()
		var got []string
		for _, row := range rows {
			got = append(got, row.Sinks)
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("%+v has copies for %q, want %q", test.replay, got, test.want)
		}
		if len(rows) > 0 {
			a.mustSettle(a.allAs(storage.StateDiscarded, rows)...)
		}
	}
}
