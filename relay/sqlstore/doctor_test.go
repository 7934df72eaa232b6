package sqlstore_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backendtest"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// wantFound requires a finding that isn't OK, with all of the words in what it says and in what to do.
func (u table) wantFound(t *testing.T, pool *sql.DB, claim storage.Claim, name string, words ...string) {
	t.Helper()
	found := finding(sqlstore.Check(t.Context(), pool, u.dialect, sqlstore.Options{}, claim), name)
	text := found.Detail + " | " + found.Hint
	for _, word := range words {
		if found.OK || !strings.Contains(text, word) {
			t.Errorf("%s: ok %t, %s; want %q", name, found.OK, text, word)
		}
	}
}

// All that is missing is named at once.
func TestCheckNamesMissingColumnsAndTables(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		exec(t, table.DB, "ALTER TABLE outbox_relays DROP COLUMN setup")
		exec(t, table.DB, "ALTER TABLE outbox_controls DROP COLUMN reason")
		exec(t, table.DB, "DROP TABLE outbox_actions")
		table.wantFound(t, table.DB, storage.ByLanes, "columns", "outbox_relays", ".setup", "outbox_controls", ".reason", "the table", "outbox_actions", "rowrelay migrate print")
	})
}

// A schema that a newer release has made isn't brought down by migrate up.
func TestCheckTellsANewerSchema(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		exec(t, table.DB, "UPDATE outbox_settings SET value = '99' WHERE name = 'schema'")
		table.wantFound(t, table.DB, storage.ByLanes, "schema", "newer", "version 99", "use the release that made it")
		exec(t, table.DB, "UPDATE outbox_settings SET value = '1' WHERE name = 'schema'")
		table.wantFound(t, table.DB, storage.ByLanes, "schema", "version 1", "rowrelay migrate up")
	})
}

// A user without any right hears of all that it lacks, with the commands that grant it; with these it can relay.
func TestCheckNamesAllMissingRightsAtOnce(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		var poor *sql.DB
		switch {
		case table.Kind == testdb.Postgres:
			poor = asPoorUser(t, table)
			exec(t, table.DB, "REVOKE ALL ON outbox_settings, outbox_lanes FROM "+poorName(table))
		case isMySQL(table.Kind):
			_, poor = mysqlTable{table: table}.poorUser(t)
		default:
			return // SQLite has no users
		}
		found := finding(sqlstore.Check(t.Context(), poor, table.dialect, sqlstore.Options{}, storage.ByLanes), "rights")
		_, commands, _ := strings.Cut(found.Hint, "run ")
		commands, _, _ = strings.Cut(commands, "; or migrate")
		if found.OK || strings.Count(commands, "GRANT") < 9 {
			t.Fatalf("a user without any right: %+v", found)
		}
		for command := range strings.SplitSeq(commands, "; ") {
			exec(t, table.DB, command)
		}
		for _, found := range sqlstore.Check(t.Context(), poor, table.dialect, sqlstore.Options{}, storage.ByLanes) {
			if !found.OK && found.Name != "open transactions" && found.Name != "transactions" {
				t.Errorf("with these rights: %+v", found)
			}
		}
	})
}

// Delivered messages that should be gone are told of, and the statement that it names deletes them.
func TestCheckFindsThatDeletingIsBehind(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		store := table.open(t)
		if found := store.CheckRetention(t.Context(), 24*time.Hour); !found.OK {
			t.Errorf("of an empty table: %+v", found)
		}
		exec(t, table.DB, "INSERT INTO outbox_done (id, lane, message_id, topic, priority, attempts, crashes, created_at, finished_at) VALUES (1, 1, '0197a3b4-0000-7abc-8def-0123456789ab', 't', 0, 1, 0, "+
			"'2024-01-01 00:00:00.000', '2024-01-01 00:00:00.000')")
		if found := store.CheckRetention(t.Context(), 100*365*24*time.Hour); !found.OK {
			t.Errorf("with a retention of a hundred years: %+v", found)
		}
		found := store.CheckRetention(t.Context(), 24*time.Hour)
		if found.OK || !strings.Contains(found.Detail, "deleting is behind") || !strings.Contains(found.Hint, "rowrelay status") {
			t.Errorf("found %+v", found)
		}
		_, statement, _ := strings.Cut(found.Hint, "nothing is left: ")
		exec(t, table.DB, statement)
		if found := store.CheckRetention(t.Context(), 24*time.Hour); !found.OK {
			t.Errorf("once that was run: %+v", found)
		}
	})
}

// The database's clock is told beside this host's, and one that is far from it is found.
func TestCheckComparesClocks(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		found := finding(table.open(t).Check(t.Context(), storage.ByLanes), "clock")
		if !found.OK || !strings.Contains(found.Detail, "this host's") {
			t.Errorf("found %+v", found)
		}
		if zone := map[string]string{testdb.Postgres: "time zone", testdb.MySQL: "time zone", testdb.MariaDB: "time zone"}[table.Kind]; !strings.Contains(found.Detail, zone) {
			t.Errorf("found %+v, want the time zone", found)
		}
		store := table.open(t)
		ahead := "SELECT CAST(UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE AS CHAR), 0, 'UTC'"
		switch table.Kind {
		case testdb.Postgres:
			ahead = "SELECT now() + interval '1 minute', 0, 'UTC'"
		case testdb.SQLite:
			ahead = "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now', '+1 minute'), 0, 'UTC'"
		}
		store.SetClock(ahead)
		found = finding(store.Check(t.Context(), storage.ByLanes), "clock")
		if found.OK || !strings.Contains(found.Detail, "ahead of this host") || !strings.Contains(found.Hint, "timedatectl set-ntp true") {
			t.Errorf("of a clock that is a minute ahead: %+v", found)
		}
	})
}

// A statement that has lost its index is named.
func TestCheckFindsWhatReadsAWholeTable(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			if table.open(t).SetClaimMode(t.Context(), claim) != nil {
				continue // TiDB, by rows alone
			}
			found := finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, claim), "plans")
			var statements int
			if _, err := fmt.Sscanf(found.Detail, "of %d statements", &statements); !found.OK || err != nil || statements < 6 {
				t.Errorf("by %s: %+v, want the plans of at least 6 statements", claim, found)
			}
		}
		index := backendtest.Table(t, "outbox").Index("done_finished")
		many := "SELECT i, 1, gen_random_uuid(), 't', 0, 1, 0, now(), now() - interval '1 year' FROM generate_series(1, 60000) AS i"
		statements := []string{"DROP INDEX " + index, "ANALYZE outbox_done"}
		switch {
		case table.Kind == testdb.SQLite:
			many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i, 1, lower(hex(randomblob(4))) || '-0000-7000-8000-' || lower(hex(randomblob(6))), 't', 0, 1, 0, '2024-01-01 00:00:00.000', '2024-01-01 00:00:00.000' FROM n"
		case isMySQL(table.Kind):
			return // the deletion names its index: without it, it fails
		}
		exec(t, table.DB, "INSERT INTO outbox_done (id, lane, message_id, topic, priority, attempts, crashes, created_at, finished_at) "+many)
		for _, statement := range statements {
			exec(t, table.DB, statement)
		}
		found := finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, storage.ByRows), "plans")
		if found.OK || !strings.Contains(found.Detail, "the deletion of delivered messages") || !strings.Contains(found.Hint, "rowrelay migrate print") {
			t.Errorf("without an index: %+v", found)
		}
	})
}

// Bloat, by each database's own: dead rows and an autovacuum that is off; a log that grows.
func TestCheckFindsBloat(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		switch table.Kind {
		case testdb.Postgres:
			exec(t, table.DB, "ALTER TABLE outbox_held SET (autovacuum_enabled = off)")
			exec(t, table.DB, "ALTER TABLE outbox SET (autovacuum_enabled = false)")
			exec(t, table.DB, "INSERT INTO outbox (topic) SELECT 't' FROM generate_series(1, 210000)")
			exec(t, table.DB, "DELETE FROM outbox")
			eventuallyTrue(t, "the server has counted", func() bool {
				return !finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, storage.ByLanes), "dead rows").OK
			})
			table.wantFound(t, table.DB, storage.ByLanes, "dead rows", "outbox has 210000 dead rows beside 0 living ones", "VACUUM ANALYZE outbox.", "pg_replication_slots")
			table.wantFound(t, table.DB, storage.ByLanes, "autovacuum", "ALTER TABLE outbox RESET (autovacuum_enabled)", "ALTER TABLE outbox_held RESET (autovacuum_enabled)")
		case testdb.SQLite:
			reader, err := table.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reader.Close() }()
			for _, statement := range []string{"BEGIN", "SELECT count(*) FROM outbox"} {
				if _, err := reader.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			for range 70 {
				exec(t, table.DB, "INSERT INTO outbox (topic, payload) VALUES ('t', zeroblob(1048576))")
			}
			table.wantFound(t, table.DB, storage.ByLanes, "write-ahead log", " MiB", "PRAGMA wal_checkpoint(TRUNCATE)", "fuser ")
			if _, err := reader.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
		default: // see TestMySQLHistory
		}
	})
}

func eventuallyTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(30 * time.Second); !is(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// InnoDB tells how long its history is to who may ask, and others are spared.
func TestMySQLHistory(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		length := -1
		if err := m.DB.QueryRowContext(t.Context(), "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'").Scan(&length); err != nil || length < 0 {
			t.Errorf("the history has %d transactions, %v", length, err)
		}
		_, poor := m.poorUser(t)
		for _, pool := range []*sql.DB{m.DB, poor} {
			if found := finding(m.open(t).BackendOn(pool).Check(t.Context(), storage.ByLanes), "history"); !found.OK {
				t.Errorf("found %+v", found)
			}
		}
	})
}
