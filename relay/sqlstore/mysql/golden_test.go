package mysql_test

import (
	"database/sql"
	"database/sql/driver"
	"flag"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/mysql"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The statements equal the golden files. MariaDB's file has only statements that differ from MySQL's.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.MySQL(), dialect.MariaDB()} {
		t.Run(d.Name(), func(t *testing.T) {
			other := ""
			if d.Name() != "mysql" {
				other = "testdata/mysql.sql"
			}
			recorder := &backendtest.Recorder{Answer: answer, Affected: func(query string) int64 {
				return map[bool]int64{true: 2}[strings.HasPrefix(query, "INSERT INTO `app`.`Events` ")] // copies, which the backend then searches for
			}}
			backendtest.Golden(t, "testdata/"+d.Name()+".sql", other, *update, recorder, d, func(db *sql.DB, table dialect.Table) backend.Backend {
				return mysql.New(db, d, table)
			})
		})
	}
}

// answer returns rows that make each method run all its statements.
func answer(query string) [][]driver.Value {
	one, two := int64(1), int64(2)
	row := func(id int64) []driver.Value {
		return []driver.Value{id, one, "m", "t", "", "", []byte("p"), "", nil, nil, int64(0), int64(0), int64(0), nil, one}
	}
	switch {
	case strings.HasPrefix(query, "SELECT value FROM") && strings.HasSuffix(query, "'claim' FOR UPDATE"):
		return [][]driver.Value{{"another"}}
	case strings.HasPrefix(query, "SELECT 'lane'"):
		return [][]driver.Value{{"lane", one, int64(7)}, {"lane", two, int64(8)}}
	case strings.HasPrefix(query, "SELECT l.lane, l.fence + 1"):
		return [][]driver.Value{{one, int64(7), "", int64(0), "", int64(0)}, {two, int64(8), "", int64(0), "", int64(0)}}
	case strings.HasPrefix(query, "SELECT lane, fence, 0"):
		return [][]driver.Value{{one, int64(7), int64(0)}, {two, int64(8), int64(0)}}
	case strings.HasPrefix(query, "SELECT name, 0"):
		return [][]driver.Value{{"r", int64(0), "s"}}
	case strings.HasPrefix(query, "SELECT id FROM"), strings.HasPrefix(query, "SELECT t.id FROM"):
		return [][]driver.Value{{one}, {two}}
	case strings.HasPrefix(query, "SELECT t.lane, t.id, t.message_id"):
		return [][]driver.Value{{one, one, "0197a3b4-0000-7abc-8def-000000000001", "a"}, {two, two, "0197a3b4-0000-7abc-8def-000000000002", ""}}
	case strings.HasPrefix(query, "SELECT t.id * 64"):
		return [][]driver.Value{{int64(65)}, {int64(130)}}
	case strings.HasPrefix(query, "SELECT t.id") && strings.Contains(query, "claimed_until IS NULL\nORDER BY"):
		return [][]driver.Value{row(1), row(2)}
	case strings.Contains(query, "index_name"):
		return [][]driver.Value{{int64(3)}}
	}
	return nil
}

// A claim uses SKIP LOCKED only if the server's version has it and the trial showed that the server skips
// locked rows.
func TestStatementsWithoutSkipLocked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		version     string
		skips, want bool
	}{{"10.6.0-MariaDB", true, true}, {"10.6.0-MariaDB", false, false}, {"10.5.23-MariaDB", true, false}} {
		fit, err := dialect.MariaDB().(dialect.Fitting).Fit(dialect.Server{Facts: map[string]string{"version": test.version}, Skips: test.skips})
		if err != nil {
			t.Fatal(err)
		}
		recorder := &backendtest.Recorder{}
		db := recorder.DB()
		if _, err := mysql.New(db, fit.Dialect, backendtest.Table(t, "outbox")).Claim(t.Context(), storage.ClaimRequest{Relay: "a", Token: "t", Limit: 5}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		queries := recorder.Taken()
		if got := strings.Contains(queries[len(queries)-1].SQL, "SKIP LOCKED"); got != test.want {
			t.Errorf("%s, trial skips locked rows: %t; the claim has SKIP LOCKED: %t", test.version, test.skips, got)
		}
	}
}
