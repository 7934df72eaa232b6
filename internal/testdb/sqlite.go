package testdb

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/mattn/go-sqlite3" // driver "sqlite3"; needs cgo
	_ "modernc.org/sqlite"          // driver "sqlite"
)

// SQLite is the value of Target.Kind for SQLite.
const SQLite = "sqlite"

// Each driver has its own names for the same settings, and silently ignores the other driver's
// names.
const (
	moderncParameters = "_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(120000)&_pragma=foreign_keys(1)"
	mattnParameters   = "_txlock=immediate&_journal_mode=WAL&_busy_timeout=120000&_foreign_keys=1"
)

func onSQLite() []Target {
	return []Target{
		sqlite("sqlite/modernc", "sqlite", "modernc.org/sqlite", moderncParameters),
		sqlite(mattnName(), "sqlite3", "github.com/mattn/go-sqlite3", mattnParameters),
	}
}

func sqlite(name, driver, module, parameters string) Target {
	create := func(t testing.TB) (string, string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "test.db")
		return "file:" + path + "?" + parameters, "sqlite:" + path
	}
	return Target{
		Name:    name,
		Kind:    SQLite,
		Driver:  driver,
		product: "SQLite",
		version: "SELECT sqlite_version()",
		module:  module,
		missing: func() string {
			if driver == "sqlite3" && !hasCgo {
				return "this test binary was built without cgo, which the driver needs"
			}
			return ""
		},
		create: create,
		createOutbox: func(t testing.TB) (string, string) {
			t.Helper()
			dsn, url := create(t)
			path := strings.TrimPrefix(url, "sqlite:")
			outboxFiles.Lock()
			defer outboxFiles.Unlock()
			if file := outboxFiles.of[driver]; file != nil {
				if err := os.WriteFile(path, file, 0o600); err != nil {
					t.Fatal(err)
				}
				return dsn, url
			}
			outboxFiles.of[driver] = outboxFile(t, driver, dsn, path)
			return dsn, url
		},
	}
}

// outboxFiles has, for each driver, the content of a database file with the tables of an
// outbox. Writing the content to a new file is several times as fast as running the
// migrations.
var outboxFiles = struct {
	sync.Mutex
	of map[string][]byte
}{of: map[string][]byte{}}

// outboxFile creates the tables of an outbox in a database file, and returns the file's content.
func outboxFile(t testing.TB, driver, dsn, path string) []byte {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, db, SQLite)
	if err := db.Close(); err != nil { // closing the last connection removes the WAL file
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
