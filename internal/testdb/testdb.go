// Package testdb gives each test its own empty database, on every database and driver that the
// project supports.
//
// The script in deploy/servers starts the servers. If a server is not configured, its tests are
// skipped, or fail if REQUIRE_SERVERS=1 is set. Only tests may import this package, because it
// imports the drivers. Two of the drivers need a build tag, and one needs a linker flag, which the
// Makefile's test target sets.
package testdb

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Target is a database server or an embedded database, together with the driver that the tests use for it.
type Target struct {
	Name   string // unique, such as "postgres15/pgx"; also used as the name of a subtest
	Kind   string // the name of the dialect, such as [Postgres]
	Driver string // the name for sql.Open

	product string // the database's usual name
	version string // the query that selects the server's version
	module  string // the driver's module

	// optional means that tests are skipped if the target is missing, even with REQUIRE_SERVERS=1.
	optional bool
	// repeated means that other targets cover this target's server and its driver.
	repeated bool
	// missing describes what Open needs and can't find. It returns "" if nothing is missing.
	missing func() string
	create  func(t testing.TB) (dsn, url string)
	// createOutbox copies a database with the tables of an outbox. It is nil if the server can't
	// copy databases.
	createOutbox func(t testing.TB) (dsn, url string)
}

// Database is a database that belongs to one test.
type Database struct {
	Name   string // the target's name
	Kind   string // the target's kind
	Driver string // the driver's name for sql.Open
	DSN    string // the data source name for sql.Open
	URL    string // the URL for the rowrelay command: postgres://…, mysql://…, sqlite:path and so on

	// DB is a connection pool of the database. The pool is closed when the test ends.
	DB *sql.DB

	target Target
}

// Targets returns all targets, whether or not their servers are configured.
func Targets() []Target {
	return slices.Concat(onPostgres(), onSQLite(), onMySQL(), onSQLServer(), onOracle())
}

// Each returns a subset of the targets that includes every server and every driver, for tests that
// depend on the server or on the driver, but not on their combination.
func Each() []Target {
	return slices.DeleteFunc(Targets(), func(target Target) bool { return target.repeated })
}

func repeated(target Target) Target {
	target.repeated = true
	return target
}

// given returns the target if its server is configured, and otherwise no target. It is for servers
// that no script starts by default.
func given(target Target) []Target {
	if target.missing() != "" {
		return nil
	}
	return []Target{target}
}

func (target Target) withoutRequiring() Target {
	target.optional = true
	return target
}

// Open creates an empty database and drops it when the test and its subtests have ended. If the
// target is missing, Open skips the test, or fails it if REQUIRE_SERVERS=1 is set and the target
// isn't optional. It may be called repeatedly and concurrently.
func (target Target) Open(t testing.TB) Database {
	t.Helper()
	return target.open(t, target.create)
}

// OpenOutbox is like Open, but the database has the tables of an outbox, with the defaults of
// migrations. If the server can copy databases, the tables are created once and then copied, which
// is twice as fast.
func (target Target) OpenOutbox(t testing.TB) Database {
	t.Helper()
	if target.createOutbox != nil {
		return target.open(t, target.createOutbox)
	}
	db := target.Open(t)
	migrate(t, db.DB, db.Kind)
	return db
}

func (target Target) open(t testing.TB, create func(testing.TB) (dsn, url string)) Database {
	t.Helper()
	if missing := target.missing(); missing != "" {
		giveUp(t, target.Name+": "+missing, target.optional)
	}
	dsn, url := create(t)
	db := Database{Name: target.Name, Kind: target.Kind, Driver: target.Driver, DSN: dsn, URL: url, target: target}
	db.DB = db.OpenAnother(t)
	return db
}

func outboxOf(t testing.TB, db *sql.DB, kind string) *migrations.Migrations {
	t.Helper()
	d, err := dialect.ByName(kind)
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrations.New(db, d, migrations.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func migrate(t testing.TB, db *sql.DB, kind string) {
	t.Helper()
	if _, err := outboxOf(t, db, kind).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// printed returns a short fingerprint of the SQL of the migrations.
func printed(t testing.TB, kind string) string {
	t.Helper()
	sum := sha256.New()
	if err := outboxOf(t, nil, kind).Print(sum); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

// OpenAnother opens another, independent pool of the same database. The pool is closed when the
// test ends.
func (db Database) OpenAnother(t testing.TB) *sql.DB {
	t.Helper()
	pool, err := db.open(t)
	if err != nil {
		t.Fatalf("open a pool on %s: %v", db.Name, err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	if err := pool.PingContext(t.Context()); err != nil {
		t.Fatalf("connect to %s: %v", db.Name, err)
	}
	return pool
}

func (db Database) open(t testing.TB) (*sql.DB, error) {
	directory := os.Getenv(RecordExecuted)
	if directory == "" {
		return sql.Open(db.Driver, db.DSN)
	}
	pool, end, err := openRecorded(db.Driver, db.DSN, db.Name, directory)
	if err == nil {
		t.Cleanup(func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
	return pool, err
}

// missingServer returns a function for [Target.missing]. The function returns "" if the variable
// with the server's address is set.
func missingServer(variable string) func() string {
	return func() string {
		if os.Getenv(variable) == "" {
			return variable + " is not set: run deploy/servers/servers up and source .servers/env, or use make test"
		}
		return ""
	}
}

func giveUp(t testing.TB, why string, optional bool) {
	t.Helper()
	if os.Getenv("REQUIRE_SERVERS") == "1" && !optional {
		t.Fatal(why)
	}
	t.Skip(why)
}
