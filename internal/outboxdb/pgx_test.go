package outboxdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

// onPgx runs a test on each PostgreSQL server once. The test makes its own connections.
func onPgx(t *testing.T, test func(*testing.T, database)) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Kind != testdb.Postgres || target.Driver != "pgx" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			test(t, migrated(t, target, "outbox"))
		})
	}
}

func connect(t *testing.T, db database) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// some returns this number of messages. The Writer uses different statements for few and for
// many messages.
func some(count int) []outbox.Message {
	messages := make([]outbox.Message, count)
	for i := range messages {
		messages[i] = outbox.Message{ID: outbox.NewID(), Topic: fmt.Sprintf(`topic "%d" \ {}`, i), Key: fmt.Sprint(i % 3),
			Headers: map[string]string{"a": `"b" \`}, AvailableAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), ExpiresAt: time.Date(2030, 1, 3, 0, 0, 0, 0, time.UTC), Priority: int16(i)}
		if i%3 > 0 {
			messages[i].Payload = []byte(strings.Repeat("\x00\xff\\", i%3-1))
		}
	}
	return messages
}

func TestPgxStoresEveryField(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		writer := newWriter(t, dialect.Postgres(), outbox.Options{KeyLocks: true, Notify: true})
		var written []outbox.Message
		for _, count := range []int{0, 1, 6, 200} {
			messages := some(count)
			err := pgx.BeginFunc(t.Context(), connect(t, db), func(tx pgx.Tx) error {
				return writer.Write(t.Context(), outbox.Pgx(tx), messages...)
			})
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, messages...)
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, dialect.Postgres(), "outbox"), written...)
	})
}

func TestPgxRollbackLeavesNothing(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		tx, err := connect(t, db).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := newWriter(t, dialect.Postgres(), outbox.Options{}).Write(t.Context(), outbox.Pgx(tx), some(30)...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, dialect.Postgres(), "outbox"))
	})
}

func TestPgxTakesConnectionsAndPools(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		pool, err := pgxpool.New(t.Context(), db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		messages := some(2)
		for i, handle := range []outbox.Execer{outbox.Pgx(connect(t, db)), outbox.Pgx(pool)} {
			writer := newWriter(t, dialect.Postgres(), outbox.Options{})
			if err := writer.Write(t.Context(), handle, messages[i]); err == nil || !strings.Contains(err.Error(), "is not a transaction") {
				t.Errorf("Write outside a transaction: %v", err)
			}
			if err := writer.Write(t.Context(), outbox.WithoutTransaction(handle), messages[i]); err != nil {
				t.Fatal(err)
			}
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, dialect.Postgres(), "outbox"), messages...)
	})
}

// A test with a pgx.Tx can read the messages that were written in the transaction. A test
// without a database can record the written messages.
func TestPgxMessagesReturnsTheWrittenMessages(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		conn, written, no := connect(t, db), append(some(30), everyField...), errors.New("it is rolled back")
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if err := newWriter(t, dialect.Postgres(), outbox.Options{}).Write(t.Context(), outbox.Pgx(tx), written...); err != nil {
				return err
			}
			outboxtest.Expect(t, outboxtest.PgxMessages(t, tx, "outbox"), written...)
			return no
		})
		if !errors.Is(err, no) {
			t.Fatal(err)
		}
		outboxtest.Expect(t, outboxtest.PgxMessages(t, conn, "outbox"))
		for _, table := range []string{"other", "out;box"} {
			if reported := fatal(t, func(t testing.TB) { outboxtest.PgxMessages(t, conn, table) }); !strings.Contains(reported, "read the messages in "+table) {
				t.Errorf("PgxMessages of table %s reports %q", table, reported)
			}
		}
	})
	t.Run("recorded", func(t *testing.T) {
		t.Parallel()
		var recorder outboxtest.Recorder
		var noTx pgx.Tx
		if err := recorder.Write(t.Context(), outbox.Pgx(noTx), everyField...); err != nil {
			t.Fatal(err)
		}
		outboxtest.Expect(t, recorder.Messages(), everyField...)
	})
}

func TestPgxBatchWritesItsMessages(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		conn, messages := connect(t, db), some(30)
		for _, last := range []string{"SELECT 1", "SELECT 1 / 0"} {
			batch := &pgx.Batch{}
			batch.Queue("CREATE TABLE IF NOT EXISTS orders (id int)")
			if err := newWriter(t, dialect.Postgres(), outbox.Options{}).Write(t.Context(), outbox.PgxBatch(batch), messages...); err != nil {
				t.Fatal(err)
			}
			batch.Queue(last)
			if err := conn.SendBatch(t.Context(), batch).Close(); (err == nil) != (last == "SELECT 1") {
				t.Errorf("a batch with %s: %v", last, err)
			}
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, dialect.Postgres(), "outbox"), messages...)
	})
}

func TestPgxErrors(t *testing.T) {
	t.Parallel()
	var invalid *outbox.ValidationError
	batch := &pgx.Batch{}
	if err := newWriter(t, dialect.Postgres(), outbox.Options{}).Write(t.Context(), outbox.PgxBatch(batch), outbox.Message{Topic: "t"}, outbox.Message{}); !errors.As(err, &invalid) || invalid.Index != 1 || batch.Len() > 0 {
		t.Errorf("Write to a batch: %v, %d statements", err, batch.Len())
	}
	var noTx pgx.Tx
	for name, handle := range map[string]outbox.Execer{"no transaction": outbox.Pgx(noTx), "a nil connection": outbox.Pgx((*pgx.Conn)(nil)),
		"a nil batch": outbox.PgxBatch((*pgx.Batch)(nil))} {
		err := newWriter(t, dialect.Postgres(), outbox.Options{}).Write(t.Context(), handle, outbox.Message{Topic: "t"})
		if err == nil || !strings.Contains(err.Error(), "the transaction is nil") {
			t.Errorf("Write with %s: %v", name, err)
		}
	}
}

func TestPgxMissingTableSaysWhatToDo(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		err := newWriter(t, dialect.Postgres(), outbox.Options{Table: "other"}).Write(t.Context(), outbox.WithoutTransaction(outbox.Pgx(connect(t, db))), outbox.Message{Topic: "t"})
		if err == nil || !strings.Contains(err.Error(), "the table is missing") {
			t.Errorf("Write: %v", err)
		}
	})
}

// A consumer's inbox accepts a pgx transaction, as a Writer does.
func TestPgxServesAnInbox(t *testing.T) {
	onPgx(t, func(t *testing.T, db database) {
		tables, err := migrations.NewInbox(db.DB, dialect.Postgres(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tables.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New(dialect.Postgres(), "billing", inbox.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{true, false} {
			err := pgx.BeginFunc(t.Context(), connect(t, db), func(tx pgx.Tx) error {
				first, err := in.Once(t.Context(), outbox.Pgx(tx), "a")
				if first != want {
					t.Errorf("Once = %t, want %t", first, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
