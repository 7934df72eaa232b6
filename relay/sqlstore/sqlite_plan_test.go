package sqlstore_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// What settles rows finds each by its id, whatever the statistics say. With those
// of an empty table of held rows, an index of some of them was walked instead.
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
	for what, query := range sqliteSettles(table.dialect) {
		plan := sqlitePlan(t, table, query)
		byKey := strings.Contains(plan, "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)") || strings.Contains(plan, "SEARCH t USING PRIMARY KEY (id=?")
		if !byKey || strings.Contains(plan, "SCAN t") {
			t.Errorf("%s, %s: %s%s", when, what, plan, query.SQL)
		}
	}
}

// sqliteSettles move rows with equal values, and with others.
func sqliteSettles(d dialect.Dialect) map[string]dialect.Query {
	statements := map[string]dialect.Query{}
	for _, receipts := range []bool{false, true} {
		var rows []dialect.Settlement
		for i := range 500 {
			s := dialect.Settlement{ID: int64(i + 1), MessageID: aMessage, Lane: i / 8, Fence: 1, State: []string{"done", "retry", "done"}[i%3], Held: i%3 == 2}
			if receipts {
				s.Receipt = strconv.Itoa(i)
			}
			rows = append(rows, s)
		}
		add := func(what string, writes []dialect.Write) {
			for i, write := range writes {
				statements[what+strconv.Itoa(i)+strconv.FormatBool(receipts)] = write.Query
			}
		}
		add("lanes", d.SettleLanes(dialect.Table{}, "r", true, rows).Then(func(int, int64) bool { return true }))
		for i := range rows {
			rows[i].Token = "token"
		}
		byRows := d.SettleRows(dialect.Table{}, "r", true, rows)
		add("rows", byRows.Writes)
		statements["facts"] = byRows.Facts
		statements["pick held"] = d.PickHeld(dialect.Table{}, []int{1, 2}, []int64{3, 4})
	}
	return statements
}

func sqlitePlan(t *testing.T, table table, query dialect.Query) (plan string) {
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
