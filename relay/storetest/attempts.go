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

// These checks are about the logs of failed attempts.

// hostile is a sink's answer with characters that a database could change or refuse. Databases with the character set Latin-1
// can't store all of them.
const hostile = `{"a": '1'} \ %_; -- </script> ü✓𝄞 ` + "\x01\t\n\x7f"

// attempt returns a failed attempt. The numbers of a row's attempts must ascend.
func attempt(number int, sink string) storage.Attempt {
	return storage.Attempt{
		At: time.Date(2026, 1, 31, 23, 59, number, 123_000_000, time.UTC), Relay: "a", Sink: sink, Answer: fmt.Sprint(number, hostile), DurationMS: int64(number),
	}
}

func attempts(sink string, numbers ...int) (log storage.AttemptLog) {
	for _, number := range numbers {
		log = append(log, attempt(number, sink))
	}
	return log
}

// wantLog requires that the message's row for these sinks has this log. It also requires that a list
// without ids returns no logs.
func (w *worker) wantLog(what string, id int64, sinks string, want storage.AttemptLog) {
	w.Helper()
	rows := w.parts(id)
	at := slices.IndexFunc(rows, func(row storage.Info) bool { return row.Sinks == sinks })
	if at < 0 {
		w.Fatalf("%s: no row with id %d has the sinks %q", what, id, sinks)
	}
	if got := rows[at].AttemptLog; !slices.Equal(got, want) {
		w.Errorf("%s: the log is %+v, want %+v", what, got, want)
	}
	for _, row := range w.list(storage.Filter{}) {
		if len(row.AttemptLog) > 0 {
			w.Errorf("%s: a list of all messages has the log of row %d, want logs only in a search for ids", what, row.ID)
		}
	}
}

// Each settlement of a failed message adds its attempts to the message's log. The log stays unchanged when the message becomes
// a retry without new attempts, and when it is requeued. Delivering the message deletes the log.
func attemptsAreKept(t testing.TB, table Table) {
	a := holder(t, table, "a")
	id := write(t, table, outbox.Message{Topic: "attempts", Key: "k"})[0]
	a.wantLog("a new message", id, "", nil)
	settle := func(state storage.State, log storage.AttemptLog) storage.Settlement {
		s := a.as(state, a.waiting(id, ""))
		s.Error, s.Failed = "why", log
		a.mustSettle(s)
		return s
	}
	settle(storage.StateRetry, attempts("s", 1))
	a.wantLog("the first retry", id, "", attempts("s", 1))
	settle(storage.StateRetry, attempts("s", 2, 3))
	a.wantLog("the second retry", id, "", attempts("s", 1, 2, 3))
	settle(storage.StateRetry, nil)
	a.wantLog("a retry without an attempt", id, "", attempts("s", 1, 2, 3))
	old := a.as(storage.StateRetry, a.waiting(id, ""))
	old.Fence--
	old.Failed = attempts("s", 9)
	if got, want := a.settle(old), (storage.Settled{Fenced: 1}); got != want {
		t.Errorf("settled with an old fence: %+v, want %+v", got, want)
	}
	parked := settle(storage.StateError, attempts("s", 4))
	if got, want := a.settle(parked), (storage.Settled{Missing: 1}); got != want {
		t.Errorf("parked again: %+v, want %+v", got, want)
	}
	a.wantLog("the parked message", id, "", attempts("s", 1, 2, 3, 4))
	if requeued := a.requeue(storage.Filter{IDs: []string{strconv.FormatInt(id, 10)}}); requeued != 1 {
		t.Fatalf("requeued %d rows, want 1", requeued)
	}
	a.wantLog("the requeued message", id, "", attempts("s", 1, 2, 3, 4))
	settle(storage.StateRetry, attempts("s", 5))
	a.wantLog("a retry after the requeue", id, "", attempts("s", 1, 2, 3, 4, 5))
	settle(storage.StateDone, nil)
	a.wantLog("the delivered message", id, "", nil)
}

// Each row of a batch gets only its own attempts, even if the batch settles its rows to different states.
func attemptsOfABatch(t testing.TB, table Table) {
	a := holder(t, table, "a")
	id := write(t, table, plain(4)...)
	first := a.as(storage.StateRetry, a.row(id[0]))
	first.Failed = attempts("s", 1)
	a.mustSettle(first)
	again, parked, done, silent := a.as(storage.StateError, a.waiting(id[0], "")), a.as(storage.StateError, a.row(id[1])), a.as(storage.StateDone, a.row(id[2])), a.as(storage.StateRetry, a.row(id[3]))
	again.Failed, parked.Failed, done.Failed = attempts("s", 2), attempts("s", 3, 4), attempts("s", 5)
	a.mustSettle(again, parked, done, silent)
	for i, want := range []storage.AttemptLog{attempts("s", 1, 2), attempts("s", 3, 4), nil, nil} {
		a.wantLog(fmt.Sprintf("row %d of the batch", i+1), id[i], "", want)
	}
}

// A log has at most MostAttempts attempts and MostAttemptLog bytes. If there are more, only the last
// attempts are kept.
func attemptLogsAreLimited(t testing.TB, table Table) {
	a := holder(t, table, "a")
	id := write(t, table, plain(1)...)[0]
	for first := 0; first < 3*storage.MostAttempts/2; first += 6 {
		s := a.as(storage.StateRetry, a.waiting(id, ""))
		for number := range 6 {
			long := attempt(first+number, "s")
			long.Answer = fmt.Sprint(first+number, strings.Repeat("✓", 300))
			s.Failed = append(s.Failed, long)
		}
		a.mustSettle(s)
	}
	log := a.parts(id)[0].AttemptLog
	if len(log) == 0 {
		t.Fatal("the log is empty")
	}
	last := log[len(log)-1]
	if len(log) < storage.MostAttempts/4 || len(log) > storage.MostAttempts || len(log.Text()) > storage.MostAttemptLog || last.DurationMS != 29 || !strings.HasPrefix(last.Answer, "29✓✓✓") {
		t.Errorf("the log has %d attempts and %d bytes, the last one is %+v; want the last attempts, at most %d of them and %d bytes", len(log), len(log.Text()), last, storage.MostAttempts, storage.MostAttemptLog)
	}
}

// If several sinks need a message, each of its rows has its own log.
func attemptsOfEachSink(t testing.TB, table Table) {
	a := holder(t, table, "a")
	for _, held := range []bool{false, true} {
		row := a.waitingAt(table, held, outbox.Message{Topic: "several", Key: "k"})
		part := a.part(storage.StateRetry, row, "x", "y,z")
		part.Failed = attempts("x", 1)
		a.mustSettle(part)
		rest := a.part(storage.StateError, a.waiting(row.ID, "y,z"), "y", "z")
		rest.Failed = attempts("y", 2, 3)
		a.mustSettle(rest)
		again := a.as(storage.StateRetry, a.waiting(row.ID, "x"))
		again.Failed = attempts("x", 4)
		a.mustSettle(again, a.as(storage.StateRetry, a.waiting(row.ID, "z")))
		a.wantLog("the sink x", row.ID, "x", attempts("x", 1, 4))
		a.wantLog("the sink y", row.ID, "y", attempts("y", 2, 3))
		a.wantLog("the sink z", row.ID, "z", nil)
	}
}

// When claiming by rows, a message's log is kept when the row moves back to the pending table, and when the row's claim is released.
func attemptsByRows(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	id := write(t, table, plain(1)...)[0]
	claim := func(state storage.State, log storage.AttemptLog) {
		t.Helper()
		var rows []storage.Row
		eventually(t, "the row can be claimed", func() bool {
			a.do("reclaim", func(ctx context.Context) error {
				_, err := a.store.Reclaim(ctx, plenty)
				return err
			})
			rows = a.claim(storage.ClaimRequest{Token: "t", Limit: 1})
			return len(rows) > 0
		})
		s := claimed("t", state, rows[0])
		s.Failed = log
		a.mustSettle(s)
	}
	claim(storage.StateRetry, attempts("s", 1))
	claim(storage.StatePending, attempts("s", 2))
	a.wantLog("a released claim", id, "", attempts("s", 1, 2))
	claim(storage.StateRetry, nil)
	claim(storage.StateError, attempts("s", 3))
	a.wantLog("the parked message", id, "", attempts("s", 1, 2, 3))
	a.requeue(storage.Filter{IDs: []string{strconv.FormatInt(id, 10)}})
	claim(storage.StateRetry, attempts("s", 4))
	a.wantLog("a retry after the requeue", id, "", attempts("s", 1, 2, 3, 4))
}
