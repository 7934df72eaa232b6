package testdb

import (
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3" // driver "sqlite3"; needs cgo
	_ "modernc.org/sqlite"          // driver "sqlite"
)

// Each driver has a spelling of its own for the same settings, and passes over
// the other's without a word.
const (
	moderncParameters = "_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(120000)&_pragma=foreign_keys(1)"
	mattnParameters   = "_txlock=immediate&_journal_mode=WAL&_busy_timeout=120000&_foreign_keys=1"
)

func sqlite(name, driver, parameters string) Target {
	return Target{
		Name:   "sqlite/" + name,
		Kind:   SQLite,
		Driver: driver,
		missing: func() string {
			if driver == "sqlite3" && !hasCgo {
				return "this test binary was built without cgo, which the driver needs"
			}
			return ""
		},
		create: func(t testing.TB) (string, string) {
			t.Helper()
			path := filepath.Join(t.TempDir(), "test.db")
			return "file:" + path + "?" + parameters, "sqlite:" + path
		},
	}
}
