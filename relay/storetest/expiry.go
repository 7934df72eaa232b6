package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A heartbeat returns the database's time: messages that were written before the heartbeat have
// earlier times, and those written after it have later ones.
func heartbeatReturnsTheTime(t testing.TB, table Table) {
	a := holder(t, table, "a")
	before := a.row(write(t, table, plain(1)...)[0]).CreatedAt
	now := a.beat(storage.ByLanes, long).Now
	after := a.row(write(t, table, plain(1)...)[0]).CreatedAt
	if now.Before(before.Add(-slack)) || now.After(after.Add(slack)) {
		t.Errorf("the heartbeat returned %v, want a time between the creation of two rows at %v and %v", now, before, after)
	}
}

// Discarding a pending or deferred row, alone or in a batch with other settlements, deletes it even
// if delivered rows are kept.
func discardedRowsAreDeleted(t testing.TB, table Table) {
	a := holder(t, table, "a")
	written := write(t, table, plain(6)...)
	a.mustSettle(a.as(storage.StateRetry, a.row(written[0])), a.as(storage.StateRetry, a.row(written[1])))
	due := a.due()
	batch := a.allAs(storage.StateDiscarded, []storage.Row{due[0], a.row(written[2])})
	batch = append(batch, a.as(storage.StateDone, due[1]), a.as(storage.StateDone, a.row(written[3])), a.as(storage.StateError, a.row(written[4])))
	a.mustSettle(batch...)
	if got, want := a.settle(batch...), (storage.Settled{Missing: len(batch)}); got != want {
		t.Errorf("settled again: %+v, want %+v", got, want)
	}
	a.mustSettle(a.as(storage.StateDiscarded, a.row(written[5]))) // a batch of one
	a.wantState(storage.StateDone, due[1].ID, written[3])
	a.wantState(storage.StateError, written[4])
	if left := a.list(storage.Filter{}); len(left) != 3 {
		t.Errorf("%d rows are left, want 3: %+v", len(left), left)
	}
}

// When claiming by rows, a row is discarded only with the token of its claim.
func discardByToken(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	written := write(t, table, plain(3)...)
	rows := a.claim(storage.ClaimRequest{Token: "one", Limit: 3})
	if len(rows) != 3 {
		t.Fatalf("claimed %d rows, want 3", len(rows))
	}
	a.do("settle", func(ctx context.Context) error {
		counts, err := a.store.Settle(ctx, a.name, true, []storage.Settlement{claimed("another", storage.StateDiscarded, rows[0]), claimed("one", storage.StateDone, rows[1])})
		if want := (storage.Settled{Changed: 1, Fenced: 1}); err == nil && counts != want {
			t.Errorf("settled with another token: %+v, want %+v", counts, want)
		}
		return err
	})
	a.mustSettle(claimed("one", storage.StateDiscarded, rows[0]), claimed("one", storage.StateError, rows[2]))
	if left := a.list(storage.Filter{}); len(left) != 2 || left[0].ID == rows[0].ID || left[1].ID == rows[0].ID {
		t.Errorf("rows %v were written, and %+v are left; want all except %d", written, left, rows[0].ID)
	}
}

// expiring returns three messages, and the error with which the check parks each of them. The errors
// say that the first message passed its time of expiry, that the second was refused, and that the third
// expired because of its route.
func expiring() (messages []outbox.Message, errors []string) {
	at := time.Now().Add(time.Hour)
	return []outbox.Message{{Topic: "t", ExpiresAt: at}, {Topic: "t", ExpiresAt: at}, {Topic: "t"}},
		[]string{storage.Expired + "since then", "refused: " + storage.Expired + "or so", storage.Expired + "by its route"}
}

func wantExpiry(t testing.TB, what string, row storage.Row, message outbox.Message, never bool) {
	t.Helper()
	if never {
		message.ExpiresAt = time.Time{}
	}
	if row.NeverExpires != never {
		t.Errorf("%s: row %d never expires: %t, want %t", what, row.ID, row.NeverExpires, never)
	}
	wantTime(t, what+": expires_at", row.Message.ExpiresAt, message.ExpiresAt)
}

// If a message was parked because it had expired, it never expires again after a requeue, even if it is
// retried. A message that was parked for another reason keeps its time of expiry.
func requeuedNeverExpires(t testing.TB, table Table) {
	a := holder(t, table, "a")
	messages, errors := expiring()
	written := write(t, table, messages...)
	for i, id := range written {
		parked := a.as(storage.StateError, a.row(id))
		parked.Error = errors[i]
		a.mustSettle(parked)
		wantExpiry(t, "parked", a.info(id).Row, messages[i], false)
	}
	if n := a.requeue(storage.Filter{}); n != len(written) {
		t.Fatalf("requeued %d rows, want %d", n, len(written))
	}
	for _, what := range []string{"requeued", "tried again"} {
		due := a.due()
		wantIDs(t, what, ids(due), written)
		for _, row := range due {
			at := slices.Index(written, row.ID)
			wantExpiry(t, what, row, messages[at], at != 1)
		}
		a.mustSettle(a.allAs(storage.StateRetry, due)...)
	}
	a.mustSettle(a.allAs(storage.StateDone, a.due())...)
	for i, id := range written {
		wantExpiry(t, "done", a.info(id).Row, messages[i], i != 1)
	}
}

// When claiming by rows, a requeued expired message never expires either, even after it has been
// moved back to the pending rows.
func requeuedByRowsNeverExpires(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	messages, errors := expiring()
	written := write(t, table, messages...)
	parked := allClaimed("one", storage.StateError, a.claim(storage.ClaimRequest{Token: "one", Limit: 3}))
	for i := range parked {
		parked[i].Error = errors[slices.Index(written, parked[i].ID)]
	}
	a.mustSettle(parked...)
	a.requeue(storage.Filter{})
	a.freed(len(written))
	rows := a.claim(storage.ClaimRequest{Token: "two", Limit: 3})
	wantIDs(t, "claimed after a requeue", ids(rows), written)
	for _, row := range rows {
		at := slices.Index(written, row.ID)
		wantExpiry(t, "claimed", row, messages[at], at != 1)
	}
}
