package outboxdb_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func mustParse(t testing.TB, name string) dialect.Table {
	t.Helper()
	table, err := dialect.ParseTable(name)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newIDs(count int) []string {
	ids := make([]string, count)
	for i := range ids {
		ids[i] = outbox.NewID()
	}
	return ids
}

// withIDs returns a message for each id. The topic identifies the write.
func withIDs(topic string, ids ...string) (messages []outbox.Message) {
	for _, id := range ids {
		messages = append(messages, outbox.Message{ID: id, Topic: topic})
	}
	return messages
}

// topics returns the topics of all rows, in the order of the rows.
func (db database) topics(t testing.TB) (topics []string) {
	t.Helper()
	for _, row := range db.rows(t) {
		topics = append(topics, row.Topic)
	}
	return topics
}

func wantDuplicates(t testing.TB, err error, want ...string) {
	t.Helper()
	slices.Sort(want)
	var duplicate *outbox.DuplicateError
	if !errors.Is(err, outbox.ErrDuplicate) || !errors.As(err, &duplicate) || !slices.Equal(duplicate.IDs, want) {
		t.Errorf("Write: %v, want duplicates %v", err, want)
	}
}

func TestDuplicatesAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		writer, ids := newWriter(t, db.dialect, outbox.Options{Duplicates: outbox.RefuseDuplicates}), newIDs(4)
		tx := db.begin(t)
		write := func(topic string, ids ...string) error {
			return writer.Write(t.Context(), tx, withIDs(topic, ids...)...)
		}
		if err := write("first", ids[1], ids[0]); err != nil {
			t.Fatal(err)
		}
		wantDuplicates(t, write("again", ids[0]), ids[0])
		wantDuplicates(t, write("some", ids[2], strings.ToUpper(ids[1]), ids[3], ids[0]), ids[1], ids[0])
		wantDuplicates(t, write("twice", ids[2], ids[3], ids[2]), ids[2])
		if err := write("new", ids[2], ids[3]); err != nil { // the transaction is still usable, and the refused write has written neither message
			t.Fatal(err)
		}
		if err := writer.Write(t.Context(), tx, outbox.Message{Topic: "no id"}, outbox.Message{Topic: "no id"}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got, want := db.topics(t), []string{"first", "first", "new", "new", "no id", "no id"}; !slices.Equal(got, want) {
			t.Errorf("the table has %q, want %q", got, want)
		}
		tx = db.begin(t)
		wantDuplicates(t, write("later", ids...), ids...)
	})
}

func TestFirstIsKept(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		writer, ids := newWriter(t, db.dialect, outbox.Options{Duplicates: outbox.KeepFirst}), newIDs(3000)
		first := withIDs("first", ids[0], ids[1])
		twice := withIDs("twice", ids[1], ids[1], ids[2], ids[2])
		many := slices.Concat(withIDs("many", ids...), []outbox.Message{{Topic: "no id"}})
		for _, messages := range [][]outbox.Message{first, first, twice, many, many[:3000], nil} {
			tx := db.begin(t)
			if err := writer.Write(t.Context(), tx, messages...); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		got := db.rows(t)
		if len(got) != 3001 || got[0].Topic != "first" || got[2].Topic != "twice" || got[3].Topic != "many" || got[3000].Topic != "no id" {
			t.Errorf("there are %d rows, want 3001: %+v …", len(got), got[:min(len(got), 4)])
		}
		for i, row := range got[:min(len(got), 3000)] {
			if row.MessageID != ids[i] {
				t.Fatalf("row %d has message %s, want %s", i, row.MessageID, ids[i])
			}
		}
	})
}

// The second of two transactions with the same id waits for the first one. If the first commits,
// the second has a duplicate; if it is rolled back, the second has none.
func TestDuplicateWaitsForTheFirst(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		for _, duplicates := range []outbox.Duplicates{outbox.RefuseDuplicates, outbox.KeepFirst} {
			for _, commits := range []bool{true, false} {
				db.exec(t, "DELETE FROM outbox")
				writer, ids := newWriter(t, db.dialect, outbox.Options{Duplicates: duplicates}), newIDs(3)
				first := db.begin(t)
				if err := writer.Write(t.Context(), first, withIDs("first", ids[1], ids[2])...); err != nil {
					t.Fatal(err)
				}
				answer := make(chan error, 1)
				go func() {
					tx, err := db.DB.BeginTx(t.Context(), nil)
					if err == nil {
						defer func() { _ = tx.Rollback() }()
						err = writer.Write(t.Context(), tx, withIDs("second", ids[0], ids[1])...)
					}
					if err == nil {
						err = tx.Commit()
					}
					answer <- err
				}()
				select {
				case err := <-answer:
					t.Errorf("the second Write didn't wait for the first transaction: %v", err)
					answer <- err
				case <-time.After(100 * time.Millisecond):
				}
				end, want := first.Rollback, []string{"second", "second"}
				if commits {
					end, want = first.Commit, []string{"first", "first"}
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				err := <-answer
				switch {
				case commits && duplicates == outbox.RefuseDuplicates:
					wantDuplicates(t, err, ids[1])
				case err != nil:
					t.Errorf("commits %t: %v", commits, err)
				case commits:
					want = append(want, "second")
				}
				if got := db.topics(t); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
					t.Errorf("duplicates %d, commits %t: the table has %q, want %q", duplicates, commits, got, want)
				}
			}
		}
	})
}

// between is a transaction that calls a function of the test once, after its first statement.
type between struct {
	*sql.Tx
	then func()
}

func (tx *between) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := tx.Tx.ExecContext(ctx, query, args...)
	if then := tx.then; then != nil {
		tx.then = nil
		then()
	}
	return result, err
}

// A Write's first statement finds that an id is already in outbox_ids. Before the Write's next statement,
// a Cancel deletes the id and commits. The Write may then write its messages or refuse them, but
// outbox_ids must have exactly the ids of the existing messages.
func TestWriteBesideACancelRegistersItsIDs(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		for _, duplicates := range []outbox.Duplicates{outbox.RefuseDuplicates, outbox.KeepFirst} {
			writer, ids := newWriter(t, db.dialect, outbox.Options{Duplicates: duplicates}), newIDs(3)
			first := withIDs("first", ids[1])
			first[0].AvailableAt = time.Now().Add(time.Hour)
			commit(t, db.begin(t), func(tx *sql.Tx) error { return writer.Write(t.Context(), tx, first...) })

			cancelled := make(chan struct{})
			cancel := func() {
				defer close(cancelled)
				for { // retry after a deadlock, as an application does
					tx := db.begin(t)
					_, err := writer.Cancel(t.Context(), tx, ids[1])
					if err != nil && db.dialect.Busy(err) {
						_ = tx.Rollback()
						continue
					}
					if err == nil {
						err = tx.Commit()
					}
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
			tx := &between{Tx: db.begin(t), then: func() {
				go cancel()
				if db.Kind == testdb.Postgres { // on other databases the Cancel waits for the end of the Write's transaction
					<-cancelled
				}
			}}
			err := writer.Write(t.Context(), tx, withIDs("second", ids...)...)
			switch {
			case err != nil && db.Kind != testdb.Postgres && db.dialect.Busy(err): // on these databases the Write may be the victim of a deadlock with the waiting Cancel
				_ = tx.Rollback()
			case err != nil && !errors.Is(err, outbox.ErrDuplicate):
				t.Fatal(err)
			default:
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			<-cancelled
			var rows, known int
			if err := db.DB.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox_ids)").Scan(&rows, &known); err != nil {
				t.Fatal(err)
			}
			if rows != known || err == nil && rows == 0 {
				t.Errorf("duplicates %d: Write = %v; outbox has %d messages and outbox_ids has %d ids", duplicates, err, rows, known)
			}
			db.exec(t, "DELETE FROM outbox")
			db.exec(t, "DELETE FROM outbox_ids")
		}
	})
}

func commit(t testing.TB, tx *sql.Tx, do func(*sql.Tx) error) {
	t.Helper()
	err := do(tx)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Error(err)
	}
}

// A message that was cancelled may be written again in the same transaction.
func TestCancelledIsNoDuplicate(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		writer, tx := newWriter(t, db.dialect, outbox.Options{Duplicates: outbox.RefuseDuplicates}), db.begin(t)
		message := outbox.Message{ID: someID, Topic: "t", AvailableAt: time.Now().Add(time.Hour)}
		for range 2 {
			if err := writer.Write(t.Context(), tx, message); err != nil {
				t.Fatal(err)
			}
			if cancelled, err := writer.Cancel(t.Context(), tx, someID); err != nil || len(cancelled) != 1 {
				t.Fatalf("Cancel = %v, %v", cancelled, err)
			}
		}
	})
}

func TestDuplicatesNeedATransaction(t *testing.T) {
	t.Parallel()
	writer := newWriter(t, dialect.Postgres(), outbox.Options{Duplicates: outbox.KeepFirst})
	batch := &pgx.Batch{}
	if err := writer.Write(t.Context(), outbox.PgxBatch(batch), outbox.Message{Topic: "t"}); err == nil || !strings.Contains(err.Error(), "returns no results") || batch.Len() > 0 {
		t.Errorf("Write to a batch: %v", err)
	}
	for _, target := range targets() {
		if target.Kind == "sqlite" {
			if err := writer.Write(t.Context(), migrated(t, target, "outbox").DB, outbox.Message{Topic: "t"}); err == nil || !strings.Contains(err.Error(), "is not a transaction") {
				t.Errorf("Write to a pool: %v", err)
			}
			break
		}
	}
	if _, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{Duplicates: 3}); err == nil {
		t.Error("NewWriter accepts an undefined value of Duplicates")
	}
}

func TestPgxKnowsDuplicates(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		conn, ids := connect(t, db), newIDs(2)
		writer := newWriter(t, db.dialect, outbox.Options{Duplicates: outbox.RefuseDuplicates})
		err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			if err := writer.Write(t.Context(), outbox.Pgx(tx), withIDs("t", ids[0])...); err != nil {
				return err
			}
			wantDuplicates(t, writer.Write(t.Context(), outbox.Pgx(tx), withIDs("t", ids...)...), ids[0])
			return writer.Write(t.Context(), outbox.Pgx(tx), withIDs("t", ids[1])...)
		})
		if got := db.topics(t); err != nil || len(got) != 2 {
			t.Errorf("the table has the topics %v, want 2 messages; the transaction returned %v", got, err)
		}
	})
}
