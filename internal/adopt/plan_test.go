package adopt_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// Verify refuses a mapping that fails only in the statements that Run executes.
func TestVerifyChecksTheStatementsOfRun(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		a := open(t, db, "events")
		check(t, a.Verify(t.Context()))
		proposed := a.Mapping
		for _, waiting := range []string{proposed.Waiting, "false"} {
			a.Mapping.Waiting, a.Mapping.Published = waiting, []string{"sent_at = no_such_function(kind)"}
			if a.Verify(t.Context()) == nil {
				t.Errorf("with the condition %s, Verify accepts an unknown function", waiting)
			}
		}
		a.Mapping = proposed
		a.Mapping.Order = "kind, no_such_column"
		if a.Verify(t.Context()) == nil {
			t.Error("Verify accepts an unknown column in the order")
		}
		wantLines(t, db, "SELECT count(*) FROM outbox_settings WHERE name LIKE 'adopt.%'", "0")
		check(t, open(t, db, "events").Verify(t.Context())) // the temporary table of MySQL is gone
	}, everyServer...)
}

// Rows of one transaction, which have the same time and random keys, keep their order on PostgreSQL.
func TestRowsOfOneTransactionKeepTheirOrder(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind text, created_at timestamptz DEFAULT now(), sent_at timestamptz)")
		execute(t, db, "INSERT INTO events (id, kind) VALUES (overlay(gen_random_uuid()::text placing '9' from 1 for 1)::uuid, 'a'), (overlay(gen_random_uuid()::text placing '8' from 1 for 1)::uuid, 'b'), (overlay(gen_random_uuid()::text placing '7' from 1 for 1)::uuid, 'c')")
		a := open(t, db, "events")
		if a.Mapping.Order != "created_at, ctid" || !strings.Contains(strings.Join(a.Facts().Limits, "\n"), "(ctid)") {
			t.Errorf("the proposed order is %q, with the limits %q", a.Mapping.Order, a.Facts().Limits)
		}
		check(t, a.Verify(t.Context()))
		check(t, a.Verify(t.Context()))
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c")
	}, everyPostgres...)
}
