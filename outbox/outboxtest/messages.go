// Package outboxtest helps to test code that writes to an outbox. With a real
// database, a test reads the written messages with [Messages] or [PgxMessages].
// Without a database, it passes a [Recorder] instead of the Writer. [Expect] compares
// all written messages, and [ExpectAmong] looks for some of them.
package outboxtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Querier runs queries. It is a *sql.DB, or the *sql.Tx of a transaction that the
// test rolls back.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Messages returns all messages of the table ("outbox" or "schema.name") in the
// order in which they were inserted, including delivered messages that retention
// has not deleted yet. If a row has a payload_text, that text is the Payload. If the
// table can't be read, Messages ends the test with Fatalf.
func Messages(t testing.TB, db Querier, d dialect.Dialect, table string) []outbox.Message {
	t.Helper()
	messages, err := read(t.Context(), db, d, table)
	if err != nil {
		t.Fatalf("read the messages in %s: %v", table, err)
	}
	return messages
}

func read(ctx context.Context, db Querier, d dialect.Dialect, name string) ([]outbox.Message, error) {
	table, err := dialect.ParseTable(name)
	if err != nil {
		return nil, err
	}
	query := d.Written(table)
	rows, err := db.QueryContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	return scanAll(rows)
}

// PgxMessages is [Messages] for pgx without database/sql. tx is a pgx.Tx that the test
// rolls back, a *pgx.Conn or a *pgxpool.Pool. Go infers Rows, which is pgx.Rows.
func PgxMessages[Rows interface {
	scanner
	Close()
}](t testing.TB, tx interface {
	Query(ctx context.Context, query string, args ...any) (Rows, error)
}, table string) []outbox.Message {
	t.Helper()
	parsed, err := dialect.ParseTable(table)
	var messages []outbox.Message
	if err == nil {
		query := dialect.Postgres().Written(parsed)
		var rows Rows
		if rows, err = tx.Query(t.Context(), query.SQL, query.Args...); err == nil {
			defer rows.Close()
			messages, err = scanAll(rows)
		}
	}
	if err != nil {
		t.Fatalf("read the messages in %s: %v", table, err)
	}
	return messages
}

// scanner has the methods that *sql.Rows and pgx.Rows share.
type scanner interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

func scanAll(rows scanner) (messages []outbox.Message, err error) {
	for rows.Next() {
		message, err := scan(rows)
		if err != nil {
			return nil, err
		}
		messages = append(messages, message)
	}
	return messages, rows.Err()
}

func scan(rows scanner) (outbox.Message, error) {
	var m outbox.Message
	var key, text, headers, availableAt, expiresAt sql.NullString
	var noPayload bool
	err := rows.Scan(&m.ID, &m.Topic, &key, &m.Payload, &noPayload, &text, &headers, &availableAt, &expiresAt, &m.Priority)
	if err != nil {
		return m, err
	}
	m.Key = key.String
	switch {
	case text.Valid:
		m.Payload = []byte(text.String)
	case !noPayload && m.Payload == nil:
		m.Payload = []byte{} // some drivers read an empty value as nil
	}
	if headers.Valid {
		if err := json.Unmarshal([]byte(headers.String), &m.Headers); err != nil {
			return m, fmt.Errorf("headers of %s: %w", m.ID, err)
		}
	}
	for _, each := range []struct {
		text sql.NullString
		at   *time.Time
	}{{availableAt, &m.AvailableAt}, {expiresAt, &m.ExpiresAt}} {
		if each.text.Valid {
			if *each.at, err = time.Parse(dialect.WrittenTime, each.text.String); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}
