package sqlstore_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// wantFound requires a finding that isn't OK and has each of the words in its detail or hint.
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

// One finding names all missing tables and columns.
func TestCheckNamesMissingColumnsAndTables(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		exec(t, table.DB, "ALTER TABLE outbox_relays DROP COLUMN setup")
		exec(t, table.DB, "ALTER TABLE outbox_controls DROP COLUMN reason")
		exec(t, table.DB, "DROP TABLE outbox_actions")
		table.wantFound(t, table.DB, storage.ByLanes, "columns", "outbox_relays", ".setup", "outbox_controls", ".reason", "the table", "outbox_actions", "rowrelay migrate print")
	})
}

// For the schema of a newer release the hint is to use that release, and not to run migrate up.
func TestCheckReportsANewerSchema(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		exec(t, table.DB, "UPDATE outbox_settings SET value = '99' WHERE name LIKE 'schema%'")
		table.wantFound(t, table.DB, storage.ByLanes, "schema", "newer", "version 99", "use the release that created the schema")
		exec(t, table.DB, "UPDATE outbox_settings SET value = '0' WHERE name = 'schema'")
		table.wantFound(t, table.DB, storage.ByLanes, "schema", "version 0", "rowrelay migrate up")
	})
}

// The check names all rights that a user without rights lacks, with the GRANT statements. After these statements have run, the
// check finds no problem.
func TestCheckNamesAllMissingRights(t *testing.T) {
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
		_, commands, _ := strings.Cut(found.Hint, "\n")
		if found.OK || strings.Count(commands, "GRANT") < 9 {
			t.Fatalf("for a user without rights the finding is %+v", found)
		}
		for command := range strings.SplitSeq(commands, "\n") {
			exec(t, table.DB, command)
		}
		for _, found := range sqlstore.Check(t.Context(), poor, table.dialect, sqlstore.Options{}, storage.ByLanes) {
			if !found.OK && found.Name != "open transactions" && found.Name != "transactions" {
				t.Errorf("for a user with these rights the check reports %+v", found)
			}
		}
	})
}

// The check reports delivered messages that are older than the retention. The statement in its hint deletes them.
func TestCheckReportsThatThePurgeIsBehind(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		store := table.open(t)
		if found := store.CheckRetention(t.Context(), 24*time.Hour); !found.OK {
			t.Errorf("with an empty table the finding is %+v", found)
		}
		exec(t, table.DB, "INSERT INTO outbox_done (id, lane, message_id, topic, priority, attempts, crashes, created_at, finished_at) VALUES (1, 1, '0197a3b4-0000-7abc-8def-0123456789ab', 't', 0, 1, 0, "+
			"'2024-01-01 00:00:00.000', '2024-01-01 00:00:00.000')")
		if found := store.CheckRetention(t.Context(), 100*365*24*time.Hour); !found.OK {
			t.Errorf("with a retention of a hundred years the finding is %+v", found)
		}
		found := store.CheckRetention(t.Context(), 24*time.Hour)
		if found.OK || !strings.Contains(found.Detail, "deletion is behind") || !strings.Contains(found.Hint, "rowrelay status") {
			t.Errorf("with a retention of a day the finding is %+v", found)
		}
		_, statement, _ := strings.Cut(found.Hint, "until it deletes nothing: ")
		exec(t, table.DB, statement)
		if found := store.CheckRetention(t.Context(), 24*time.Hour); !found.OK {
			t.Errorf("after the hint's statement has run, the finding is %+v", found)
		}
	})
}

// The check shows the clocks of the database and of this host, and reports a large difference.
func TestCheckComparesClocks(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		found := finding(table.open(t).Check(t.Context(), storage.ByLanes), "clock")
		if !found.OK || !strings.Contains(found.Detail, "this host's") {
			t.Errorf("the finding is %+v, want no problem", found)
		}
		if zone := map[string]string{testdb.Postgres: "time zone", testdb.MySQL: "time zone", testdb.MariaDB: "time zone"}[table.Kind]; !strings.Contains(found.Detail, zone) {
			t.Errorf("the finding is %+v, want one that names the time zone", found)
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
			t.Errorf("with a clock that is a minute ahead the finding is %+v", found)
		}
	})
}

// The check finds no problem with the plans of empty and large tables. It names each statement whose index was dropped.
func TestCheckFindsStatementsThatReadAWholeTable(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			if err := table.open(t).SetClaimMode(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			found := finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, claim), "plans")
			var statements int
			if _, err := fmt.Sscanf(found.Detail, "%d statements checked", &statements); !found.OK || err != nil || statements < 24 {
				t.Errorf("by %s: %+v, want at least 24 statements", claim, found)
			}
		}
		fillAll(t, table)
		if found := finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, storage.ByRows), "plans"); !found.OK {
			t.Errorf("with many rows the finding is %+v", found)
		}
		drop := func(of, index string) {
			switch {
			case isMySQL(table.Kind):
				exec(t, table.DB, "DROP INDEX "+index+" ON "+of)
			default:
				exec(t, table.DB, "DROP INDEX "+backendtest.Table(t, "outbox").Index(index))
			}
			analyze(t, table)
		}
		type test struct{ of, index, finds string }
		for _, test := range map[string][]test{
			testdb.Postgres: {
				{"outbox_done", "done_finished", "the deletion of delivered messages|the clock and the oldest delivered message|the last delivered messages"},
				{"outbox_held", "held_retry", "the status: the oldest retry"},
				{"outbox_held", "held_error", "the list of parked messages"},
			},
			testdb.MySQL: {
				{"outbox_done", "done_finished", "the deletion of delivered messages|the clock and the oldest delivered message|the last delivered messages"},
				{"outbox_held", "held_id", "the list of parked messages|the requeue of parked messages"},
			},
			testdb.SQLite: { // its plans of min() are the same without the index
				{"outbox_done", "done_finished", "the deletion of delivered messages|the last delivered messages"},
				{"outbox_held", "held_due", "the status: the oldest message"},
				{"outbox_held", "held_error", "the list of parked messages"},
			},
		}[map[bool]string{false: table.Kind, true: testdb.MySQL}[isMySQL(table.Kind)]] {
			drop(test.of, test.index)
			found := finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, storage.ByRows), "plans")
			for name := range strings.SplitSeq(test.finds, "|") {
				if found.OK || !strings.Contains(found.Detail, name+" (") || !strings.Contains(found.Hint, "rowrelay migrate print") {
					t.Errorf("without the index %s: %+v, want %s", test.index, found, name)
				}
			}
			_, statement, ok := strings.Cut(found.Hint, "update the statistics: ")
			if !ok {
				t.Fatalf("the hint has no statement for the statistics: %s", found.Hint)
			}
			exec(t, table.DB, statement)
		}
	})
}

// MySQL's check reads few rows of large tables, even in its search for rows below the marks.
func TestMySQLCheckReadsFewRows(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		fillAll(t, m.table)
		exec(t, m.DB, `UPDATE outbox_lanes SET marks = '{"main":0}'`)
		store := m.open(t)
		m.DB.SetMaxOpenConns(1) // the server counts reads per session
		before := readsOf(t, m.table)
		store.BackendOn(m.DB).Check(t.Context(), storage.ByLanes)
		if reads := readsOf(t, m.table) - before; reads > 10_000 {
			t.Errorf("the check read %d rows of tables with 60,000 rows each", reads)
		}
	})
}

// fillAll writes 60,000 rows to each of the tables outbox, outbox_done and outbox_held, and gathers statistics. Half of the rows in
// outbox_held are parked.
func fillAll(t *testing.T, table table) {
	t.Helper()
	numbers := "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) "
	id := "gen_random_uuid()"
	switch {
	case table.Kind == testdb.SQLite:
		id = "lower(hex(randomblob(4))) || '-0000-7000-8000-' || lower(hex(randomblob(6)))"
	case isMySQL(table.Kind):
		id = "uuid()"
	}
	const many = " FROM n CROSS JOIN (SELECT i AS j FROM n WHERE i <= 200) AS m"
	exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload_text) "+numbers+"SELECT 't', 'k', 'some payload'"+many)
	exec(t, table.DB, "INSERT INTO outbox_done (id, lane, message_id, topic, priority, attempts, crashes, created_at, finished_at) "+numbers+
		"SELECT i + 300 * j, 1, "+id+", 't', 0, 1, 0, '2024-01-01 00:00:00.000', '2024-01-01 00:00:00.000'"+many)
	exec(t, table.DB, "INSERT INTO outbox_held (id, lane, state, message_id, topic, message_key, payload_text, priority, attempts, crashes, available_at, created_at) "+numbers+
		"SELECT i + 300 * j, 1, CASE WHEN i < 150 THEN 'error' WHEN i < 298 THEN 'scheduled' ELSE 'retry' END, "+id+", 't', 'k', 'some payload', 0, 1, 0, '2034-01-01 00:00:00.000', '2024-01-01 00:00:00.000'"+many)
	analyze(t, table)
}

func analyze(t *testing.T, table table) {
	t.Helper()
	if isMySQL(table.Kind) {
		mysqlPlans{table}.analyze(t)
		return
	}
	exec(t, table.DB, "ANALYZE")
}

// The check reports bloat: on PostgreSQL dead rows and a disabled autovacuum, on SQLite a large write-ahead log.
func TestCheckFindsBloat(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		switch table.Kind {
		case testdb.Postgres:
			exec(t, table.DB, "ALTER TABLE outbox_held SET (autovacuum_enabled = off)")
			exec(t, table.DB, "ALTER TABLE outbox SET (autovacuum_enabled = false)")
			exec(t, table.DB, "INSERT INTO outbox (topic) SELECT 't' FROM generate_series(1, 210000)")
			exec(t, table.DB, "DELETE FROM outbox")
			eventually(t, "the server's statistics have the dead rows", func() bool {
				found := finding(sqlstore.Check(t.Context(), table.DB, table.dialect, sqlstore.Options{}, storage.ByLanes), "dead rows")
				return strings.Contains(found.Detail, "outbox has 210000 dead rows beside 0 living ones")
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
		default: // see TestMySQLHistoryLengthIsRead
		}
	})
}

// A user with the right to read InnoDB's metrics can read the history's length. The check reports no problem for users without it.
func TestMySQLHistoryLengthIsRead(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		length := -1
		if err := m.DB.QueryRowContext(t.Context(), "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'").Scan(&length); err != nil || length < 0 {
			t.Errorf("the history has %d transactions, %v", length, err)
		}
		_, poor := m.poorUser(t)
		for _, pool := range []*sql.DB{m.DB, poor} {
			if found := finding(m.open(t).BackendOn(pool).Check(t.Context(), storage.ByLanes), "history"); !found.OK {
				t.Errorf("the finding is %+v, want no problem", found)
			}
		}
	})
}
