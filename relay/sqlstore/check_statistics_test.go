package sqlstore_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// If a backlog grows before the server has gathered statistics of the table, the check of plans finds no problem, because the
// server's plans then rest on assumptions, and change when it has statistics.
func TestCheckDoesNotJudgePlansWithoutStatistics(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		if table.Kind != testdb.Postgres {
			return
		}
		for _, name := range []string{"outbox", "outbox_held", "outbox_done"} {
			exec(t, table.DB, "ALTER TABLE "+name+" SET (autovacuum_enabled = off)")
		}
		exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload) SELECT 'orders', 'k' || g, 'x' FROM generate_series(1, 60000) g")
		exec(t, table.DB, `INSERT INTO outbox_held (id, lane, message_id, topic, message_key, state, attempts, created_at, available_at, last_error, sinks, holds, payload, priority, crashes)
			SELECT g + 1000000, g % 64 + 1, gen_random_uuid(), 'orders', 'k' || g, CASE WHEN g % 2 = 0 THEN 'error' ELSE 'retry' END, 1, now(), now() + interval '1 hour', 'invalid: x', '', 0, 'x', 0, 0 FROM generate_series(1, 60000) g`)
		check := func(what string) {
			t.Helper()
			for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
				migrate(t, table.DB, table.dialect, migrations.Options{Claim: string(claim)})
				for _, finding := range sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, claim) {
					if finding.Name == "plan" || finding.Name == "plans" {
						if !finding.OK {
							t.Errorf("%s: %+v", what, finding)
						}
					}
				}
			}
		}
		check("without statistics")
		exec(t, table.DB, "ANALYZE outbox")
		check("with statistics of one table")
		exec(t, table.DB, "ANALYZE outbox_held")
		check("with statistics of both, half of the held rows in retry")
	})
}
