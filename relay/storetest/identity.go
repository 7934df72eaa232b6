package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// writeAs writes a message with an id that was assigned before.
func writeAs(t testing.TB, table Table, id int64, message outbox.Message) {
	t.Helper()
	tx := table.Begin(t)
	tx.InsertAs(id, message)
	tx.Commit()
}

// named returns a message of one key with its own message id.
func named(key string) outbox.Message {
	return outbox.Message{ID: outbox.NewID(), Topic: "named", Key: key}
}

// wantStateOf requires that the message has this state or, if the state is "", that it doesn't exist.
func (w *worker) wantStateOf(message outbox.Message, want storage.State) {
	w.Helper()
	infos := w.list(storage.Filter{IDs: []string{message.ID}})
	if len(infos) != min(1, len(want)) || len(infos) == 1 && (infos[0].Message.ID != message.ID || infos[0].State != want) {
		w.Errorf("the list has %+[3]v for message %[1]s, want the state %[2]q", message.ID, want, infos)
	}
}

// The function `only` finds the message's row in rows.
func only(t testing.TB, rows []storage.Row, message outbox.Message) storage.Row {
	t.Helper()
	at := slices.IndexFunc(rows, func(row storage.Row) bool { return row.Message.ID == message.ID })
	if at < 0 {
		t.Fatalf("message %s is not among rows %v", message.ID, inOrder(rows))
	}
	return rows[at]
}

// ofAnother returns copies of the settlements, and gives every third copy another message id, as if the
// row's id had been assigned again.
func ofAnother(settlements []storage.Settlement) (changed []storage.Settlement, others int) {
	changed = slices.Clone(settlements)
	for i := range changed {
		if i%3 == 1 {
			changed[i].MessageID = outbox.NewID()
			others++
		}
	}
	return changed, others
}

// A settlement changes a row only if both its row id and its message id match. Otherwise it
// counts as missing. This holds in both tables, alone and in a batch, for every new state.
func settleChangesOnlyItsMessage(t testing.TB, table Table) {
	a := holder(t, table, "a")
	write(t, table, slices.Concat(keyed("k", 40), plain(20))...)
	pending := a.pending()
	for _, state := range states() {
		lone := a.as(state, pending[0])
		lone.MessageID = outbox.NewID()
		if got, want := a.settle(lone), (storage.Settled{Missing: 1}); got != want {
			t.Errorf("settled as %s for another message: %+v, want %+v", state, got, want)
		}
		a.wantState(storage.StatePending, pending[0].ID)
	}
	for i, state := range states() {
		a.keepsToTheMessage(state, pending[i*15:(i+1)*15])
	}
	fill(t, table, keyed("k", 60)...)
	a.mustSettle(a.allAs(storage.StateRetry, a.pending())...)
	due := slices.DeleteFunc(a.due(), func(row storage.Row) bool { return !row.Retrying })
	for i, state := range states() {
		a.keepsToTheMessage(state, due[i*15:(i+1)*15])
	}
}

// keepsToTheMessage settles the rows, and gives a third of the settlements a wrong message id. The
// rows of these settlements must not change.
func (w *worker) keepsToTheMessage(state storage.State, rows []storage.Row) {
	w.Helper()
	before := map[int64]storage.State{}
	for _, row := range rows {
		before[row.ID] = w.info(row.ID).State
	}
	settlements, others := ofAnother(w.allAs(state, rows))
	if got, want := w.settle(settlements...), (storage.Settled{Changed: len(rows) - others, Missing: others}); got != want {
		w.Errorf("settled %d rows as %s, %d of them for other messages: %+v, want %+v", len(rows), state, others, got, want)
	}
	for i, row := range rows {
		want := before[row.ID]
		if settlements[i].MessageID == row.Message.ID {
			want = state
		}
		if want == storage.StateScheduled {
			want = storage.StatePending // the row is due
		}
		w.wantState(want, row.ID)
	}
	w.settle(w.allAs(storage.StateDone, rows)...)
}

// Even a settlement with the right token changes the row only if the message id matches, since one
// claim may include two messages with the same row id.
func tokenChangesOnlyItsMessage(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	for _, state := range append(states(), storage.StatePending) {
		write(t, table, plain(9)...)
		token := newToken()
		rows := a.claim(storage.ClaimRequest{Token: token, Limit: 9, Pick: storage.Newest})
		settlements, others := ofAnother(allClaimed(token, state, rows))
		if got, want := a.settle(settlements...), (storage.Settled{Changed: len(rows) - others, Missing: others}); got != want {
			t.Errorf("settled %d claimed rows as %s, %d of them for other messages: %+v, want %+v", len(rows), state, others, got, want)
		}
		for i, row := range rows {
			if is := a.info(row.ID).State == storage.StateClaimed; is != (settlements[i].MessageID != row.Message.ID) {
				t.Errorf("row %d was settled as %s; it is still claimed: %t, want this only if the settlement had another message id", row.ID, state, is)
			}
		}
	}
}

// A settlement needs the owner's name, because a fence may be granted again to another relay.
func onlyTheOwnerSettles(t testing.TB, table Table) {
	a, b := holder(t, table, "a"), hire(t, table, "b")
	b.fences = a.fences
	written := write(t, table, plain(6)...)
	a.mustSettle(a.allAs(storage.StateRetry, a.pending()[:3])...)
	rows := slices.Concat(a.pending(), a.due())
	for _, state := range states() {
		if got, want := b.settle(b.allAs(state, rows)...), (storage.Settled{Fenced: len(written)}); got != want {
			t.Errorf("settled as %s with the fence of another relay: %+v, want %+v", state, got, want)
		}
	}
	a.mustSettle(a.allAs(storage.StateDone, rows)...)
}

// A delivered row doesn't prevent the settlement of another message with the same id, and stays
// unchanged when that message is delivered, too.
func doneRowWhoseIDIsReused(t testing.TB, table Table) {
	a := holder(t, table, "a")
	first, second, third := named("k"), named("k"), named("k")
	id := write(t, table, first)[0]
	a.mustSettle(a.as(storage.StateDone, a.row(id)))
	for _, again := range []outbox.Message{second, third} {
		writeAs(t, table, id, again)
		a.mustSettle(a.as(storage.StateDone, only(t, a.pending(), again)))
	}
	for _, message := range []outbox.Message{first, second, third} {
		a.wantStateOf(message, storage.StateDone)
	}
	if n := len(a.list(storage.Filter{State: storage.StateDone})); n != 3 {
		t.Errorf("%d messages with the same id are done, want 3", n)
	}
}

// Messages with the same id can all be deferred. Each is settled, requeued and discarded separately.
func deferredRowWhoseIDIsReused(t testing.TB, table Table) {
	a := holder(t, table, "a")
	messages := []outbox.Message{named("k"), named("k"), named("k"), named("k")}
	id := write(t, table, messages[0])[0]
	a.mustSettle(a.as(storage.StateRetry, a.row(id)))
	for _, message := range messages[1:] {
		writeAs(t, table, id, message)
		a.mustSettle(a.as(storage.StateRetry, only(t, a.pending(), message)))
	}
	for _, message := range messages[:3] {
		a.mustSettle(a.as(storage.StateError, only(t, a.due(), message)))
	}
	if n := a.requeue(storage.Filter{IDs: []string{messages[0].ID}}); n != 1 {
		t.Errorf("requeued %d rows by a message's id, want 1", n)
	}
	if n := a.discard(storage.Filter{IDs: []string{messages[1].ID}}); n != 1 {
		t.Errorf("discarded %d rows by a message's id, want 1", n)
	}
	for i, want := range []storage.State{storage.StatePending, "", storage.StateError, storage.StateRetry} {
		a.wantStateOf(messages[i], want)
	}
	a.mustSettle(a.as(storage.StateDone, only(t, a.due(), messages[0])))
	a.wantStateOf(messages[3], storage.StateRetry)
}

// When claiming by rows, a deferred row stays deferred while another message with its id is pending.
// Meanwhile Reclaim moves other rows back.
func reclaimWaitsForAPendingID(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	first, second, other := named("k"), named("k"), named("k")
	id := write(t, table, first)[0]
	write(t, table, other)
	rows := a.claim(storage.ClaimRequest{Token: "1", Limit: 2})
	a.mustSettle(allClaimed("1", storage.StateRetry, rows)...)
	writeAs(t, table, id, second)
	a.freed(1)
	a.wantStateOf(first, storage.StateRetry)
	rows = a.claim(storage.ClaimRequest{Token: "2", Limit: 3})
	if len(rows) != 2 {
		t.Fatalf("claimed %v, want the 2 rows of the other messages", inOrder(rows))
	}
	a.mustSettle(claimed("2", storage.StateDone, only(t, rows, second)), claimed("2", storage.StateDone, only(t, rows, other)))
	a.freed(1)
	rows = a.claim(storage.ClaimRequest{Token: "3", Limit: 3})
	a.mustSettle(claimed("3", storage.StateDone, only(t, rows, first)))
}

// If several deferred rows have the same id, Reclaim moves one of them back. Reclaim moves the next row
// back after the first row has been settled.
func reclaimMovesOneRowOfAnID(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	messages := []outbox.Message{named("k"), named("k")}
	id := write(t, table, messages[0])[0]
	a.mustSettle(claimed("1", storage.StateRetry, a.claim(storage.ClaimRequest{Token: "1", Limit: 1})[0]))
	writeAs(t, table, id, messages[1])
	a.mustSettle(claimed("2", storage.StateRetry, a.claim(storage.ClaimRequest{Token: "2", Limit: 1})[0]))
	for _, token := range []string{"3", "4"} {
		a.freed(1)
		rows := a.claim(storage.ClaimRequest{Token: token, Limit: 2})
		if len(rows) != 1 {
			t.Fatalf("claimed %d rows with the same id, want 1", len(rows))
		}
		a.mustSettle(claimed(token, storage.StateDone, rows[0]))
	}
	for _, message := range messages {
		a.wantStateOf(message, storage.StateDone)
	}
}

// Pick returns all rows that have the id, each with its message.
func picksAllRowsOfAnID(t testing.TB, table Table) {
	a := holder(t, table, "a")
	first, second := named("k"), named("k")
	id := write(t, table, first)[0]
	row := a.row(id)
	retry := a.as(storage.StateRetry, row)
	retry.Delay = time.Hour
	a.mustSettle(retry)
	writeAs(t, table, id, second)
	var rows []storage.Row
	a.do("pick", func(ctx context.Context) (err error) {
		rows, err = a.journaler().Pick(ctx, []storage.RowID{{Lane: row.Lane, ID: id}})
		return err
	})
	if len(rows) != 2 || !only(t, rows, first).Deferred || only(t, rows, second).Deferred {
		t.Errorf("picked by one id: %+v, want the deferred row and the pending row", rows)
	}
}
