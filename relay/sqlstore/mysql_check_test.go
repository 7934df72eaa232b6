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
				if !finding.OK && finding.Name != "transactions" && finding.Name != "open transactions" { // which are the whole server's
					t.Errorf("by %s: %+v", claim, finding)
				}
			}
			for _, name := range []string{"connection", "server", "locked rows", "schema", "claim", "rights", "marks", "plan"} {
				if !names[name] {
					t.Errorf("by %s: nothing was found about the %s", claim, name)
				}
			}
		}
	})
}

// An INSERT with an id of its own can't be refused where that is too high for the relay. The error at the start says
// what to do, and that helps.
func TestMySQLNamesAnIDThatIsTooHigh(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		exec(t, m.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		exec(t, m.DB, "INSERT INTO outbox (id, topic) VALUES (9223372036854775808, 't')")
		const remedy = "set the table's AUTO_INCREMENT back"
		if _, err := sqlstore.Open(t.Context(), m.DB, m.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("opened: %v", err)
		}
		exec(t, m.DB, "DELETE FROM outbox WHERE id >= 9223372036854775808")
		exec(t, m.DB, "ALTER TABLE outbox AUTO_INCREMENT = 2")
		exec(t, m.DB, "ANALYZE TABLE outbox")
		exec(t, m.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		page, err := m.table.open(t).Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 64, Until: 1000}}, Limit: 1, MaxBytes: 1})
		if err != nil || page.LastID != 2 {
			t.Errorf("the last id afterwards: %d, %v", page.LastID, err)
		}
	})
}

// finding returns the one of that name.
func finding(findings []sqlstore.Finding, name string) sqlstore.Finding {
	for _, f := range findings {
		if f.Name == name {
			return f
		}
	}
	return sqlstore.Finding{}
}

// A user with exactly the rights that the check names can relay.
func TestMySQLRights(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		user, poor := m.poorUser(t)
		exec(t, m.DB, "GRANT SELECT ON outbox_settings TO "+user)
		_, list, _ := strings.Cut(finding(sqlstore.Check(t.Context(), poor, m.dialect, sqlstore.Options{}, storage.ByLanes), "rights").Detail, "lacks: ")
		if strings.Count(list, ",") < 10 {
			t.Fatalf("a user without any right lacks %q", list)
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

// poorUser makes a user without rights, and returns its name and a pool.
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
	exec(t, m.DB, "GRANT SHOW VIEW ON * TO "+name) // lets it use the database
	pool, err = sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return name, pool
}

// grantAllBut gives the user the rights to read and write each table, and on one table only those named.
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

// Who may not see transactions waits for as long as they may take: with a long time the safe id
// stays below an open one, with a short time it passes what is committed.
func TestMySQLWithoutProcess(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		user, poor := m.poorUser(t)
		exec(t, m.DB, "GRANT SELECT, UPDATE ON * TO "+user)
		observe := func(longest time.Duration) *observer {
			store, err := sqlstore.Open(t.Context(), poor, m.dialect, sqlstore.Options{LongestTransaction: longest})
			if err != nil {
				t.Fatal(err)
			}
			if f := finding(store.Findings, "open transactions"); f.Detail == "" || f.OK || !strings.Contains(f.Hint, "GRANT PROCESS") {
				t.Errorf("found %+v", store.Findings)
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
			t.Errorf("row %d was committed, and isn't read", late)
		}
	})
}

// A session that reads what isn't committed, that refuses statements or cuts off results, or that changes texts, is refused.
func TestMySQLUnfitSession(t *testing.T) {
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
				t.Errorf("%s: the test has no value that is refused", setting.Name)
			}
			other := config.Clone()
			other.Params = map[string]string{setting.Name: value}
			pool, err := sql.Open("mysql", other.FormatDSN())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pool.Close() })
			if _, err := sqlstore.Open(t.Context(), pool, m.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), setting.Name+" of this session") {
				t.Errorf("%s = %s: the error is %v, want one that names it", setting.Name, value, err)
			}
		}
	})
}

// bluff is a dialect whose trial waits for the locked row.
type bluff struct{ dialect.Dialect }

func (b bluff) Server(table dialect.Table) (facts dialect.Query, trial *dialect.Trial) {
	facts, trial = b.Dialect.(dialect.Fitting).Server(table)
	trial.Pass.SQL = strings.TrimSuffix(trial.Pass.SQL, " SKIP LOCKED")
	return facts, trial
}

func (b bluff) Fit(server dialect.Server) (dialect.Fit, error) {
	return b.Dialect.(dialect.Fitting).Fit(server)
}

// The trial shows what the server does, whatever its version says.
func TestMySQLTrial(t *testing.T) {
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
			t.Errorf("locked rows are passed over: %t", !want)
		}
		if skips(bluff{m.dialect}) {
			t.Error("who waits for a lock is said to pass over it")
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
			t.Errorf("while the other row is locked, locked rows are passed over: %t", !want)
		}
		narrow := m.OpenAnother(t)
		narrow.SetMaxOpenConns(1)
		if _, err := sqlstore.Open(t.Context(), narrow, m.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Errorf("a pool of one connection: %v", err)
		}
	})
}

// Many who open at once, as relays at a deployment do, and commands at the same time,
// wait for each other's rows, and none takes that for an answer. They leave their
// sessions as they were.
func TestMySQLTrialsAtOnce(t *testing.T) {
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
					t.Errorf("open beside others: %v", err)
					return
				}
				if skips := strings.Contains(finding(store.Findings, "locked rows").Detail, "are skipped"); skips == waits(m.Name) {
					t.Errorf("beside others: locked rows are passed over: %t", skips)
				}
			})
		}
		all.Wait()
		for range 8 {
			conn, err := m.DB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }() // when all were asked
			if err := conn.QueryRowContext(t.Context(), "SELECT @@innodb_lock_wait_timeout").Scan(&after); err != nil || after != lockWait {
				t.Errorf("after a trial a session waits %s s for a lock (%v), and did %s s", after, err, lockWait)
			}
		}
	})
}

// A transaction that has just begun is not an old one, whatever the session's
// time zone is.
func TestMySQLCheckInAnotherZone(t *testing.T) {
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
		_, since, old := strings.Cut(f.Detail, "open since ") // which may be another test's
		if at, err := time.Parse(time.RFC3339, since); f.Name == "" || old && (err != nil || time.Since(at) < 9*time.Minute) {
			t.Errorf("found %+v, and the transaction has just begun", f)
		}
	})
}
