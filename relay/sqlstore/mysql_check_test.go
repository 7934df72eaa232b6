package sqlstore_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestMySQLCheckFindsNoProblem(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			migrate(t, m.DB, m.dialect, migrations.Options{Claim: string(claim)})
			names := map[string]bool{}
			for _, finding := range sqlstore.Check(t.Context(), m.DB, m.dialect, sqlstore.Options{}, claim) {
				names[finding.Name] = true
				if !finding.OK && finding.Name != "transactions" && finding.Name != "transaction list" { // other tests on the same server can cause these two
					t.Errorf("the check for claiming by %s reports %+v", claim, finding)
				}
			}
			for _, name := range []string{"connection", "server", "locked rows", "schema", "claim", "rights", "marks", "plan"} {
				if !names[name] {
					t.Errorf("by %s: no finding about the %s", claim, name)
				}
			}
		}
	})
}

// MySQL can't refuse an INSERT whose explicit id is too high for a relay. The error of Open names the remedy, and after
// the remedy a relay works.
func TestMySQLOpenReportsAnIDThatIsTooHigh(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		exec(t, m.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		exec(t, m.DB, "INSERT INTO outbox (id, topic) VALUES (9223372036854775808, 't')")
		const remedy = "reset the table's AUTO_INCREMENT"
		if _, err := sqlstore.Open(t.Context(), m.DB, m.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("open: %v, want an error that names the remedy", err)
		}
		exec(t, m.DB, "DELETE FROM outbox WHERE id >= 9223372036854775808")
		exec(t, m.DB, "ALTER TABLE outbox AUTO_INCREMENT = 2")
		exec(t, m.DB, "ANALYZE TABLE outbox")
		exec(t, m.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		page, err := m.table.open(t).Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 64, Until: 1000}}, Limit: 1, MaxBytes: 1})
		if err != nil || page.LastID != 2 {
			t.Errorf("the last id after the remedy: %d, %v; want 2", page.LastID, err)
		}
	})
}

// finding returns the finding with this name, or an empty one.
func finding(findings []sqlstore.Finding, name string) sqlstore.Finding {
	for _, f := range findings {
		if f.Name == name {
			return f
		}
	}
	return sqlstore.Finding{}
}

// The check names all rights that a user without rights lacks. With exactly these rights the user can run a relay.
func TestMySQLRightsNamedByCheckSuffice(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		user, poor := m.poorUser(t)
		exec(t, m.DB, "GRANT SELECT ON outbox_settings TO "+user)
		_, list, _ := strings.Cut(finding(sqlstore.Check(t.Context(), poor, m.dialect, sqlstore.Options{}, storage.ByLanes), "rights").Detail, "lacks: ")
		if strings.Count(list, ",") < 10 {
			t.Fatalf("the check says that a user without rights lacks %q", list)
		}
		for grant := range strings.SplitSeq(list, ", ") {
			exec(t, m.DB, "GRANT "+grant+" TO "+user)
		}
		for _, f := range sqlstore.Check(t.Context(), poor, m.dialect, sqlstore.Options{}, storage.ByLanes) {
			if !f.OK && f.Name != "open transactions" {
				t.Errorf("with these rights: %+v", f)
			}
		}
		useEverything(t, m.table, poor)
	})
}

// poorUser creates a user without rights to the tables, and returns its name and a pool.
func (m mysqlTable) poorUser(t *testing.T) (name string, pool *sql.DB) {
	t.Helper()
	config, err := mysql.ParseDSN(m.DSN)
	if err != nil {
		t.Fatal("the test server's DSN is malformed; it is not shown because it has a password")
	}
	config.User, config.Passwd = "poor_"+strings.TrimPrefix(config.DBName, "rowrelay_test_")[:20], "Poor-1234"
	name = "'" + config.User + "'@'%'"
	exec(t, m.DB, "CREATE USER "+name+" IDENTIFIED BY 'Poor-1234'")
	t.Cleanup(func() { exec(t, m.DB, "DROP USER "+name) })
	exec(t, m.DB, "GRANT SHOW VIEW ON * TO "+name) // lets the user connect to the database
	pool, err = sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return name, pool
}

// grantAllBut grants the user all rights to read and write each table, except one table, on which it grants only the given rights.
func (m mysqlTable) grantAllBut(t *testing.T, user, except, rights string) {
	t.Helper()
	rows, err := m.DB.QueryContext(t.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = database()")
	must(t, err)
	defer func() { _ = rows.Close() }()
	granted := map[string]string{}
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		granted[name] = "SELECT, INSERT, UPDATE, DELETE"
	}
	must(t, rows.Err())
	granted[except] = rights
	for name, rights := range granted {
		exec(t, m.DB, "GRANT "+rights+" ON "+name+" TO "+user)
	}
}

// If the user may not see transactions, the safe id trails the assigned ids by LongestTransaction. With a
// long LongestTransaction it stays below an open transaction's row. With a short one it passes committed rows.
func TestMySQLWithoutProcessPrivilegeTrailsByTime(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		user, poor := m.poorUser(t)
		exec(t, m.DB, "GRANT SELECT, UPDATE ON * TO "+user)
		observe := func(longest time.Duration) *observer {
			store, err := sqlstore.Open(t.Context(), poor, m.dialect, sqlstore.Options{LongestTransaction: longest})
			if err != nil {
				t.Fatal(err)
			}
			if f := finding(store.Findings, "open transactions"); f.Detail == "" || f.OK || !strings.Contains(f.Hint, "GRANT PROCESS") {
				t.Errorf("the findings are %+v, want a problem whose hint is GRANT PROCESS", store.Findings)
			}
			return newObserver(t, store)
		}
		slow := m.Begin(t)
		late := slow.Insert(outbox.Message{Topic: "late"})
		id := insertOne(t, m, "")
		observe(time.Hour).lookFor(settling, late)
		slow.Commit()
		o := observe(time.Second)
		o.lookUntil(id)
		if !o.seen[late] {
			t.Errorf("row %d was committed but not read", late)
		}
	})
}

// Open refuses a session that reads uncommitted rows, refuses statements, limits results or changes texts.
func TestMySQLUnfitSessionIsRefused(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		config, err := mysql.ParseDSN(m.DSN)
		if err != nil {
			t.Fatal("the test server's DSN is malformed; it is not shown because it has a password")
		}
		unfit := map[string]string{
			"transaction_isolation": "'READ-UNCOMMITTED'", "tx_isolation": "'READ-UNCOMMITTED'", "autocommit": "0", "completion_type": "'CHAIN'", "range_optimizer_max_mem_size": "1",
			"character_set_client": "latin1", "character_set_connection": "latin1", "character_set_results": "latin1", "sql_safe_updates": "1", "sql_select_limit": "1", "sql_big_selects": "0",
		}
		if m.Kind == testdb.MariaDB {
			unfit["sql_mode"] = "'EMPTY_STRING_IS_NULL'" // MySQL has no such mode
		}
		for _, setting := range dialect.Settings(m.dialect) {
			value, known := unfit[setting.Name]
			switch {
			case setting.Refused == "", setting.Only != "" && setting.Only != m.Kind, setting.Name == "sql_mode" && !known:
				continue
			case !known:
				t.Errorf("%s: the test has no value that Open refuses", setting.Name)
			}
			other := config.Clone()
			other.Params = map[string]string{setting.Name: value}
			pool, err := sql.Open("mysql", other.FormatDSN())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pool.Close() })
			named, level := setting.Name, ""
			if named == "tx_isolation" && m.DB.QueryRowContext(t.Context(), "SELECT @@transaction_isolation").Scan(&level) == nil {
				named = "transaction_isolation" // since MariaDB 11.1 the setting has both names
			}
			if _, err := sqlstore.Open(t.Context(), pool, m.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), named+" of this session") {
				t.Errorf("%s = %s: the error is %v, want one that names the setting", setting.Name, value, err)
			}
		}
	})
}

// bluff is a dialect whose trial doesn't skip the locked row but waits for it.
type bluff struct{ dialect.Dialect }

func (b bluff) Server(table dialect.Table) (facts dialect.Query, trial *dialect.Trial) {
	facts, trial = b.Dialect.(dialect.Fitting).Server(table)
	trial.Pass.SQL = strings.TrimSuffix(trial.Pass.SQL, " SKIP LOCKED")
	return facts, trial
}

func (b bluff) Fit(server dialect.Server) (dialect.Fit, error) {
	return b.Dialect.(dialect.Fitting).Fit(server)
}

// The trial shows whether the server skips locked rows, also if its version suggests otherwise or another row is locked. It needs two
// connections.
func TestMySQLTrialShowsWhetherLockedRowsAreSkipped(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		skips := func(d dialect.Dialect) bool {
			t.Helper()
			store, err := sqlstore.Open(t.Context(), m.DB, d, sqlstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(finding(store.Findings, "locked rows").Detail, "are skipped")
		}
		if want := !waits(m.Name); skips(m.dialect) != want {
			t.Errorf("locked rows are skipped: %t", !want)
		}
		if skips(bluff{m.dialect}) {
			t.Error("a session that waits for a lock is reported to skip locked rows")
		}
		tx, err := m.DB.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("SELECT lane FROM outbox_lanes WHERE lane = 1 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		if want := !waits(m.Name); skips(m.dialect) != want {
			t.Errorf("while the other row is locked, locked rows are skipped: %t", !want)
		}
		narrow := m.OpenAnother(t)
		narrow.SetMaxOpenConns(1)
		if _, err := sqlstore.Open(t.Context(), narrow, m.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Errorf("a pool of one connection: %v", err)
		}
	})
}

// If many relays and commands open the table concurrently, as during a deployment, their trials wait
// for each other's rows. No store concludes from such a wait that the server can't skip locked rows, and
// each store leaves its session's settings unchanged.
func TestMySQLConcurrentTrialsSucceed(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		var lockWait, after string
		if err := m.DB.QueryRow("SELECT @@innodb_lock_wait_timeout").Scan(&lockWait); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				store, err := sqlstore.Open(t.Context(), m.DB, m.dialect, sqlstore.Options{Operator: i%2 == 0})
				if err != nil {
					t.Errorf("open concurrently: %v", err)
					return
				}
				if skips := strings.Contains(finding(store.Findings, "locked rows").Detail, "are skipped"); skips == waits(m.Name) {
					t.Errorf("opened concurrently: locked rows are skipped: %t", skips)
				}
			})
		}
		all.Wait()
		for range 8 {
			conn, err := m.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }() // the connections stay open until the end, so that the pool returns a different one each time
			if err := conn.QueryRowContext(t.Context(), "SELECT @@innodb_lock_wait_timeout").Scan(&after); err != nil || after != lockWait {
				t.Errorf("after a trial a session waits %s s for a lock (%v), want %s s as before", after, err, lockWait)
			}
		}
	})
}

// In a session with another time zone the check doesn't report a transaction that has just begun as an
// old one.
func TestMySQLCheckIgnoresTheSessionsTimeZone(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		config, err := mysql.ParseDSN(m.DSN)
		if err != nil {
			t.Fatal("the test server's DSN is malformed; it is not shown because it has a password")
		}
		config.Params = map[string]string{"time_zone": "'+11:00'"}
		pool, err := sql.Open("mysql", config.FormatDSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pool.Close() })
		m.Begin(t).Insert(outbox.Message{Topic: "t"})
		f := finding(sqlstore.Check(t.Context(), pool, m.dialect, sqlstore.Options{}, storage.ByLanes), "transactions")
		_, since, old := strings.Cut(f.Detail, "open since ") // the transaction may be another test's
		if at, err := time.Parse(time.RFC3339, since); f.Name == "" || old && (err != nil || time.Since(at) < 9*time.Minute) {
			t.Errorf("the finding is %+v, but the test's transaction has just begun", f)
		}
	})
}
