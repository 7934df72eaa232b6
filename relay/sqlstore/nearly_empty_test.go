package sqlstore_test

import (
	"testing"
)

// A vacuum that finds a few rows, where there was a large backlog, leaves an
// index of many pages: the planner takes each look at it for dear.
func TestPlansOfANearlyEmptyTable(t *testing.T) {
	t.Parallel()
	for _, target := range postgresTargets() {
		if target.Driver != "pgx" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			exec(t, table.DB, "ALTER TABLE outbox SET (autovacuum_enabled = off)")
			conn, err := table.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			plans := prepare(t, conn, hotStatements(table.dialect, false))
			fill(t, table.DB, 200_000)
			exec(t, table.DB, "VACUUM ANALYZE outbox")
			for _, left := range []string{"15", "200", "5000"} {
				exec(t, table.DB, "DELETE FROM outbox WHERE id <= (SELECT max(id) FROM outbox) - "+left)
				exec(t, table.DB, "VACUUM ANALYZE outbox")
				plans.wantIndexes(t, left+" rows left")
				fill(t, table.DB, 50_000)
				plans.wantIndexes(t, left+" rows left, 50,000 new ones")
			}
		})
	}
}
