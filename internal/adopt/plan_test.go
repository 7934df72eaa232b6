package adopt_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// The order may name ctid, the row's place in PostgreSQL's table.
func TestOrderByCtid(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind text, created_at timestamptz DEFAULT now(), sent_at timestamptz)")
		execute(t, db, "INSERT INTO events (id, kind) VALUES (overlay(gen_random_uuid()::text placing '9' from 1 for 1)::uuid, 'a'), (overlay(gen_random_uuid()::text placing '8' from 1 for 1)::uuid, 'b'), (overlay(gen_random_uuid()::text placing '7' from 1 for 1)::uuid, 'c')")
		a := open(t, db, "events")
		a.Mapping.Order = "created_at, ctid"
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c")
	}, everyPostgres...)
}
