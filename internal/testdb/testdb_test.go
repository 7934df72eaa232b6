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
)

var (
	all     = []string{testdb.Postgres, testdb.SQLite}
	servers = []string{testdb.Postgres}
	files   = []string{testdb.SQLite}
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
			t.Skip("there was no database to drop")
		}
		if dropped.Kind == testdb.SQLite {
			if _, err := os.Stat(strings.TrimPrefix(dropped.URL, "sqlite:")); !os.IsNotExist(err) {
				t.Errorf("the file is still there: %v", err)
			}
			return
		}
		pool, err := sql.Open(dropped.Driver, dropped.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		if err := pool.PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("ping of a dropped database: %v, want that it does not exist", err)
		}
	})
}

func TestServersAskForThePassword(t *testing.T) {
	each(t, servers, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		address, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		address.User = url.UserPassword(address.User.Username(), "wrong")
		pool, err := sql.Open(db.Driver, address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		if err := pool.PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), "password") {
			t.Errorf("ping with a wrong password: %v, want that it is refused", err)
		}
	})
}

func TestSQLiteSettingsAreInForce(t *testing.T) {
	each(t, files, func(t *testing.T, target testdb.Target) {
		db := target.Open(t)
		for pragma, want := range map[string]string{"journal_mode": "wal", "busy_timeout": "10000", "foreign_keys": "1"} {
			var got string
			if err := db.DB.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s = %q, %v; want %q", pragma, got, err, want)
			}
		}
	})
}

// A transaction that reads first and then writes fails at once if it was begun
// deferred and another one wrote in between; an immediate one keeps others out.
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
	for require, want := range map[string]string{"": "skipped", "1": "failed"} {
		t.Setenv("REQUIRE_SERVERS", require)
		if got := verdict(testdb.Targets()[0]); !strings.HasPrefix(got, want+": ") || !strings.Contains(got, "ROWRELAY_TEST_POSTGRES15") {
			t.Errorf("with REQUIRE_SERVERS=%q: %q, want %s and the variable's name", require, got, want)
		}
	}
}

// verdict opens a target in a test that only notes how it ends.
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
