package migrations_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// What is printed for SQL Server is one batch and one transaction: a view, and
// what only works once something else is there, is made within EXEC.
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
		"SET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;\n",
		`CREATE SEQUENCE app."Events_id" `,
		`CREATE TABLE app."Events" (`,
		`EXEC (N'CREATE VIEW app."Events_messages" AS`,
		"\nCOMMIT;\n",
		`-- DROP TABLE app."Events";`,
		`CREATE INDEX "Events_claim_id" ON app."Events" (id)`,
	} {
		found := strings.Index(text[at:], want)
		if found < 0 {
			t.Fatalf("%q is missing, or at another place, in:\n%s", want, text)
		}
		at += found
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "GO" || strings.HasPrefix(line, "CREATE VIEW") {
			t.Errorf("%q is not one batch's", line)
		}
	}
}
