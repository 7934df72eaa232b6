package sqlstore_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// mysqlReads are the statements that a relay reads by, again and again.
func mysqlReads(d dialect.Dialect) map[string]dialect.Query {
	var positions []dialect.Position
	var lanes []int
	for lane := range 64 {
		positions, lanes = append(positions, dialect.Position{Lane: lane, After: 7, Until: 1 << 40}), append(lanes, lane)
	}
	var table dialect.Table
	return map[string]dialect.Query{
		"read":       d.Read(table, dialect.Read{Positions: positions, Limit: 2000, Share: 31}),
		"read a key": d.Read(table, dialect.Read{Positions: []dialect.Position{{Lane: 1, Until: 1 << 40, Key: "k1"}}, Limit: 5}),
		"candidates": d.Candidates(table, positions, 10_000),
		"one lane":   d.Candidates(table, positions[:1], 10_000),
		"pick":       d.Pick(table, []int{1, 2, 1}, []int64{3, 4, 5}),
		"due":        d.Due(table, lanes, dialect.After{At: time.Now(), ID: 5}, 500, 0),
		"held keys":  d.HeldKeys(table, lanes, 500),
	}
}

// No read scans or sorts a table, whatever the server knows of it: nothing, what
// was true while it was empty, or the truth.
func TestMySQLReadPlans(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		m.checkReadPlans(t, "empty")
		exec(t, m.DB, "ANALYZE TABLE outbox, outbox_held")
		m.checkReadPlans(t, "analysed when empty")
		const many = " FROM information_schema.collations AS a, information_schema.collations AS b LIMIT 20000"
		exec(t, m.DB, "INSERT INTO outbox (topic, message_key) SELECT 't', CONCAT('k', FLOOR(RAND() * 99))"+many)
		exec(t, m.DB, "INSERT INTO outbox_held (id, lane, state, message_id, topic, priority, attempts, crashes, created_at)"+
			" SELECT id, lane, ELT(1 + id % 3, 'retry', 'scheduled', 'error'), message_id, topic, priority, attempts, crashes, created_at FROM outbox")
		m.checkReadPlans(t, "with many rows")
		exec(t, m.DB, "ANALYZE TABLE outbox, outbox_held")
		m.checkReadPlans(t, "analysed with many rows")
	})
}

func (m mysqlTable) checkReadPlans(t *testing.T, when string) {
	t.Helper()
	explain := "EXPLAIN "
	if m.dialect.Name() == "mysql" {
		explain += "FORMAT=TRADITIONAL "
	}
	for what, query := range mysqlReads(m.dialect) {
		for _, line := range lines(t, m.DB, explain+query.SQL, query.Args...) {
			fields := strings.Fields(line)
			access := strings.ReplaceAll(line, "Using index condition", "")
			if strings.Contains(access, " ALL ") || strings.Contains(access, " index ") || strings.Contains(line, "Using filesort") || strings.Contains(line, "Using temporary") {
				t.Errorf("%s, %s: %s", what, when, strings.Join(fields, " "))
			}
		}
	}
}

// lines are what a statement selects, with blanks between the columns.
func lines(t *testing.T, db *sql.DB, statement string, args ...any) (all []string) {
	t.Helper()
	rows, err := db.Query(statement, args...)
	if err != nil {
		t.Fatalf("%.200s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	names, _ := rows.Columns()
	for rows.Next() {
		values, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		line := " "
		for _, value := range values {
			line += value.String + " "
		}
		all = append(all, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
