package sqlstore_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// fixedTables returns the tables whose rows are fixed, with their numbers of rows.
func fixedTables(kind string) map[string]int {
	if isMySQL(kind) {
		return map[string]int{"outbox_lanes": 64, "outbox_lane_locks": 65, "outbox_key_locks": 1024}
	}
	return map[string]int{"outbox_lanes": 64}
}

// The check finds fixed rows that are missing, for example after a TRUNCATE or a copy of the schema alone.
// A migration, a relay's start and a running relay's heartbeat restore them.
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
			t.Errorf("half of the lanes are missing, but the finding is %+v", found)
		}
		store := table.open(t)
		complete("a relay's start")

		takeAway()
		if _, err := store.Heartbeat(t.Context(), storage.Identity{Name: "r", Claim: storage.ByLanes}, time.Minute); err != nil {
			t.Fatal(err)
		}
		complete("a heartbeat")

		exec(t, table.DB, "DELETE FROM outbox_settings")
		migrate(t, table.DB, table.dialect, migrations.Options{})
		table.open(t)
	})
}

// A relay without the right to restore the rows is unhealthy. Its error names the missing rows and the remedy. After a migration has
// restored the rows, the relay delivers.
func TestMissingFixedRowsMakeARelayUnhealthy(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		user, pool := m.poorUser(t)
		m.grantAllBut(t, user, "outbox_lanes", "SELECT, UPDATE")
		store, err := sqlstore.Open(t.Context(), pool, m.dialect, sqlstore.Options{})
		must(t, err)
		exec(t, m.DB, "DELETE FROM outbox_lanes WHERE lane >= 32")
		for range 20 {
			exec(t, m.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		}
		handled := &deliveries{times: map[string]int{}}
		r, err := relay.New(store, relay.Options{Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Func(handled.handle)}}})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		eventually(t, "the relay's health names the missing rows", func() bool {
			err := r.Healthy()
			return err != nil && strings.Contains(err.Error(), "has 32 of its 64 rows") && strings.Contains(err.Error(), "migrate up")
		})
		migrate(t, m.DB, m.dialect, migrations.Options{})
		eventually(t, "the relay delivers after a migration has restored the rows", func() bool {
			handled.mu.Lock()
			defer handled.mu.Unlock()
			return handled.total == 20 && r.Healthy() == nil
		})
		cancel()
		must(t, <-ended)
	})
}
