package sqlstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// The statements that settle rows find each row by its id, whatever the statistics are. With statistics of an
// empty outbox_held, SQLite would prefer a partial index if the statements didn't forbid it.
func TestPlansOnSQLite(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Kind != testdb.SQLite {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			migrate(t, table.DB, table.dialect, migrations.Options{Claim: "rows"})
			wantByID(t, table, "an empty table")
			for n := range 300 {
				exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('t', 'k"+strconv.Itoa(n)+"')")
			}
			exec(t, table.DB, "ANALYZE")
			wantByID(t, table, "statistics")
		})
	}
}

func wantByID(t *testing.T, table table, when string) {
	t.Helper()
	for what, query := range sqliteSettles(t, table) {
		plan := sqlitePlan(t, table, query)
		byKey := strings.Contains(plan, "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)") || strings.Contains(plan, "SEARCH t USING PRIMARY KEY (id=?")
		if !byKey || strings.Contains(plan, "SCAN t") {
			t.Errorf("%s, %s: %s%s", when, what, plan, query.SQL)
		}
	}
}

// sqliteSettles returns the statements of settlements with the same and with different receipts, by lanes
// and by rows, and a search for deferred rows.
func sqliteSettles(t *testing.T, table table) map[string]backend.Query {
	statements := map[string]backend.Query{}
	for _, receipts := range []bool{false, true} {
		for _, token := range []string{"", "token"} {
			for i, query := range asked(t, table, everything, func(b backend.Backend) {
				_, _ = b.Settle(t.Context(), nil, "r", true, thirds(500, token, receipts))
			}) {
				if !strings.Contains(query.SQL, "outbox_lanes") { // except statements on this small table
					statements[fmt.Sprint("settle", receipts, token, i)] = query
				}
			}
		}
	}
	statements["pick held"] = table.open(t).BackendOn(nil).Pick([]storage.RowID{{Lane: 1, ID: 3}, {Lane: 2, ID: 4}}, true)
	return statements
}

func sqlitePlan(t *testing.T, table table, query backend.Query) (plan string) {
	t.Helper()
	rows, err := table.DB.Query("EXPLAIN QUERY PLAN "+query.SQL, query.Args...)
	if err != nil {
		t.Fatalf("%v: %s", err, query.SQL)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan += step + "\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}
