package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// No statement reads or sorts a whole table, or locks more than its rows,
// whatever the server knows of the tables: nothing yet, what was true while they
// were empty, or the truth.
func TestPlansOnMySQL(t *testing.T) {
	t.Parallel()
	for _, target := range allTargets() {
		if !isMySQL(target.Kind) {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			migrate(t, table.DB, table.dialect, migrations.Options{Claim: "rows"})
			plans := mysqlPlans{table, fitted(t, table)}
			plans.want(t, "new tables")
			plans.analyze(t)
			plans.want(t, "statistics of empty tables")
			exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('t', 'k1'), ('t', 'k2'), ('t', 'k3')")
			plans.analyze(t)
			plans.want(t, "a few rows")
			exec(t, table.DB, "INSERT INTO outbox (topic, message_key) SELECT 't', concat('k', a.slot) FROM outbox_key_locks AS a, (SELECT slot FROM outbox_key_locks LIMIT 20) AS b")
			plans.want(t, "statistics that are old")
			plans.analyze(t)
			plans.want(t, "true statistics")
		})
	}
}

type mysqlPlans struct {
	table
	fitted dialect.Dialect
}

func (p mysqlPlans) analyze(t *testing.T) {
	t.Helper()
	for _, name := range []string{"outbox", "outbox_held", "outbox_done", "outbox_lanes", "outbox_lane_locks"} {
		rows, err := p.DB.Query("ANALYZE TABLE " + name)
		if err != nil {
			t.Fatal(err)
		}
		_ = rows.Close()
	}
}

// statements are those that lock or change rows of tables that may be large, and
// those that read them often.
func (p mysqlPlans) statements() map[string]dialect.Query {
	d, table := p.fitted, dialect.Table{}
	statements := hotStatements(d, false)
	for what, query := range hotStatements(d, true) {
		statements[what] = query
	}
	var settlements []dialect.Settlement
	for i := range 500 {
		s := dialect.Settlement{ID: int64(i + 1), MessageID: aMessage, Lane: i / 8, Fence: 1, State: []string{"done", "retry", "done"}[i%3], Held: i%3 == 2, Receipt: fmt.Sprint(i)}
		settlements = append(settlements, s)
	}
	add := func(what string, writes []dialect.Write) {
		for i, write := range writes {
			statements[fmt.Sprintf("%s, %d", what, i)] = write.Query
			if write.After != nil {
				for j, query := range write.After([]int64{65, 130}) {
					statements[fmt.Sprintf("%s, %d after %d", what, j, i)] = query
				}
			}
		}
	}
	add("settle", d.SettleLanes(table, "r", true, settlements).Then(func(int, int64) bool { return true }))
	for i := range settlements {
		settlements[i].Token = "t"
	}
	byRows := d.SettleRows(table, "r", true, settlements)
	statements["settle by rows"] = byRows.Facts
	add("settle by rows", byRows.Writes)
	statements["held among"] = d.HeldAmong(table, []int{1, 2, 1}, []string{"k1", "k2", "k3"})
	add("purge", d.Purge(table, dialect.Purge{Limit: 100}))
	add("free", d.FreeEnded(table, 100))
	add("return", d.Return(table, 100))
	for _, query := range d.Discard(table, dialect.Filter{Limit: 10}).After([]int64{1, 2}) {
		statements["discard"] = query
	}
	return statements
}

func (p mysqlPlans) want(t *testing.T, when string) {
	t.Helper()
	conn, err := p.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for what, query := range p.statements() {
		for _, line := range p.explain(t, conn, query) {
			whole := line["type"] == "ALL" || line["type"] == "index" && line["key"] == "PRIMARY"
			small := line["table"] == "g" || strings.HasPrefix(line["table"], "<") || strings.HasPrefix(line["table"], "outbox_lane")
			if line["table"] != "" && !small && (whole || strings.Contains(line["extra"], "filesort")) {
				t.Errorf("%s, %s: %v\n%.300s", when, what, line, query.SQL)
			}
		}
	}
}

func (p mysqlPlans) explain(t *testing.T, conn *sql.Conn, query dialect.Query) (lines []map[string]string) {
	t.Helper()
	explain := "EXPLAIN "
	if p.Kind == testdb.MySQL {
		explain = "EXPLAIN FORMAT=TRADITIONAL "
	}
	statement := query.SQL
	if into, selecting, found := strings.Cut(statement, "\nSELECT"); found && (strings.HasPrefix(into, "INSERT") || strings.HasPrefix(into, "REPLACE")) {
		statement = "SELECT" + selecting // MariaDB 10.5 doesn't explain the whole
	}
	rows, err := conn.QueryContext(context.Background(), explain+statement, query.Args...)
	if err != nil {
		t.Fatalf("%v: %.500s", err, query.SQL)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		line := map[string]string{}
		for i, column := range columns {
			line[strings.ToLower(column)] = values[i].String
		}
		lines = append(lines, line)
	}
	return lines
}
