package migrations_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The SQL that is printed for SQL Server is one batch and one transaction. Statements that
// must be the first in a batch, or that use objects created earlier in the batch, are within EXEC.
func TestPrintedSQLServer(t *testing.T) {
	t.Parallel()
	m, err := migrations.New(nil, dialect.SQLServer(), migrations.Options{Table: "app.Events", Claim: "rows"})
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	if err := m.Print(&printed); err != nil {
		t.Fatal(err)
	}
	text := printed.String()
	at := 0
	for _, want := range []string{
		`-- DROP TABLE app."Events";`,
		"SET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;\n",
		`CREATE SEQUENCE app."Events_id" `,
		`CREATE TABLE app."Events" (`,
		`EXEC (N'CREATE VIEW app."Events_messages" AS`,
		"\nCOMMIT;\n",
		`CREATE INDEX "Events_claim_id" ON app."Events" (id)`,
	} {
		found := strings.Index(text[at:], want)
		if found < 0 {
			t.Fatalf("%q is missing or in the wrong order in:\n%s", want, text)
		}
		at += found
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "GO" || strings.HasPrefix(line, "CREATE VIEW") {
			t.Errorf("%q doesn't work within one batch", line)
		}
	}
}

// openSQLServer opens a database on the server that ROWRELAY_TEST_SQLSERVER names, and skips the test without one.
func openSQLServer(t *testing.T) testdb.Database {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Kind == testdb.SQLServer {
			return target.Open(t)
		}
	}
	t.Skip("ROWRELAY_TEST_SQLSERVER is not set")
	return testdb.Database{}
}

func TestUpAndDownOnSQLServer(t *testing.T) {
	t.Parallel()
	db := openSQLServer(t)
	exec(t, db.DB, "CREATE SCHEMA app")
	for _, name := range []string{"", "app.Events", "plan"} {
		for range 2 {
			var group sync.WaitGroup
			for range 3 {
				m := migrator(t, db, db.OpenAnother(t), migrations.Options{Table: name, Claim: "rows"})
				group.Go(func() {
					if _, err := m.Up(t.Context()); err != nil {
						t.Errorf("Up of %q: %v", name, err)
					}
				})
			}
			group.Wait()
			m := migrator(t, db, db.DB, migrations.Options{Table: name})
			if pending, err := m.Pending(t.Context()); err != nil || len(pending) != 0 {
				t.Errorf("Pending of %q = %v, %v; want nothing", name, pending, err)
			}
			for range migrations.Version {
				if taken, err := m.Down(t.Context()); err != nil || taken == nil {
					t.Errorf("Down of %q = %v, %v; want a step", name, taken, err)
				}
			}
		}
	}
}

func TestPrintedSQLCreatesTheOutboxOnSQLServer(t *testing.T) {
	t.Parallel()
	db := openSQLServer(t)
	m := migrator(t, db, db.DB, migrations.Options{Claim: "rows"})
	var text strings.Builder
	if err := m.Print(&text); err != nil {
		t.Fatal(err)
	}
	exec(t, db.DB, text.String())
	if pending, err := m.Pending(t.Context()); err != nil || len(pending) != 0 {
		t.Errorf("Pending = %v, %v; want nothing", pending, err)
	}
}

func TestTableConstraintsOnSQLServer(t *testing.T) {
	t.Parallel()
	db := openSQLServer(t)
	if _, err := migrator(t, db, db.DB, migrations.Options{}).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, rest := range []string{
		"(topic) VALUES ('')", "(topic) VALUES (NULL)", "(topic, headers) VALUES ('a', '[1]')", "(topic, headers) VALUES ('a', 'nonsense')",
		"(topic, payload, payload_text) VALUES ('a', 0x, '')", "(topic, message_id) VALUES ('a', 'no uuid')",
		"(topic, available_at) VALUES ('a', 'some day')", "(topic, priority) VALUES ('a', 40000)",
		fmt.Sprintf("(topic, message_key) VALUES ('a', '%0256d')", 0), fmt.Sprintf("(topic) VALUES ('%0256d')", 0),
	} {
		if _, err := db.DB.ExecContext(t.Context(), "INSERT INTO outbox "+rest); err == nil {
			t.Errorf("the table accepts %.80s, want an error", rest)
		}
	}
	exec(t, db.DB, "INSERT INTO outbox (topic, headers, available_at) VALUES ('a', '\n {\"a\":\"b\"}', '2026-01-31 23:59:59.000')")
	const many = "FROM OPENJSON('[' + REPLICATE(CONVERT(varchar(max), '0,'), 1999) + '0]')" // 2,000 rows
	exec(t, db.DB, "INSERT INTO outbox (topic, message_key) SELECT 'one', CONCAT('customer-', value) "+many)
	exec(t, db.DB, "INSERT INTO outbox (topic, message_key) SELECT 'keys', CONCAT('customer-', [key]) "+many)
	exec(t, db.DB, "INSERT INTO outbox (topic) SELECT 'none' "+many)
	for topic, want := range map[string]string{"one": "1", "keys": "64", "none": "64"} {
		var lanes string
		if err := db.DB.QueryRowContext(t.Context(), "SELECT COUNT(DISTINCT lane) FROM outbox WHERE topic = @p1", topic).Scan(&lanes); err != nil || lanes != want {
			t.Errorf("%s: %s lanes, %v; want %s", topic, lanes, err, want)
		}
	}
}
