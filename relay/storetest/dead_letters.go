package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// dying changes a settlement so that it parks its row and writes a dead letter. The number is part of the dead letter's
// message id.
func dying(parked storage.Settlement, number int) storage.Settlement {
	parked.State = storage.StateError
	parked.DeadLetter = &storage.Copy{
		MessageID: fmt.Sprintf("0197a3b4-dead-7abc-8def-%012d", number), Topic: "dead/✓",
		Headers: `{"rowrelay-dead-letter-sink":"a \"b\"","ü":"✓"}`,
	}
	return parked
}

// deadLetters returns the pending dead letters, in the order of their ids.
func (w *worker) deadLetters() (rows []storage.Row) {
	w.Helper()
	for _, row := range w.pending() {
		if row.Message.Topic == "dead/✓" {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b storage.Row) int { return int(min(1, max(-1, a.ID-b.ID))) })
	return rows
}

// A dead letter is a new message that is due immediately and has the content of the parked message,
// whether that message was pending or deferred. The dead letter has the same time of expiry, or none
// if that time has passed. Writing the dead letter doesn't change how the message itself is parked.
func deadLettersAreWritten(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for i, message := range append(variants(), expired) {
		before := write(t, table, message)[0]
		row := a.row(before)
		if i%2 == 0 {
			a.mustSettle(a.as(storage.StateRetry, row))
			row = a.due()[0]
		}
		parked := dying(a.as(storage.StateError, row), i)
		if i == 0 {
			parked.DeadLetter.Headers = ""
		} else {
			parked.DeadLetter.Sinks = "archive"
		}
		parked.Attempts, parked.Error, parked.Holds = 7, "refused", i%4 < 2 && message.Key != ""
		a.mustSettle(parked)
		letters := a.deadLetters()
		if len(letters) != 1 {
			t.Fatalf("%q: %d dead letters, want 1", message.Topic, len(letters))
		}
		letter, want := letters[0], message
		want.ID, want.Topic, want.Headers = parked.DeadLetter.MessageID, "dead/✓", map[string]string{"rowrelay-dead-letter-sink": `a "b"`, "ü": "✓"}
		if i == 0 {
			want.Headers = nil
		}
		wantMessage(t, "dead letter", letter.Message, want)
		if letter.Sinks != parked.DeadLetter.Sinks {
			t.Errorf("the dead letter is for the sinks %q, want %q", letter.Sinks, parked.DeadLetter.Sinks)
		}
		if letter.ID <= before || message.Key != "" && letter.Lane != row.Lane || letter.Attempts != 0 || letter.Crashes != 0 || letter.Deferred || letter.Later ||
			letter.Malformed != "" || letter.NeverExpires || !letter.Message.AvailableAt.IsZero() || letter.CreatedAt.Before(row.CreatedAt) {
			t.Errorf("the dead letter of row %d, created at %v in lane %d, is %+v", before, row.CreatedAt, row.Lane, letter)
		}
		wantTime(t, "expires_at of the dead letter", letter.Message.ExpiresAt, unlessExpired(message.ExpiresAt))
		info := a.info(before)
		if info.State != storage.StateError || info.Attempts != 7 || info.LastError != "refused" || !maps.Equal(info.Message.Headers, message.Headers) {
			t.Errorf("the parked message is %+v", info)
		}
		a.mustSettle(a.as(storage.StateDone, letter))
	}
}

// expired is a message that expired long ago.
var expired = outbox.Message{ID: "0197a3b4-0e0e-7abc-8def-0123456789ab", Topic: "expired", ExpiresAt: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}

// unlessExpired returns the time when a copy of a message expires: the time when the message expires,
// or the zero time if that time has passed.
func unlessExpired(at time.Time) time.Time {
	if at.Before(time.Now()) {
		return time.Time{}
	}
	return at
}

// A settlement that changes no row writes no dead letter. The check tries settlements with an old
// fence, by another relay and for another message. It also repeats settlements, once after an
// operator's skip.
func deadLettersAreWrittenOnce(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, keyed("k", 3)...)
	hot, again := dying(a.as(storage.StateError, a.row(written[0])), 1), a.as(storage.StateRetry, a.row(written[1]))
	fenced, other := hot, hot
	fenced.Fence--
	other.MessageID = "0197a3b4-0000-7abc-8def-0123456789ab"
	if got, want := a.settle(fenced), (storage.Settled{Fenced: 1}); got != want {
		t.Errorf("settled with another fence: %+v, want %+v", got, want)
	}
	b := hire(t, table, "b")
	if got, want := b.settle(hot), (storage.Settled{Fenced: 1}); got != want {
		t.Errorf("settled by another relay: %+v, want %+v", got, want)
	}
	if got, want := a.settle(other), (storage.Settled{Missing: 1}); got != want {
		t.Errorf("settled for another message: %+v, want %+v", got, want)
	}
	wantIDs(t, "dead letters before the messages are parked", ids(a.deadLetters()), []int64{})
	a.mustSettle(hot, again, a.as(storage.StateDone, a.row(written[2])))
	held := dying(a.as(storage.StateError, a.due()[0]), 2)
	held.Holds = true
	a.mustSettle(held)
	if got, want := a.settle(hot, held), (storage.Settled{Missing: 2}); got != want {
		t.Errorf("settled again: %+v, want %+v", got, want)
	}
	a.do("skip", func(ctx context.Context) error {
		_, err := a.store.Skip(ctx, storage.Filter{})
		return err
	})
	if got, want := a.settle(held), (storage.Settled{Missing: 1}); got != want {
		t.Errorf("settled again after an operator's skip: %+v, want %+v", got, want)
	}
	if letters := a.deadLetters(); len(letters) != 2 || letters[0].Message.ID != hot.DeadLetter.MessageID || letters[1].Message.ID != held.DeadLetter.MessageID {
		t.Errorf("two messages were parked; the dead letters are %+v", letters)
	}
}

// If one batch parks several messages, their dead letters get ids in the order of the messages' ids,
// even if the batch lists the messages in reverse and settles others, too.
func deadLettersInOrder(t testing.TB, table Table) {
	const count = 60
	a := holder(t, table, "a")
	messages := keyed("k", count)
	messages = append(messages, keyed("l", count)...)
	written := write(t, table, messages...)
	numbers := map[int64]int{}
	for i, id := range written {
		numbers[id] = i
	}
	rows := a.pending()
	var batch []storage.Settlement
	for _, row := range rows {
		switch number := numbers[row.ID]; number % 3 {
		case 0:
			batch = append(batch, a.as(storage.StateDone, row))
		case 1:
			batch = append(batch, a.as(storage.StateError, row))
		default:
			batch = append(batch, dying(a.as(storage.StateError, row), number))
		}
	}
	slices.Reverse(batch)
	a.mustSettle(batch...)
	var got, want []string
	for _, letter := range a.deadLetters() {
		got = append(got, letter.Message.Key+" "+string(letter.Message.Payload)+" "+letter.Message.ID[24:])
	}
	for i, message := range messages {
		if i%3 == 2 {
			want = append(want, message.Key+" "+string(message.Payload)+" "+fmt.Sprintf("%012d", i))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the dead letters are\n%q, want\n%q", got, want)
	}
}

// When claiming by rows, a settlement writes a dead letter only if it has the token of the row's
// claim.
func deadLettersRequireTheToken(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	fill(t, table, plain(3)...)
	rows := a.claim(storage.ClaimRequest{Token: "one", Limit: 3})
	if len(rows) != 3 {
		t.Fatalf("claimed %d rows, want 3", len(rows))
	}
	if got, want := a.settle(dying(claimed("another", storage.StateError, rows[0]), 1)), (storage.Settled{Fenced: 1}); got != want {
		t.Errorf("settled with another token: %+v, want %+v", got, want)
	}
	batch := []storage.Settlement{dying(claimed("one", storage.StateError, rows[0]), 2), claimed("one", storage.StateError, rows[1]), claimed("one", storage.StateDone, rows[2])}
	a.mustSettle(batch...)
	if got, want := a.settle(batch...), (storage.Settled{Missing: 3}); got != want {
		t.Errorf("settled again: %+v, want %+v", got, want)
	}
	letters := a.claim(storage.ClaimRequest{Token: "two", Limit: 3})
	if len(letters) != 1 || letters[0].Message.ID != batch[0].DeadLetter.MessageID || string(letters[0].Message.Payload) != string(rows[0].Message.Payload) {
		t.Errorf("the dead letters are %+v", letters)
	}
}

// If several settlements of the same rows run concurrently, each dead letter is written once.
func deadLettersConcurrently(t testing.TB, table Table) {
	const settles, count = 6, 10
	a := holder(t, table, "a")
	fill(t, table, plain(2*count)...)
	rows := a.pending()
	a.mustSettle(a.allAs(storage.StateRetry, rows[:count])...)
	var batch []storage.Settlement
	for i, row := range append(a.due(), rows[count:]...) {
		batch = append(batch, dying(a.as(storage.StateError, row), i))
	}
	var all sync.WaitGroup
	for range settles {
		all.Go(func() { settleOrReport(t, a, batch...) })
	}
	all.Wait()
	if letters := a.deadLetters(); len(letters) != len(batch) {
		t.Errorf("%d concurrent settlements of %d rows wrote %d dead letters, want one for each row", settles, len(batch), len(letters))
	}
}

// A settlement for one of a row's sinks writes a dead letter, and the settlement for the other sink
// writes another one. This holds for pending and deferred rows, and each dead letter is written
// once even if settlements are repeated.
func deadLettersOfEachSink(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, keyed("k", 2)...)
	a.mustSettle(a.as(storage.StateRetry, a.row(written[1])))
	var first, last []storage.Settlement
	for i, row := range []storage.Row{a.row(written[0]), a.due()[0]} {
		parked := dying(a.as(storage.StateError, row), 2*i)
		parked.For, parked.Left = "x", "y"
		first = append(first, parked)
		parked = dying(a.as(storage.StateError, row), 2*i+1)
		parked.Sinks = "y"
		last = append(last, parked)
	}
	a.mustSettle(first...)
	if got, want := a.settle(first...), (storage.Settled{Missing: 2}); got != want {
		t.Errorf("settled again for some sinks: %+v, want %+v", got, want)
	}
	a.mustSettle(last...)
	for _, repeated := range [][]storage.Settlement{first, last} {
		if got, want := a.settle(repeated...), (storage.Settled{Missing: 2}); got != want {
			t.Errorf("settled again: %+v, want %+v", got, want)
		}
	}
	var got []string
	for _, letter := range a.deadLetters() {
		got = append(got, letter.Message.ID[24:])
	}
	slices.Sort(got)
	if want := []string{"000000000000", "000000000001", "000000000002", "000000000003"}; !slices.Equal(got, want) {
		t.Errorf("the dead letters are %v, want %v", got, want)
	}
}
