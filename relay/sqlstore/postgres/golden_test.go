package postgres_test

import (
	"database/sql"
	"database/sql/driver"
	"flag"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/postgres"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// The statements equal the golden file.
func TestStatements(t *testing.T) {
	t.Parallel()
	recorder := &backendtest.Recorder{Answer: func(query string) [][]driver.Value {
		switch {
		case strings.HasPrefix(query, "SELECT value FROM") && strings.HasSuffix(query, "FOR UPDATE"):
			return [][]driver.Value{{"another"}}
		case strings.Contains(query, "UNION ALL\nSELECT NULL, t.id") && !strings.HasPrefix(query, "EXPLAIN"):
			return [][]driver.Value{{"0 0 0 7:7: e", int64(0), int64(0), "", "", "", "", nil, "", nil, nil, int64(0), int64(0), int64(0), nil, int64(0)}}
		case strings.HasPrefix(query, "SELECT concat_ws"):
			return [][]driver.Value{{"0 0 0 7:7: e"}}
		case strings.Contains(query, "RETURNING name, "):
			return [][]driver.Value{{"r", int64(7), "e"}}
		case strings.HasPrefix(query, "SELECT l.lane FROM"): // a free lane
			return [][]driver.Value{{int64(1)}}
		case strings.Contains(query, "to_regclass"):
			return [][]driver.Value{{int64(3)}}
		}
		return nil
	}}
	backendtest.Golden(t, "testdata/statements.sql", "", *update, recorder, dialect.Postgres(), func(db *sql.DB, table dialect.Table) backend.Backend {
		return postgres.New(db, dialect.Postgres(), table, nil)
	})
}
