package sqlstore_test

import (
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// fixedTables are the tables that have the same rows always, and how many.
func fixedTables(kind string) map[string]int {
	if isMySQL(kind) {
		return map[string]int{"outbox_lanes": 64, "outbox_lane_locks": 65, "outbox_key_locks": 1024}
	}
	return map[string]int{"outbox_lanes": 64}
}

// Rows that a TRUNCATE took, or a copy of the structure alone, are found by a check, and restored by a
// migration, by the start of a relay and by one that lives.
func TestFixedRowsAreRestored(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		complete := func(by string) {
			t.Helper()
			for name, want := range fixedTables(table.Kind) {
				var count int
				if err := table.DB.QueryRowContext(t.Context(), "SELECT count(*) FROM "+name).Scan(&count); err != nil || count != want {
					t.Errorf("after %s table %s has %d rows, %v; want %d", by, name, count, err, want)
				}
			}
		}
		takeAway := func() {
			t.Helper()
			for name := range fixedTables(table.Kind) {
				exec(t, table.DB, "DELETE FROM "+name)
			}
			table.wantFound(t, table.DB, storage.ByLanes, "rows", "outbox_lanes", "has 0 of its 64 rows", "rowrelay migrate up")
		}
		complete("the first migration")

		takeAway()
		migrate(t, table.DB, table.dialect, migrations.Options{})
		complete("a migration")

		exec(t, table.DB, "DELETE FROM outbox_lanes WHERE lane >= 32")
		if found := finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, storage.ByLanes), "rows"); found.OK {
			t.Errorf("half of the lanes: %+v", found)
		}
		store := table.open(t)
		complete("a relay's start")

		takeAway()
		if _, err := store.Heartbeat(t.Context(), storage.Identity{Name: "r", Claim: storage.ByLanes}, time.Minute); err != nil {
			t.Fatal(err)
		}
		complete("a sign of life")

		exec(t, table.DB, "DELETE FROM outbox_settings")
		migrate(t, table.DB, table.dialect, migrations.Options{})
		table.open(t)
	})
}
