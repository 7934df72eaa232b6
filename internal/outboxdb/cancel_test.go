package outboxdb_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// later writes a message that is due after the given time, and returns its id.
func (db database) later(t testing.TB, in time.Duration) string {
	t.Helper()
	writer, err := outbox.NewWriter(db.dialect, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	message := outbox.Message{ID: outbox.NewID(), Topic: "t", Key: "k", AvailableAt: time.Now().Add(in)}
	if err := writer.Write(t.Context(), outbox.WithoutTransaction(db.DB), message); err != nil {
		t.Fatal(err)
	}
	return message.ID
}

const toHeld = `INSERT INTO outbox_held (id, lane, state, message_id, topic, message_key, priority, attempts, crashes, available_at, created_at)
	SELECT id, lane, 'scheduled', message_id, topic, message_key, priority, attempts, crashes, available_at, created_at FROM outbox`

// hold moves all pending rows to the table of deferred rows, as a relay does.
func (db database) hold(t testing.TB, state string) {
	t.Helper()
	db.exec(t, strings.Replace(toHeld, "scheduled", state, 1))
	db.exec(t, "DELETE FROM outbox")
}

func (db database) left(t testing.TB) (ids []string) {
	t.Helper()
	rows, err := db.DB.QueryContext(t.Context(), db.placeholders("SELECT CAST(message_id AS text) FROM outbox UNION ALL SELECT CAST(message_id AS text) FROM outbox_held"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// cancels calls Cancel with the given ids, and requires that it returns the ids in want.
func (db database) cancels(t testing.TB, tx outbox.Execer, given []string, want ...string) {
	t.Helper()
	writer, err := outbox.NewWriter(db.dialect, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got, err := writer.Cancel(t.Context(), tx, given...); err != nil || !slices.Equal(got, want) {
		t.Errorf("Cancel(%v) = %v, %v; want %v", given, got, err, want)
	}
}

func TestCancel(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		held := []string{db.later(t, time.Hour), db.later(t, time.Hour), db.later(t, 2*time.Second)}
		db.hold(t, "scheduled")
		hot := []string{db.later(t, time.Hour), db.later(t, time.Hour), db.later(t, 2*time.Second), db.later(t, -time.Minute)}
		db.exec(t, "INSERT INTO outbox (topic, message_id) VALUES ('t', ?)", someID)
		all := slices.Concat(held, hot, []string{someID, outbox.NewID()})

		tx := db.begin(t)
		db.cancels(t, tx, slices.Concat(all, held), held[0], held[1], hot[0], hot[1])
		db.cancels(t, tx, all)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if left := db.left(t); len(left) != len(all)-1 {
			t.Errorf("after a rollback the table has %v, want %d messages", left, len(all)-1)
		}
		tx = db.begin(t)
		db.cancels(t, tx, []string{strings.ToUpper(held[1])}, held[1])
		db.cancels(t, tx, []string{hot[0]}, hot[0])
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		want := []string{held[0], held[2], hot[1], hot[2], hot[3], someID}
		slices.Sort(want)
		if left := db.left(t); !slices.Equal(left, want) {
			t.Errorf("the tables have the messages %v, want %v", left, want)
		}
	})
}

// Cancel doesn't delete retries and parked messages, even if their time is in the future.
func TestCancelLeavesRetriesAndParkedMessages(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		retried := db.later(t, time.Hour)
		db.hold(t, "retry")
		parked := db.later(t, time.Hour)
		db.hold(t, "error")
		db.cancels(t, db.begin(t), []string{retried, parked})
	})
}

// A relay moves a message while a transaction cancels it. The transaction waits for the move, and
// finds the message in its new table. At the default isolation level of MariaDB 11.6 and later,
// Cancel fails instead, and the transaction can be repeated.
func TestCancelFindsAMovedMessage(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		if db.Kind == testdb.SQLite {
			return // SQLite has only one writer at a time
		}
		writer := newWriter(t, db.dialect, outbox.Options{})
		for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted} {
			id, moving := db.later(t, time.Hour), db.begin(t)
			for _, statement := range []string{toHeld, "DELETE FROM outbox"} {
				if _, err := moving.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			tx, err := db.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			var cancelled []string
			done := make(chan struct{})
			go func() {
				defer close(done)
				cancelled, err = writer.Cancel(t.Context(), tx, id)
			}()
			select {
			case <-done:
				t.Error("Cancel didn't wait for the move")
			case <-time.After(100 * time.Millisecond):
			}
			if err := moving.Commit(); err != nil {
				t.Fatal(err)
			}
			<-done
			fails := level == sql.LevelDefault && db.isolatesSnapshots(t)
			if fails && !db.dialect.Busy(err) || !fails && (err != nil || !slices.Equal(cancelled, []string{id})) {
				t.Errorf("isolation level %s: Cancel = %v, %v; want the moved message, or an error after which the transaction can be repeated: %v", level, cancelled, err, fails)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// isolatesSnapshots reports whether the server is MariaDB, and REPEATABLE READ fails if another transaction has changed a row since the snapshot.
func (db database) isolatesSnapshots(t *testing.T) bool {
	t.Helper()
	if db.Kind != testdb.MariaDB {
		return false
	}
	var name, value string
	err := db.DB.QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(&name, &value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return value == "ON"
}

// An open transaction that has cancelled a message, or has found none to cancel, blocks neither
// writers nor relays.
func TestCancelBlocksNoOthers(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		if db.Kind == testdb.SQLite {
			return // SQLite has only one writer at a time
		}
		held := db.later(t, time.Hour)
		db.hold(t, "scheduled")
		for name, find := range map[string]func() (string, []string){
			"held":    func() (string, []string) { return held, []string{held} },
			"hot":     func() (string, []string) { id := db.later(t, time.Hour); return id, []string{id} },
			"nowhere": func() (string, []string) { return outbox.NewID(), nil },
		} {
			id, want := find()
			cancelling := db.begin(t)
			db.cancels(t, cancelling, []string{id}, want...)
			others := db.impatient(t)
			messages := copies([]outbox.Message{{Topic: "t"}, {Topic: "t", AvailableAt: time.Now().Add(time.Hour)}}, 200)
			if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), others, messages...); err != nil {
				t.Errorf("%s: a concurrent writer: %v", name, err)
			}
			for i := range 64 { // these INSERTs are like those of a relay that defers rows
				if _, err := others.ExecContext(t.Context(), db.placeholders(`INSERT INTO outbox_held (id, lane, state, message_id, topic, priority, attempts, crashes, created_at)
					VALUES (?, ?, 'scheduled', ?, 't', 0, 0, 0, CURRENT_TIMESTAMP)`), 1_000_000+i, i, outbox.NewID()); err != nil {
					t.Errorf("%s: a concurrent relay: %v", name, err)
					break
				}
			}
			_ = others.Rollback()
			_ = cancelling.Rollback()
		}
	})
}

// A relay delivers no message that a committed transaction has cancelled, and delivers all others.
func TestCancelledIsNeverSent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes eight seconds")
	}
	onEach(t, func(t *testing.T, db database) {
		claim := storage.ByLanes
		if rand.IntN(2) == 0 {
			claim = storage.ByRows
			for _, query := range db.dialect.MakeRowIndexes(mustParse(t, "outbox")) {
				db.exec(t, query.SQL)
			}
		}
		t.Logf("by %s", claim)
		var mu sync.Mutex
		sent := map[string]int{}
		ctx, stop := context.WithCancel(t.Context())
		store, err := sqlstore.Open(ctx, db.DB, db.dialect, sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := relay.New(store, relay.Options{Claim: claim, Logger: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond,
			Sinks: map[string]relay.SinkOptions{"s": {Sink: inproc.Func(func(_ context.Context, message sinks.Message) error {
				mu.Lock()
				defer mu.Unlock()
				sent[message.ID]++
				return nil
			})}}})
		if err != nil {
			t.Fatal(err)
		}
		const count = 200
		start := time.Now()
		var ids []string
		var messages []outbox.Message
		for i := range count {
			id := outbox.NewID()
			ids = append(ids, id)
			messages = append(messages, outbox.Message{ID: id, Topic: "t", Key: id[30:], AvailableAt: start.Add(5*time.Second + time.Duration(i)*10*time.Millisecond)})
		}
		if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), outbox.WithoutTransaction(db.DB), messages...); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()

		cancelled := map[string]bool{}
		order := rand.Perm(count)
		for len(order) > 0 && time.Since(start) < 3*time.Second {
			n := min(len(order), 1+rand.IntN(3))
			var some []string
			for _, i := range order[:n] {
				some = append(some, ids[i])
			}
			order = order[n:]
			tx, err := db.DB.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := newWriter(t, db.dialect, outbox.Options{}).Cancel(t.Context(), tx, some...)
			if err != nil {
				if !db.dialect.Busy(err) {
					t.Errorf("cancel: %v", err)
				}
				_ = tx.Rollback()
				continue
			}
			if rand.IntN(4) == 0 {
				_ = tx.Rollback()
				continue
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			for _, id := range got {
				cancelled[id] = true
			}
			time.Sleep(10 * time.Millisecond) // spread the calls over the seconds in which messages become due
		}
		for deadline := time.Now().Add(patience); time.Now().Before(deadline) && len(db.left(t)) > 0; {
			time.Sleep(50 * time.Millisecond)
		}
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, id := range ids {
			if cancelled[id] == (sent[id] > 0) {
				t.Errorf("%s was cancelled: %t, and sent %d times", id, cancelled[id], sent[id])
			}
		}
		t.Logf("%d of %d cancelled", len(cancelled), count)
	})
}

func TestCancelRefuses(t *testing.T) {
	t.Parallel()
	for _, target := range targets() {
		if target.Kind != testdb.SQLite {
			continue
		}
		db := migrated(t, target, "outbox")
		writer := newWriter(t, db.dialect, outbox.Options{})
		var invalid *outbox.ValidationError
		if _, err := writer.Cancel(t.Context(), db.begin(t), someID, "42"); !errors.As(err, &invalid) || invalid.Index != 1 || invalid.Field != "ID" {
			t.Errorf("Cancel of an id that isn't a UUID: %v", err)
		}
		for want, handle := range map[string]outbox.Execer{"the transaction is nil": (*sql.Tx)(nil), "is not a transaction": db.DB, "returns no results": outbox.PgxBatch(&pgx.Batch{})} {
			if _, err := writer.Cancel(t.Context(), handle, someID); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Cancel with %T: %v", handle, err)
			}
		}
		if got, err := writer.Cancel(t.Context(), nil); got != nil || err != nil {
			t.Errorf("Cancel without ids: %v, %v", got, err)
		}
		return
	}
}

func TestPgxCancels(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		id, conn := db.later(t, time.Hour), connect(t, db)
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			db.cancels(t, outbox.Pgx(tx), []string{id}, id)
			return nil
		})
		if left := db.left(t); err != nil || len(left) > 0 {
			t.Errorf("after Cancel the table has %v, want no message; the transaction returned %v", left, err)
		}
	})
}
