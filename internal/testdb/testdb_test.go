package testdb_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var (
	mysqls  = []string{testdb.MySQL, testdb.MariaDB}
	servers = append([]string{testdb.Postgres, testdb.SQLServer, testdb.Oracle}, mysqls...)
	files   = []string{testdb.SQLite}
	all     = append(files, servers...)
)

// each runs a test on all targets of some kinds, in parallel.
func each(t *testing.T, kinds []string, test func(t *testing.T, target testdb.Target)) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if !slices.Contains(kinds, target.Kind) {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			test(t, target)
		})
	}
}

func TestEachDatabaseIsEmptyAndItsOwn(t *testing.T) {
	each(t, all, func(t *testing.T, target testdb.Target) {
		first, second := target.Open(t), target.Open(t)
		for _, db := range []testdb.Database{first, second} {
			if _, err := db.DB.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER)"); err != nil {
				t.Fatalf("create a table in a database of its own: %v", err)
			}
		}
	})
}

func TestAnotherPoolSeesTheSameDatabase(t *testing.T) {
	each(t, all, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		if _, err := db.DB.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER)"); err != nil {
			t.Fatal(err)
		}
		var rows int
		another := db.OpenAnother(t)
		if err := another.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&rows); err != nil {
			t.Fatalf("read through another pool: %v", err)
		}
		if another == db.DB {
			t.Error("the other pool is the same one")
		}
	})
}

func TestDatabasesAreDropped(t *testing.T) {
	each(t, all, func(t *testing.T, target testdb.Target) {
		var dropped testdb.Database
		t.Run("user", func(t *testing.T) { dropped = target.Open(t) })
		if dropped.DB == nil {
			t.Skip("no database was opened, so none was dropped")
		}
		if dropped.Kind == testdb.SQLite {
			if _, err := os.Stat(strings.TrimPrefix(dropped.URL, "sqlite:")); !os.IsNotExist(err) {
				t.Errorf("the file is still there: %v", err)
			}
			return
		}
		if err := ping(t, dropped.Driver, dropped.DSN); !mentions(err, "does not exist", "Unknown database", "Cannot open database", "ORA-01017") {
			t.Errorf("ping of a dropped database: %v, want that it does not exist", err)
		}
	})
}

func TestServersAskForThePassword(t *testing.T) {
	each(t, servers, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		address, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := address.User.Password()
		wrong := strings.ReplaceAll(db.DSN, password, "wrong")
		if err := ping(t, db.Driver, wrong); !mentions(err, "password", "Login failed", "ORA-01017") {
			t.Errorf("ping with a wrong password: %v, want that it is refused", err)
		}
	})
}

func ping(t *testing.T, driver, dsn string) error {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	return pool.PingContext(t.Context())
}

func mentions(err error, some ...string) bool {
	return err != nil && slices.ContainsFunc(some, func(one string) bool { return strings.Contains(err.Error(), one) })
}

// The servers have unusual settings, so that tests fail if the code relies on a default.
func TestMySQLSettingsAreInForce(t *testing.T) {
	each(t, mysqls, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		for expression, want := range map[string]string{
			"@@session.time_zone":               "+00:00",
			"@@global.time_zone = '+00:00'":     "0",
			"@@collation_database":              "utf8mb4_unicode_ci",
			"@@lower_case_table_names":          "0",
			"@@character_set_connection":        "utf8mb4",
			"@@autocommit":                      "1",
			"LOCATE('STRICT_', @@sql_mode) > 0": "1",
		} {
			var got string
			if err := db.DB.QueryRowContext(t.Context(), "SELECT "+expression).Scan(&got); err != nil || got != want {
				t.Errorf("%s = %q, %v; want %q", expression, got, err, want)
			}
		}
	})
}

func TestMySQLCountsRowsFoundAndTimesInUTC(t *testing.T) {
	each(t, mysqls, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		for _, statement := range []string{"CREATE TABLE t (id INTEGER, at DATETIME(6))", "INSERT INTO t VALUES (1, '2026-01-02 03:04:05.678901')"} {
			if _, err := db.DB.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		result, err := db.DB.ExecContext(t.Context(), "UPDATE t SET id = ? WHERE id = 1", 1)
		if err != nil {
			t.Fatal(err)
		}
		found := int64(1)
		if strings.HasSuffix(target.Name, "/prepared") { // this target has the defaults of applications
			found = 0
		}
		if rows, err := result.RowsAffected(); rows != found || err != nil {
			t.Errorf("an update that changed nothing: %d rows, %v; want %d", rows, err, found)
		}
		var at string // the time as a number of seconds, which depends on the session's time zone
		if err := db.DB.QueryRowContext(t.Context(), "SELECT UNIX_TIMESTAMP(at) FROM t WHERE id = ?", 1).Scan(&at); err != nil || at != "1767323045.678901" {
			t.Errorf("2026-01-02 03:04:05.678901 is %q, %v; want it in UTC", at, err)
		}
	})
}

func TestSQLiteSettingsAreInForce(t *testing.T) {
	each(t, files, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		for pragma, want := range map[string]string{"journal_mode": "wal", "busy_timeout": "120000", "foreign_keys": "1"} {
			var got string
			if err := db.DB.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s = %q, %v; want %q", pragma, got, err, want)
			}
		}
	})
}

// A transaction keeps others from writing as soon as it has begun. A deferred transaction that
// reads and then writes would fail if another transaction wrote in between.
func TestSQLiteTransactionsAreImmediate(t *testing.T) {
	each(t, files, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		tx, err := db.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		conn, err := db.OpenAnother(t).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.ExecContext(t.Context(), "PRAGMA busy_timeout = 0"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), "CREATE TABLE t (id INTEGER)"); err == nil {
			t.Error("another connection wrote while a transaction was open")
		}
	})
}

func TestMissingServer(t *testing.T) {
	t.Setenv("ROWRELAY_TEST_POSTGRES15", "")
	t.Setenv("ROWRELAY_TEST_MYSQL", "")
	for _, target := range testdb.Targets() {
		for require, want := range map[string]string{"": "skipped", "1": "failed"} {
			variable := "ROWRELAY_TEST_POSTGRES15"
			switch {
			case strings.HasPrefix(target.Name, "mysql/"):
				variable, want = "ROWRELAY_TEST_MYSQL", "skipped" // this target is optional
			case !strings.HasPrefix(target.Name, "postgres15/"):
				continue
			}
			t.Setenv("REQUIRE_SERVERS", require)
			if got := verdict(target); !strings.HasPrefix(got, want+": ") || !strings.Contains(got, variable) {
				t.Errorf("%s with REQUIRE_SERVERS=%q: %q, want %s and the variable's name", target.Name, require, got, want)
			}
		}
	}
}

// verdict opens a target in a test that only records whether it is skipped or fails.
func verdict(target testdb.Target) string {
	notes := &noted{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		target.Open(notes)
	}()
	<-done
	return notes.verdict
}

type noted struct {
	testing.TB
	verdict string
}

func (n *noted) Helper()                  {}
func (n *noted) Context() context.Context { return context.Background() }
func (n *noted) Fatal(args ...any)        { n.end("failed", args) }
func (n *noted) Skip(args ...any)         { n.end("skipped", args) }
func (n *noted) end(how string, args []any) {
	n.verdict = how + ": " + args[0].(string)
	panic(n.verdict)
}

// The outbox of each test has all tables, and shares nothing with the outboxes of other
// tests.
func TestOutboxesAreCompleteAndSeparate(t *testing.T) {
	each(t, all, func(t *testing.T, target testdb.Target) {
		for range 2 {
			db := target.OpenOutbox(t)
			d, err := dialect.ByName(db.Kind)
			if err != nil {
				t.Fatal(err)
			}
			m, err := migrations.New(db.DB, d, migrations.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if pending, err := m.Pending(t.Context()); err != nil || len(pending) > 0 {
				t.Errorf("pending are %v, %v", pending, err)
			}
			var rows int
			if err := db.DB.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages").Scan(&rows); err != nil || rows > 0 {
				t.Errorf("it has %d messages, %v", rows, err)
			}
			writer, err := outbox.NewWriter(d, outbox.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := writer.Write(t.Context(), outbox.WithoutTransaction(db.DB), outbox.Message{Topic: "orders"}); err != nil {
				t.Error(err)
			}
		}
	})
}
