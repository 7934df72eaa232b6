package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// No statement reads a whole table or sorts rows, so it locks only its own rows. This holds without
// statistics, with statistics of empty tables, and with current ones.
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
			plans := mysqlPlans{table}
			plans.want(t, "new tables")
			plans.analyze(t)
			plans.want(t, "statistics of empty tables")
			exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('t', 'k1'), ('t', 'k2'), ('t', 'k3')")
			plans.analyze(t)
			plans.want(t, "a few rows")
			exec(t, table.DB, "INSERT INTO outbox (topic, message_key) SELECT 't', concat('k', a.slot) FROM outbox_key_locks AS a, (SELECT slot FROM outbox_key_locks LIMIT 20) AS b")
			plans.want(t, "old statistics")
			plans.analyze(t)
			plans.want(t, "current statistics")
		})
	}
}

type mysqlPlans struct {
	table
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

// statements returns the statements that lock, change or often read rows of tables that may be large.
func (p mysqlPlans) statements(t *testing.T) map[string]backend.Query {
	ctx := t.Context()
	statements, _ := hotStatements(t, p.table, false)
	byRows, _ := hotStatements(t, p.table, true)
	for what, query := range byRows {
		statements[what] = query
	}
	statements["blocked among"] = p.table.open(t).BackendOn(nil).BlockedAmong([]storage.LaneKey{{Lane: 1, Key: "k1"}, {Lane: 2, Key: "k2"}, {Lane: 1, Key: "k3"}})
	for what, do := range map[string]func(backend.Backend){
		"settle":         func(b backend.Backend) { _, _ = b.Settle(ctx, nil, "r", true, thirds(500, "", true)) },
		"settle by rows": func(b backend.Backend) { _, _ = b.Settle(ctx, nil, "r", true, thirds(500, "t", true)) },
		"purge":          func(b backend.Backend) { _, _, _ = b.Purge(ctx, 0, 100, time.Time{}) },
		"reclaim":        func(b backend.Backend) { _, _ = b.Reclaim(ctx, 100) },
		"discard": func(b backend.Backend) {
			_, _ = b.ChangeParked(ctx, backend.Filter{Filter: storage.Filter{Limit: 10}}, backend.DiscardAtOnce)
		},
	} {
		queries := asked(t, p.table, everything, do)
		if len(queries) == 0 {
			t.Fatalf("%s runs no statement", what)
		}
		for i, query := range queries {
			statements[fmt.Sprintf("%s, %d", what, i)] = query
		}
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
	for what, query := range p.statements(t) {
		for _, line := range p.explain(t, conn, query) {
			whole := line["type"] == "ALL" || line["type"] == "index" && line["key"] == "PRIMARY"
			small := line["table"] == "g" || strings.HasPrefix(line["table"], "<") || strings.HasPrefix(line["table"], "outbox_lane") || line["table"] == "outbox_relays"
			if line["table"] != "" && !small && (whole || strings.Contains(line["extra"], "filesort")) {
				t.Errorf("%s, %s: %v\n%.300s", when, what, line, query.SQL)
			}
		}
	}
}

func (p mysqlPlans) explain(t *testing.T, conn *sql.Conn, query backend.Query) (lines []map[string]string) {
	t.Helper()
	explain := "EXPLAIN "
	if p.Kind == testdb.MySQL {
		explain = "EXPLAIN FORMAT=TRADITIONAL "
	}
	statement := strings.TrimPrefix(query.SQL, "SET STATEMENT check_constraint_checks = 0 FOR\n")
	if into, selecting, found := strings.Cut(statement, "\nSELECT"); found && (strings.HasPrefix(into, "INSERT") || strings.HasPrefix(into, "REPLACE")) {
		statement = "SELECT" + selecting // MariaDB 10.5 doesn't explain the whole statement
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
