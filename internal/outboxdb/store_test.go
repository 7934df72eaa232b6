package outboxdb_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

// copies returns the messages, repeated the given number of times. The Writer inserts few
// messages as a list of values and many as arrays, and both must store the same rows.
func copies(messages []outbox.Message, count int) []outbox.Message {
	var all []outbox.Message
	for range count {
		all = append(all, messages...)
	}
	return all
}

var everyByte = func() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}()

var difficult = []outbox.Message{
	{Topic: "plain", Payload: []byte(`{"order": 42}`)},
	{Topic: "nothing"},
	{Topic: "empty", Payload: []byte{}},
	{Topic: "binary", Payload: everyByte},
	{Topic: "backslashes", Payload: []byte(`C:\new\x00 \\ '' " $1 ?`)},
	{Topic: `quotes " ' \ {a,b} NULL $1 ?`, Key: `key " ' \ {a,b} NULL`, Headers: map[string]string{`h " ' \`: "v \" ' \\ \n\t<>&\u2028 {}"}},
	{Topic: "NULL", Key: "null", Headers: map[string]string{"NULL": "", "b": "2", "ü": "日本 🚀"}},
	{Topic: " spaces ", Key: " "},
	{Topic: "no headers", Headers: map[string]string{}, Priority: -32768},
	{Topic: "日本", Key: "🚀", Priority: 32767, ID: someID, AvailableAt: time.Date(2030, 1, 2, 4, 4, 5, 678_900_001, time.FixedZone("", 3600))},
}

func TestWriteStoresEveryField(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		for _, messages := range [][]outbox.Message{difficult, copies(difficult, 5)} {
			db.exec(t, "DELETE FROM outbox")
			if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), outbox.WithoutTransaction(db.DB), messages...); err != nil {
				t.Fatal(err)
			}
			rows := db.rows(t)
			if len(rows) != len(messages) {
				t.Fatalf("%d rows of %d messages", len(rows), len(messages))
			}
			for i, row := range rows {
				compare(t, db, messages[i], row)
			}
		}
	})
}

func compare(t *testing.T, db database, message outbox.Message, row stored) {
	t.Helper()
	if row.Topic != message.Topic || row.Key.String != message.Key || row.Key.Valid != (message.Key != "") {
		t.Errorf("%q: topic %q, key %v", message.Topic, row.Topic, row.Key)
	}
	if !bytes.Equal(row.Payload, message.Payload) || row.NoPayload != (message.Payload == nil) || row.Text.Valid {
		t.Errorf("%q: payload %q (NULL: %v), payload_text %v", message.Topic, row.Payload, row.NoPayload, row.Text)
	}
	if message.ID != "" && row.MessageID != message.ID {
		t.Errorf("%q: id %s", message.Topic, row.MessageID)
	}
	if row.Priority != int(message.Priority) {
		t.Errorf("%q: priority %d", message.Topic, row.Priority)
	}
	compareHeaders(t, message, row.Headers)
	compareTime(t, db, message.AvailableAt, row.AvailableAt)
}

func compareHeaders(t *testing.T, message outbox.Message, stored sql.NullString) {
	t.Helper()
	if len(message.Headers) == 0 {
		if stored.Valid {
			t.Errorf("%q: headers %v, want NULL", message.Topic, stored)
		}
		return
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(stored.String), &got); err != nil || !maps.Equal(got, message.Headers) {
		t.Errorf("%q: headers %s, %v; want %v", message.Topic, stored.String, err, message.Headers)
	}
}

// compareTime requires that the stored time is the message's time, rounded up to the precision of
// the column.
func compareTime(t *testing.T, db database, at time.Time, stored sql.NullString) {
	t.Helper()
	if at.IsZero() {
		if stored.Valid {
			t.Errorf("available_at %s, want NULL", stored.String)
		}
		return
	}
	format, want := "2006-01-02 15:04:05.999999Z07", at.Add(time.Microsecond).Truncate(time.Microsecond)
	if isMySQL(db.Kind) {
		format = "2006-01-02 15:04:05.000000"
	}
	if db.Kind == testdb.SQLite {
		format, want = "2006-01-02 15:04:05.000", at.Add(time.Millisecond).Truncate(time.Millisecond)
	}
	if got, err := time.Parse(format, stored.String); err != nil || !got.Equal(want) {
		t.Errorf("available_at %s, %v; want %s", stored.String, err, want.UTC())
	}
}

func TestWriteTakesEveryHandle(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		conn, err := db.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		writer := newWriter(t, db.dialect, outbox.Options{})
		for _, handle := range []outbox.Execer{conn, db.DB} {
			m, want := outbox.Message{Topic: fmt.Sprintf("%T", handle)}, fmt.Sprintf("a %T is not a transaction", handle)
			if err := writer.Write(t.Context(), handle, m); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Write outside a transaction: %v, want %q", err, want)
			}
			if err := writer.Write(t.Context(), outbox.WithoutTransaction(handle), m); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if rows := db.rows(t); len(rows) != 2 || rows[0].Topic != "*sql.Conn" || rows[1].Topic != "*sql.DB" {
			t.Errorf("rows %+v", rows)
		}
	})
}

func TestMessageExistsOnlyIfItsTransactionCommits(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		writer := newWriter(t, db.dialect, outbox.Options{})
		for topic, end := range map[string]func(*sql.Tx) error{"kept": (*sql.Tx).Commit, "lost": (*sql.Tx).Rollback} {
			tx := db.begin(t)
			if err := writer.Write(t.Context(), tx, copies([]outbox.Message{{Topic: topic}}, 30)...); err != nil {
				t.Fatal(err)
			}
			if err := end(tx); err != nil {
				t.Fatal(err)
			}
		}
		rows := db.rows(t)
		if len(rows) != 30 {
			t.Errorf("%d rows, want 30", len(rows))
		}
		for _, row := range rows {
			if row.Topic != "kept" {
				t.Errorf("row %d was rolled back", row.ID)
			}
		}
	})
}

func TestIDsAreInTheOrderOfTheCall(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		messages := make([]outbox.Message, 1000)
		for i := range messages {
			messages[i] = outbox.Message{Topic: fmt.Sprint(i), Key: fmt.Sprint(i % 7)}
		}
		counted := &counter{Execer: db.DB}
		if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), counted, messages...); err != nil {
			t.Fatal(err)
		}
		rows := db.rows(t)
		if counted.statements != 1 || len(rows) != len(messages) {
			t.Fatalf("%d rows by %d statements", len(rows), counted.statements)
		}
		for i, row := range rows {
			if row.Topic != messages[i].Topic || i > 0 && row.MessageID <= rows[i-1].MessageID {
				t.Fatalf("row %d is message %s with the id %s", i, row.Topic, row.MessageID)
			}
		}
	})
}

type counter struct {
	outbox.Execer
	statements int
}

func (c *counter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.statements++
	return c.Execer.ExecContext(ctx, query, args...)
}

// These messages need several statements: SQLite has a limit on parameters, and for other
// databases the Writer limits the bytes of a statement.
func TestLargeWritesTakeSeveralStatements(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		messages := copies(difficult, 500)
		if db.Kind == testdb.Postgres {
			messages = copies([]outbox.Message{{Topic: "t", Payload: bytes.Repeat([]byte("x"), 1<<20)}}, 18)
		}
		if isMySQL(db.Kind) {
			messages = copies([]outbox.Message{{Topic: "t", Payload: bytes.Repeat([]byte("x"), 1<<19)}}, 3)
		}
		size := 0
		for _, message := range messages {
			size += len(message.Payload)
		}
		tx := db.begin(t)
		counted := &counter{Execer: tx}
		if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), counted, messages...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		var rows, payloads int
		query := "SELECT count(*), coalesce(sum(length(payload)), 0) FROM outbox"
		if err := db.DB.QueryRowContext(t.Context(), query).Scan(&rows, &payloads); err != nil {
			t.Fatal(err)
		}
		if counted.statements != 2 || rows != len(messages) || payloads != size {
			t.Errorf("%d statements, %d rows of %d, %d bytes", counted.statements, rows, len(messages), payloads)
		}
	})
}

// Poolers such as PgBouncer need other modes of sending statements, in which drivers send less
// about the types of parameters to the server.
func TestEveryModeOfTheDriversWorks(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		parameters := []string{"default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol",
			"default_query_exec_mode=cache_describe", "default_query_exec_mode=describe_exec"}
		if db.Driver == "postgres" {
			parameters = []string{"binary_parameters=yes"}
		}
		for _, parameter := range parameters {
			other := db
			other.DSN += map[bool]string{true: "&", false: "?"}[strings.Contains(db.DSN, "?")] + parameter
			pool := other.OpenAnother(t)
			db.exec(t, "DELETE FROM outbox")
			messages := append(copies(difficult, 1), copies(difficult, 5)...)
			for _, part := range [][]outbox.Message{messages[:len(difficult)], messages[len(difficult):]} {
				writer := newWriter(t, db.dialect, outbox.Options{KeyLocks: true, Notify: true})
				tx, err := pool.BeginTx(t.Context(), nil)
				if err == nil {
					err = errors.Join(writer.Write(t.Context(), tx, part...), tx.Commit())
				}
				if err != nil {
					t.Fatalf("%s: %v", parameter, err)
				}
			}
			for i, row := range db.rows(t) {
				compare(t, db, messages[i], row)
			}
		}
	})
}

func TestTableInASchema(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() {
		if target.Kind != testdb.Postgres {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t, target, "app.Order")
			writer := newWriter(t, db.dialect, outbox.Options{Table: "app.Order", KeyLocks: true, Notify: true})
			tx := db.begin(t)
			if err := errors.Join(writer.Write(t.Context(), tx, difficult...), tx.Commit()); err != nil {
				t.Fatal(err)
			}
			var rows int
			if err := db.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM app."Order"`).Scan(&rows); err != nil || rows != len(difficult) {
				t.Errorf("%d rows, %v", rows, err)
			}
		})
	}
}

// On MySQL and MariaDB the column has no time zone. The value of a plain INSERT is interpreted as
// UTC, whatever the time zone of the session. The Writer converts times to UTC.
func TestAvailableAtIsInUTC(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		if !isMySQL(db.Kind) {
			return
		}
		conn, err := db.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for _, statement := range []string{
			"SET SESSION time_zone = '+05:00'",
			"INSERT INTO outbox (topic, available_at) VALUES ('utc', utc_timestamp(6))",
			"INSERT INTO outbox (topic, available_at) VALUES ('local', now(6))", // due five hours late, because the session's time zone is not UTC
		} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		written := outbox.Message{Topic: "writer", AvailableAt: time.Now().Add(-time.Minute).In(time.FixedZone("", 5*3600))}
		if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), outbox.WithoutTransaction(conn), written); err != nil {
			t.Fatal(err)
		}
		for topic, want := range map[string]string{"utc": "pending", "local": "scheduled", "writer": "pending"} {
			var state string
			if err := db.DB.QueryRowContext(t.Context(), "SELECT state FROM outbox_messages WHERE topic = ?", topic).Scan(&state); err != nil || state != want {
				t.Errorf("%s is %s, %v; want %s", topic, state, err, want)
			}
		}
	})
}
