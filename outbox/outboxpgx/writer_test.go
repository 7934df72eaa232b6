package outboxpgx_test

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
	"github.com/rowrelay/rowrelay/outbox/outboxpgx"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

func onEach(t *testing.T, test func(*testing.T, testdb.Database)) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Kind != testdb.Postgres || target.Driver != "pgx" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := target.Open(t)
			tables, err := migrations.New(db.DB, dialect.Postgres(), migrations.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tables.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, db)
		})
	}
}

func connect(t *testing.T, db testdb.Database) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func newWriter(t *testing.T, options ...outbox.Option) *outboxpgx.Writer {
	t.Helper()
	writer, err := outboxpgx.NewWriter(options...)
	if err != nil {
		t.Fatal(err)
	}
	return writer
}

// some are as many as the count says: few and many go in by different
// statements.
func some(count int) []outbox.Message {
	messages := make([]outbox.Message, count)
	for i := range messages {
		messages[i] = outbox.Message{ID: outbox.NewID(), Topic: fmt.Sprintf(`topic "%d" \ {}`, i), Key: fmt.Sprint(i % 3),
			Headers: map[string]string{"a": `"b" \`}, AvailableAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Priority: int16(i)}
		if i%3 > 0 {
			messages[i].Payload = []byte(strings.Repeat("\x00\xff\\", i%3-1))
		}
	}
	return messages
}

func TestWriteStoresEveryField(t *testing.T) {
	onEach(t, func(t *testing.T, db testdb.Database) {
		writer := newWriter(t, outbox.WithKeyLocks(), outbox.WithNotify(0))
		var written []outbox.Message
		for _, count := range []int{0, 1, 6, 200} {
			messages := some(count)
			err := pgx.BeginFunc(t.Context(), connect(t, db), func(tx pgx.Tx) error {
				return writer.Write(t.Context(), tx, messages...)
			})
			if err != nil {
				t.Fatal(err)
			}
			written = append(written, messages...)
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, dialect.Postgres(), "outbox"), written...)
	})
}

func TestRollbackLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, db testdb.Database) {
		tx, err := connect(t, db).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := newWriter(t).Write(t.Context(), tx, some(30)...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, dialect.Postgres(), "outbox"))
	})
}

func TestWriteTakesConnectionsAndPools(t *testing.T) {
	onEach(t, func(t *testing.T, db testdb.Database) {
		pool, err := pgxpool.New(t.Context(), db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		messages := some(2)
		for i, handle := range []outboxpgx.Execer{connect(t, db), pool} {
			if err := newWriter(t).Write(t.Context(), handle, messages[i]); err != nil {
				t.Fatal(err)
			}
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, dialect.Postgres(), "outbox"), messages...)
	})
}

func TestQueuedMessagesGoWithTheirBatch(t *testing.T) {
	onEach(t, func(t *testing.T, db testdb.Database) {
		conn, messages := connect(t, db), some(30)
		for _, last := range []string{"SELECT 1", "SELECT 1 / 0"} {
			batch := &pgx.Batch{}
			batch.Queue("CREATE TABLE IF NOT EXISTS orders (id int)")
			if err := newWriter(t).Queue(batch, messages...); err != nil {
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

func TestErrorsAreThoseOfOutbox(t *testing.T) {
	t.Parallel()
	var invalid *outbox.ValidationError
	batch := &pgx.Batch{}
	if err := newWriter(t).Queue(batch, outbox.Message{Topic: "t"}, outbox.Message{}); !errors.As(err, &invalid) || invalid.Index != 1 || batch.Len() > 0 {
		t.Errorf("Queue: %v, %d statements", err, batch.Len())
	}
	if err := newWriter(t).Write(t.Context(), nil, outbox.Message{Topic: "t"}); err == nil || !strings.Contains(err.Error(), "the transaction is nil") {
		t.Errorf("Write without a transaction: %v", err)
	}
	if _, err := outboxpgx.NewWriter(outbox.WithTable("a b")); err == nil || !strings.Contains(err.Error(), "WithTable") {
		t.Errorf("NewWriter: %v", err)
	}
}

func TestMissingTableSaysWhatToDo(t *testing.T) {
	onEach(t, func(t *testing.T, db testdb.Database) {
		err := newWriter(t, outbox.WithTable("other")).Write(t.Context(), connect(t, db), outbox.Message{Topic: "t"})
		if err == nil || !strings.Contains(err.Error(), "the table is missing") {
			t.Errorf("Write: %v", err)
		}
	})
}

// A consumer's inbox takes the same transactions.
func TestHandleServesAnInbox(t *testing.T) {
	onEach(t, func(t *testing.T, db testdb.Database) {
		tables, err := migrations.NewInbox(db.DB, dialect.Postgres(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tables.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New(dialect.Postgres(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{true, false} {
			err := pgx.BeginFunc(t.Context(), connect(t, db), func(tx pgx.Tx) error {
				first, err := in.Once(t.Context(), outboxpgx.Handle(tx), "a")
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
