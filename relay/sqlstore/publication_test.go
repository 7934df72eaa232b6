package sqlstore_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// From version 18 on, PostgreSQL refuses a DELETE from a published table whose replica identity has a
// generated column (42P10). Debezium publishes all tables by default.
func TestSettleSucceedsWhileAllTablesArePublished(t *testing.T) {
	t.Parallel()
	for _, target := range allTargets() {
		if target.Kind != testdb.Postgres {
			continue
		}
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			t.Run(target.Name+"/"+string(claim), func(t *testing.T) {
				t.Parallel()
				table := open(t, target)
				exec(t, table.DB, "CREATE PUBLICATION everything FOR ALL TABLES")
				exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('t', 'good'), ('t', 'good')")
				store := table.open(t)
				must(t, store.SetClaimMode(t.Context(), claim))
				settlements := parkMalformed(t, store, claim)
				settlements[0].State = storage.StateError
				settled, err := store.Settle(t.Context(), "r", true, settlements)
				if err != nil || settled.Changed != 2 {
					t.Fatalf("settle: %+v, %v", settled, err)
				}
				if discarded, err := store.Discard(t.Context(), storage.Filter{State: storage.StateError}); err != nil || discarded != 1 {
					t.Errorf("discard: %d, %v", discarded, err)
				}
				for _, name := range []string{"outbox_done", "outbox_lanes", "outbox_relays", "outbox_settings"} {
					exec(t, table.DB, "DELETE FROM "+name)
				}
				if rows := unreplicated(t, table); len(rows) != 0 {
					t.Errorf("these tables have no usable replica identity: %v", rows)
				}
			})
		}
	}
}

// unreplicated returns the published tables without a primary key, or with a generated column in it.
func unreplicated(t *testing.T, table table) (names []string) {
	t.Helper()
	rows, err := table.DB.QueryContext(t.Context(), `SELECT tablename FROM pg_publication_tables AS p WHERE pubname = 'everything' AND (
		NOT EXISTS (SELECT FROM pg_index WHERE indrelid = to_regclass(p.tablename) AND indisprimary)
		OR EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
			WHERE indrelid = to_regclass(p.tablename) AND indisprimary AND attgenerated <> ''))`)
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		names = append(names, name)
	}
	must(t, rows.Err())
	return names
}
