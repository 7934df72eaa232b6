package outboxdb_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// database is a database with an outbox table.
type database struct {
	testdb.Database
	dialect dialect.Dialect
}

// targets returns the targets for which these tests have SQL.
func targets() []testdb.Target {
	return slices.DeleteFunc(testdb.Each(), func(target testdb.Target) bool {
		return target.Kind == testdb.SQLServer || target.Kind == testdb.Oracle
	})
}

func isMySQL(kind string) bool { return kind == testdb.MySQL || kind == testdb.MariaDB }

func onEach(t *testing.T, test func(*testing.T, database)) {
	t.Parallel()
	for _, target := range targets() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			test(t, migrated(t, target, "outbox"))
		})
	}
}

func onPostgres(t *testing.T, test func(*testing.T, database)) {
	t.Parallel()
	for _, target := range testdb.Each() {
		if target.Kind != testdb.Postgres {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			test(t, migrated(t, target, "outbox"))
		})
	}
}

func migrated(t testing.TB, target testdb.Target, table string) database {
	t.Helper()
	open := target.Open
	if table == dialect.DefaultTable {
		open = target.OpenOutbox
	}
	db, err := database{Database: open(t)}, error(nil)
	if db.dialect, err = dialect.ByName(target.Kind); err != nil {
		t.Fatal(err)
	}
	if schema, _, qualified := strings.Cut(table, "."); qualified {
		db.exec(t, "CREATE SCHEMA "+schema)
	}
	tables, err := migrations.New(db.DB, db.dialect, migrations.Options{Table: table})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

func (db database) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := db.DB.ExecContext(t.Context(), db.placeholders(query), args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// placeholders replaces each ? and the type text by the database's syntax.
func (db database) placeholders(query string) string {
	if isMySQL(db.Kind) {
		return strings.ReplaceAll(query, " AS text)", " AS char)")
	}
	if db.Kind != testdb.Postgres {
		return query
	}
	for n := '1'; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", "$"+string(n), 1)
	}
	return query
}

func (db database) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := db.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

const someID = "019b7ca9-8f2e-7800-a6fd-4d798f0ddb85"

func newWriter(t *testing.T, d dialect.Dialect, options outbox.Options) *outbox.Writer {
	t.Helper()
	writer, err := outbox.NewWriter(d, options)
	if err != nil {
		t.Fatal(err)
	}
	return writer
}

// stored is a row as it is in the database.
type stored struct {
	ID                   int64
	Lane                 int
	MessageID, Topic     string
	Key, Text, Headers   sql.NullString
	Payload              []byte
	NoPayload            bool // the payload is NULL; some drivers also return nil for an empty payload
	Priority             int
	AvailableAt, Created sql.NullString
}

func (db database) rows(t testing.TB) []stored {
	t.Helper()
	query := `SELECT id, lane, CAST(message_id AS text), topic, message_key, payload, payload IS NULL, payload_text,
		CAST(headers AS text), priority, CAST(available_at AS text), CAST(created_at AS text) FROM outbox ORDER BY id`
	rows, err := db.DB.QueryContext(t.Context(), db.placeholders(query))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []stored
	for rows.Next() {
		var row stored
		if err := rows.Scan(&row.ID, &row.Lane, &row.MessageID, &row.Topic, &row.Key, &row.Payload, &row.NoPayload, &row.Text,
			&row.Headers, &row.Priority, &row.AvailableAt, &row.Created); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
