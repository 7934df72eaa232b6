package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The statements that touch the hot table and must never read all of it.
func hotStatements(d dialect.Dialect, rows bool) map[string]dialect.Query {
	var positions []dialect.Position
	var settlements, many []dialect.Settlement
	for lane := range 64 {
		positions = append(positions, dialect.Position{Lane: lane, Until: 1 << 62})
		settlements = append(settlements, dialect.Settlement{ID: int64(lane), MessageID: aMessage, Lane: lane, Fence: 1, State: "done"})
		for i := range 40 {
			many = append(many, dialect.Settlement{ID: int64(64*i + lane), MessageID: aMessage, Lane: lane, Fence: 1, State: "done"})
		}
	}
	var table dialect.Table
	statements := map[string]dialect.Query{
		"read":       d.Read(table, dialect.Read{Positions: positions, Limit: 500, Share: 20}),
		"read bytes": d.Read(table, dialect.Read{Positions: positions, Limit: 500, Share: 20, MaxBytes: 1 << 20}),
		"read a key": d.Read(table, dialect.Read{Positions: []dialect.Position{{Lane: 1, Until: 1 << 62, Key: "k1"}}, Limit: 5}),
		"candidates": d.Candidates(table, positions, nil, 500),
		"pick":       d.Pick(table, []int{1, 2}, []int64{3, 4}),
		"pick held":  d.PickHeld(table, []int{1, 2}, []int64{3, 4}),
		"settle":     d.SettleLanes(table, "a", true, settlements).Facts,
		"settle 40":  d.SettleLanes(table, "a", true, many).Facts,
		"delete":     d.SettleLanes(table, "a", false, settlements).Facts,
		"delete 40":  d.SettleLanes(table, "a", false, many).Facts,
	}
	if !rows {
		return statements
	}
	claimed := slices.Clone(many)
	for i := range claimed {
		claimed[i].Fence, claimed[i].Token = 0, "token"
	}
	retried := append(slices.Clone(claimed[:100]), dialect.Settlement{ID: 1, MessageID: aMessage, Lane: 1, Token: "token", State: "retry"})
	claim := func(pick string) dialect.Query { return d.Claim(table, dialect.Claim{Limit: 10, Pick: pick}).Ask }
	return map[string]dialect.Query{
		"oldest": claim("oldest"), "newest": claim("newest"), "priority": claim("priority"),
		"peek":   d.(dialect.ClaimPeeking).PeekFree(table),
		"ended":  d.(dialect.ClaimPeeking).PeekEnded(table),
		"topics": d.Claim(table, dialect.Claim{Limit: 10, Topics: []string{"t"}, Except: []string{"u"}}).Ask,
		"settle": d.SettleRows(table, "a", true, claimed).Facts, "delete": d.SettleRows(table, "a", false, claimed).Facts,
		"settle retried": d.SettleRows(table, "a", true, retried).Facts,
		"extend":         d.Extend(table, "token", []int64{1, 2}, 0).Ask, "free": d.FreeEnded(table, 10)[0].Query,
	}
}

// heldStatements touch the held rows.
func heldStatements(d dialect.Dialect) map[string]dialect.Query {
	var table dialect.Table
	lanes := make([]int, 64)
	for lane := range lanes {
		lanes[lane] = lane
	}
	return map[string]dialect.Query{
		"due":       d.Due(table, lanes, dialect.After{}, 500, 0),
		"due bytes": d.Due(table, lanes, dialect.After{}, 500, 1<<20),
		"keys":      d.HeldKeys(table, lanes, 10_001),
		"among":     d.HeldAmong(table, lanes, keysOf(lanes)),
		"return":    d.Return(table, 10)[0].Query,
	}
}

func keysOf(lanes []int) (keys []string) {
	for _, lane := range lanes {
		keys = append(keys, fmt.Sprint("k", lane))
	}
	return keys
}

// Neither a scan nor a sort of the table comes with a million rows, whatever
// the planner knows of them: nothing yet, what was true while the table was
// empty, or the truth. The statements are prepared, and had been run while the
// table was empty, as a driver that caches them does.
func TestPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a million rows")
	}
	t.Parallel()
	for _, target := range postgresTargets() {
		if target.Driver != "pgx" {
			continue
		}
		for _, rows := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by rows %t", target.Name, rows), func(t *testing.T) {
				t.Parallel()
				checkPlans(t, open(t, target), rows)
			})
		}
	}
}

// plansOf prepares the statements on the hot table, which nothing vacuums: it
// would be the test's luck.
func plansOf(t *testing.T, table table, rows bool) prepared {
	if rows {
		migrate(t, table.DB, table.dialect, migrations.Options{Claim: "rows"})
	}
	return preparedOn(t, table, "outbox", hotStatements(table.dialect, rows))
}

func preparedOn(t *testing.T, table table, name string, statements map[string]dialect.Query) prepared {
	t.Helper()
	exec(t, table.DB, "ALTER TABLE "+name+" SET (autovacuum_enabled = off)")
	conn, err := table.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return prepare(t, conn, statements)
}

func checkPlans(t *testing.T, table table, rows bool) {
	plans := plansOf(t, table, rows)
	plans.runAll(t)
	exec(t, table.DB, "VACUUM ANALYZE outbox")
	plans.runAll(t)
	fill(t, table.DB, 700_000)
	plans.wantIndexes(t, "statistics of the empty table")
	exec(t, table.DB, "VACUUM ANALYZE outbox")
	plans.wantIndexes(t, "with statistics")
	exec(t, table.DB, "DELETE FROM outbox")
	exec(t, table.DB, "VACUUM ANALYZE outbox") // keeps the pages
	plans.runAll(t)
	fill(t, table.DB, 300_000)
	plans.wantIndexes(t, "statistics of the emptied table")
}

func fill(t *testing.T, db *sql.DB, count int) {
	t.Helper()
	exec(t, db, "INSERT INTO outbox (topic, message_key, payload_text) SELECT 't', 'k' || i % 5000, 'some payload' FROM generate_series(1, $1::int) AS i", count)
}

func fillHeld(t *testing.T, db *sql.DB, count int) {
	t.Helper()
	exec(t, db, "INSERT INTO outbox_held (id, lane, state, message_id, topic, message_key, payload_text, priority, attempts, crashes, available_at, created_at)"+
		" SELECT i + (SELECT COALESCE(max(id), 0) FROM outbox_held), i % 64, CASE WHEN i % 3 = 0 THEN 'retry' ELSE 'scheduled' END, gen_random_uuid(), 't', 'k' || i % 5000, 'some payload', 0, 0, 0, now(), now()"+
		" FROM generate_series(1, $1::int) AS i", count)
}

// prepared are statements of a session.
type prepared struct {
	conn       *sql.Conn
	statements map[string]dialect.Query
	names      map[string]string
}

func prepare(t *testing.T, conn *sql.Conn, statements map[string]dialect.Query) prepared {
	t.Helper()
	p := prepared{conn, statements, map[string]string{}}
	for what, query := range statements {
		name := fmt.Sprintf("statement_%d", len(p.names))
		p.names[what] = name
		p.do(t, "PREPARE "+name+" AS "+query.SQL)
	}
	return p
}

func (p prepared) do(t *testing.T, statement string) (lines []string) {
	t.Helper()
	rows, err := p.conn.QueryContext(context.Background(), statement)
	if err != nil {
		t.Fatalf("%.200s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		if strings.HasPrefix(statement, "EXPLAIN") {
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%.200s: %v", statement, err)
	}
	return lines
}

func (p prepared) execute(what string) string {
	var args []string
	for _, arg := range p.statements[what].Args {
		args = append(args, "'"+fmt.Sprint(arg)+"'")
	}
	return "EXECUTE " + p.names[what] + " (" + strings.Join(args, ", ") + ")"
}

// runAll runs each statement often enough for the server to plan it once for
// all, if it means to.
func (p prepared) runAll(t *testing.T) {
	t.Helper()
	for what := range p.statements {
		for range 8 {
			p.do(t, p.execute(what))
		}
	}
}

func (p prepared) wantIndexes(t *testing.T, when string) {
	t.Helper()
	for what := range p.statements {
		plan := strings.Join(p.do(t, "EXPLAIN "+p.execute(what)), "\n")
		if dear := costs.FindStringSubmatch(plan); dear == nil || len(dear[1]) > 5 {
			t.Errorf("%s, %s: above a cost of 100,000 the server compiles the plan each time\n%s", what, when, plan)
		}
		plan = boundedBitmap.ReplaceAllString(plan, "looked up")
		for line := range strings.Lines(plan) {
			if wholeTable.MatchString(line) || wholeIndex.MatchString(plan) || strings.Contains(line, "Bitmap") || sortsRows(line) {
				t.Errorf("%s, %s: %s\n%s", what, when, line, plan)
			}
		}
	}
}

// costs finds the integer part of a plan's whole cost.
var costs = regexp.MustCompile(`cost=\d+\.\d+\.\.(\d+)`)

// boundedBitmap finds a lookup of whole keys, of one lane's retries, or of what lies between the first and
// the last of a list of ids: that is not reading the table, in whichever way.
var boundedBitmap = regexp.MustCompile(`(?m)Bitmap.*\n(?:.*\n){1,2} *-> *Bitmap Index Scan .*\n` +
	` *Index Cond: (?:\(\(lane \+ 0\) = l\.lane\)$|\(\(\(lane \+ 0\) = k\.lane\) AND \(message_key = k\.key\)\)$|\(\(lane = \w\.lane\) AND \(id (?:= \w\.id\)\)|>= \(g\.ids\)\[1\]\) AND \(id <= \(g\.ids\)\[cardinality\(g\.ids\)\]\)))`)

// wholeTable finds a scan of one of the tables that may be large.
var wholeTable = regexp.MustCompile(`Seq Scan on outbox(_held|_done)? `)

// wholeIndex finds a scan of an index without a condition.
var wholeIndex = regexp.MustCompile(`Scan using outbox_pkey on outbox .*\n(.*Filter|.*->|$)`)

// sortsRows says that a line of a plan sorts more than the 64 lanes, or the retries
// of one key.
func sortsRows(line string) bool {
	return strings.Contains(line, "Sort Key") && !strings.Contains(line, "l.lane") && !strings.Contains(line, "h.topic")
}

// aMessage is some message's id.
const aMessage = "0197a3b4-0000-7abc-8def-0123456789ab"
