package sqlstore_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

// Open refuses a pool whose concurrent transactions would fail, and its error shows the required settings.
func TestOpenRequiresSQLiteSettings(t *testing.T) {
	t.Parallel()
	const (
		modernc = "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
		mattn   = "_txlock=immediate&_busy_timeout=10000&_journal_mode=WAL"
	)
	for name, c := range map[string]struct {
		driver, parameters string
		one                bool   // the pool has one connection
		exec               string // a statement on one of the connections
		want               string
	}{
		"modernc":                   {driver: "sqlite", parameters: modernc},
		"modernc, one connection":   {driver: "sqlite", parameters: modernc, one: true},
		"modernc, nothing set":      {driver: "sqlite", want: "busy_timeout is 0 ms"},
		"modernc, mattn's spelling": {driver: "sqlite", parameters: mattn},
		"modernc, by a statement":   {driver: "sqlite", exec: "PRAGMA journal_mode=WAL; PRAGMA busy_timeout=10000", want: "busy_timeout is 0 ms"},
		"modernc, no WAL":           {driver: "sqlite", parameters: strings.Replace(modernc, "WAL", "DELETE", 1), want: "journal_mode is delete"},
		"modernc, deferred":         {driver: "sqlite", parameters: strings.Replace(modernc, "immediate", "deferred", 1), want: "don't begin with BEGIN IMMEDIATE"},
		"mattn":                     {driver: "sqlite3", parameters: mattn},
		"mattn, modernc's spelling": {driver: "sqlite3", parameters: strings.Replace(modernc, "_txlock=immediate&", "", 1), want: "journal_mode is delete"},
		"mattn, deferred":           {driver: "sqlite3", parameters: strings.Replace(mattn, "immediate", "deferred", 1), want: "don't begin with BEGIN IMMEDIATE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.driver == "sqlite3" {
				sqliteWithCgo(t)
			}
			db, err := sql.Open(c.driver, "file:"+filepath.Join(t.TempDir(), "shop.db")+"?"+c.parameters)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			if c.one {
				db.SetMaxOpenConns(1)
			}
			m, err := migrations.New(db, dialect.SQLite(), migrations.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), c.exec); err != nil {
				t.Fatal(err)
			}
			_, err = sqlstore.Open(t.Context(), db, dialect.SQLite(), sqlstore.Options{})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "open the file as file:NAME?_txlock=immediate")):
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}

// sqliteWithCgo skips the test if the binary was built without cgo, which mattn's driver needs.
func sqliteWithCgo(t *testing.T) {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Driver == "sqlite3" {
			target.Open(t)
		}
	}
}
