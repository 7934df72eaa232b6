package sqlserver_test

import (
	"database/sql"
	"database/sql/driver"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlserver"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// answer returns rows that make each method run all its statements.
func answer(query string) [][]driver.Value {
	switch {
	case strings.HasPrefix(query, "SELECT value FROM") && strings.Contains(query, "XLOCK"):
		return [][]driver.Value{{"another"}}
	case strings.Contains(query, "DECLARE @alive bit"):
		return [][]driver.Value{{"r", int64(0), "s"}}
	case strings.HasPrefix(query, "SELECT COUNT(*) FROM (SELECT name FROM sys.indexes"):
		return [][]driver.Value{{int64(3)}}
	}
	return nil
}

// The statements equal the golden file.
func TestStatements(t *testing.T) {
	t.Parallel()
	recorder := &backendtest.Recorder{Answer: answer}
	backendtest.Golden(t, "testdata/statements.sql", "", *update, recorder, dialect.SQLServer(), func(db *sql.DB, table dialect.Table) backend.Backend {
		return sqlserver.New(db, dialect.SQLServer(), table)
	})
}

// asked returns the last statement that the backend runs when do calls it.
func asked(t *testing.T, do func(*sqlserver.SQLServer)) backend.Query {
	t.Helper()
	recorder := &backendtest.Recorder{Answer: answer}
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	do(sqlserver.New(db, dialect.SQLServer(), backendtest.Table(t, "outbox")))
	queries := recorder.Taken()
	return queries[len(queries)-1]
}

// Batches that set an isolation level have parameters. Without parameters the level would stay with the
// connection after an error.
func TestIsolationLevelsAreSetInBatchesWithParameters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	recorder := &backendtest.Recorder{Answer: answer}
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	d := sqlserver.New(db, dialect.SQLServer(), backendtest.Table(t, "outbox"))
	_, _ = d.Heartbeat(ctx, storage.Identity{}, 0)
	_, _ = backend.Any(ctx, db, d.Capabilities().Queries.Members)
	_, _ = backend.ReadStatus(ctx, db, d.Capabilities())
	_, _ = d.Read(ctx, backend.Read{}, nil)
	levels := 0
	for _, query := range recorder.Taken() {
		if !strings.Contains(query.SQL, "SET TRANSACTION ISOLATION LEVEL SNAPSHOT;\n") {
			continue
		}
		levels++
		if !strings.HasSuffix(query.SQL, ";\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED") || len(query.Args) == 0 {
			t.Errorf("%s with %d parameters, want a batch with parameters that resets the level", query.SQL, len(query.Args))
		}
	}
	if want := 9; levels != want { // the members, seven status queries, and a page
		t.Errorf("%d statements set a level, want %d", levels, want)
	}
}

// A list parameter is padded so that its type is nvarchar(500) or nvarchar(max). With few types, the server makes few plans.
func TestListsArePadded(t *testing.T) {
	t.Parallel()
	for keys, want := range map[int]int{1: 500, 30: 500, 40: 4001, 200: 4001, 400: 0} {
		positions := make([]storage.Position, keys)
		for i := range positions {
			positions[i] = storage.Position{Lane: 1, Until: 1, Key: "😀"}
		}
		query := sqlserver.New(nil, dialect.SQLServer(), backendtest.Table(t, "outbox")).Candidates(positions, nil, 1)
		list := query.Args[0].(string)
		units := 0
		for _, r := range list {
			units += 1 + max(0, int(r)>>16)
		}
		if units != want && (want != 0 || units <= 4001 || strings.HasSuffix(list, " ")) {
			t.Errorf("a list of %d positions has %d UTF-16 units, want %d", keys, units, want)
		}
	}
}

func TestDurationsAreInMilliseconds(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]int64{0: 0, time.Nanosecond: 1, time.Second: 1000, 1500 * time.Microsecond: 2} {
		query := asked(t, func(d *sqlserver.SQLServer) {
			_, _, _ = d.ChangeLeases(t.Context(), backend.LeaseChange{Kind: backend.Renew, Relay: "r", TTL: ttl}, nil)
		})
		if got := query.Args[3]; got != want {
			t.Errorf("a TTL of %v is the parameter %v, want %d", ttl, got, want)
		}
	}
	recorder := &backendtest.Recorder{}
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	if _, _, err := sqlserver.New(db, dialect.SQLServer(), backendtest.Table(t, "outbox")).Purge(t.Context(), time.Hour, 1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := recorder.Taken()[1].Args[1]; got != int64(-3_600_000) {
		t.Errorf("a retention of an hour is the parameter %v, want -3,600,000", got)
	}
}
