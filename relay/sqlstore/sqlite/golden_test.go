package sqlite_test

import (
	"database/sql"
	"database/sql/driver"
	"flag"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlite"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// The statements equal the golden file.
func TestStatements(t *testing.T) {
	t.Parallel()
	recorder := &backendtest.Recorder{Answer: func(query string) [][]driver.Value {
		switch {
		case strings.HasPrefix(query, "SELECT value FROM"):
			return [][]driver.Value{{"another"}}
		case strings.HasPrefix(query, "SELECT 'lane'"):
			return [][]driver.Value{{"lane", int64(1), int64(7)}, {"lane", int64(2), int64(8)}}
		case strings.Contains(query, "RETURNING name"):
			return [][]driver.Value{{"r", int64(0), ""}}
		case strings.Contains(query, "sqlite_master"):
			return [][]driver.Value{{int64(3)}}
		case strings.HasPrefix(query, "PRAGMA"), strings.HasPrefix(query, "SELECT sqlite_version"):
			return [][]driver.Value{{"3.35.0"}}
		}
		return nil
	}}
	backendtest.Golden(t, "testdata/statements.sql", "", *update, recorder, dialect.SQLite(), func(db *sql.DB, table dialect.Table) backend.Backend {
		return sqlite.New(db, dialect.SQLite(), table)
	})
}
