package sqlstore_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// statementsOf returns the last statement that the backend runs for each of the calls.
func statementsOf(t *testing.T, table table, things map[string]func(backend.Backend)) map[string]backend.Query {
	statements := map[string]backend.Query{}
	for what, do := range things {
		statements[what] = askedLast(t, table, do)
	}
	return statements
}

// hotStatements returns the statements that use the table outbox and must never read all of it. For statements whose plan the
// server may keep, the second map has the form in which the plan is kept.
func hotStatements(t *testing.T, table table, rows bool) (statements, kept map[string]backend.Query) {
	kept = map[string]backend.Query{}
	keeps := func(all map[string]func(backend.Backend)) map[string]backend.Query {
		statements := map[string]backend.Query{}
		for what, do := range all {
			statements[what], kept[what] = askedAfterALongOne(t, table, do), askedLast(t, table, do)
		}
		return statements
	}
	ctx := t.Context()
	var positions []storage.Position
	var settlements, many []storage.Settlement
	for lane := range 64 {
		positions = append(positions, storage.Position{Lane: lane, Until: 1 << 62})
		settlements = append(settlements, storage.Settlement{ID: int64(lane), MessageID: aMessage, Lane: lane, Fence: 1, State: storage.StateDone})
	}
	for lane := range 64 {
		for i := range 40 {
			many = append(many, storage.Settlement{ID: int64(64*i + lane), MessageID: aMessage, Lane: lane, Fence: 1, State: storage.StateDone})
		}
	}
	read := func(page backend.Read) func(backend.Backend) {
		return func(b backend.Backend) { _, _ = b.Read(ctx, page, nil) }
	}
	settle := func(keep bool, settlements []storage.Settlement) func(backend.Backend) {
		return func(b backend.Backend) { _, _ = b.Settle(ctx, nil, "a", keep, settlements) }
	}
	if !rows {
		statements = keeps(map[string]func(backend.Backend){
			"read":       read(backend.Read{Positions: positions, Limit: 500, Share: 20}),
			"read bytes": read(backend.Read{Positions: positions, Limit: 500, Share: 20, MaxBytes: 1 << 20}),
			"read a key": read(backend.Read{Positions: []storage.Position{{Lane: 1, Until: 1 << 62, Key: "k1"}}, Limit: 5}),
		})
		maps.Copy(statements, statementsOf(t, table, map[string]func(backend.Backend){
			"settle": settle(true, settlements), "settle 40": settle(true, many),
			"delete": settle(false, settlements), "delete 40": settle(false, many),
		}))
		b, places := table.open(t).BackendOn(nil), []storage.RowID{{Lane: 1, ID: 3}, {Lane: 2, ID: 4}}
		statements["candidates"], statements["pick"], statements["pick held"] = b.Candidates(positions, nil, 500), b.Pick(places, false), b.Pick(places, true)
		return statements, kept
	}
	claimed := slices.Clone(many)
	for i := range claimed {
		claimed[i].Fence, claimed[i].Token = 0, "token"
	}
	retried := append(slices.Clone(claimed[:100]), storage.Settlement{ID: 1, MessageID: aMessage, Lane: 1, Token: "token", State: storage.StateRetry})
	claim := func(request storage.ClaimRequest) func(backend.Backend) {
		request.Limit = 10
		return func(b backend.Backend) { _, _ = b.Claim(ctx, request) }
	}
	statements = statementsOf(t, table, map[string]func(backend.Backend){
		"oldest": claim(storage.ClaimRequest{Pick: storage.Oldest}), "newest": claim(storage.ClaimRequest{Pick: storage.Newest}),
		"priority": claim(storage.ClaimRequest{Pick: storage.Priority}), "topics": claim(storage.ClaimRequest{Topics: []string{"t"}, Except: []string{"u"}}),
		"settle": settle(true, claimed), "delete": settle(false, claimed), "settle retried": settle(true, retried),
		"extend": func(b backend.Backend) { _, _ = b.Extend(ctx, "token", []int64{1, 2}, 0) },
	})
	queries := table.open(t).BackendOn(nil).Capabilities().Queries
	statements["free"], statements["ended"] = queries.FreeRow, queries.EndedClaim
	if found := reclaims(t, table); len(found) > 0 {
		statements["reclaim"] = found[0]
	}
	return statements, kept
}

// reclaims returns PostgreSQL's statement that frees rows of expired claims, and the one that moves deferred
// rows back.
func reclaims(t *testing.T, table table) (statements []backend.Query) {
	for _, query := range asked(t, table, nil, func(b backend.Backend) { _, _ = b.Reclaim(t.Context(), 10) }) {
		if strings.HasPrefix(query.SQL, "WITH") {
			statements = append(statements, query)
		}
	}
	return statements
}

// heldStatements returns the statements that read outbox_held.
func heldStatements(t *testing.T, table table) map[string]backend.Query {
	lanes := make([]int, 64)
	var keys []storage.LaneKey
	for lane := range lanes {
		lanes[lane] = lane
		keys = append(keys, storage.LaneKey{Lane: lane, Key: fmt.Sprint("k", lane)})
	}
	b := table.open(t).BackendOn(nil)
	return map[string]backend.Query{
		"due": b.Due(lanes, storage.DueCursor{}, 500, 1<<20), "keys": b.BlockedKeys(lanes, 10_001), "among": b.BlockedAmong(keys),
		"return": reclaims(t, table)[1],
	}
}

var plannedRows = flag.Int("planned-rows", 150_000, "number of rows for which the statements are planned; the full test has 700,000")

// No statement scans or sorts the whole table outbox when it has many rows. This holds without statistics, with
// statistics of the empty table, and with current ones. The statements are prepared and run while the table is
// empty, as by a driver that caches statements, and then their plans are checked on the full table.
func TestPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("writes many rows")
	}
	t.Parallel()
	for _, target := range throughPgx() {
		for _, rows := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by rows %t", target.Name, rows), func(t *testing.T) {
				t.Parallel()
				checkPlans(t, open(t, target), rows)
			})
		}
	}
}

// plansOf prepares the statements on the table outbox. Autovacuum is off, so that the result doesn't depend on
// its timing. The server keeps generic plans for the statements in kept, even if by default it would
// plan some of them each time.
func plansOf(t *testing.T, table table, rows bool) (plans, kept prepared) {
	if rows {
		migrate(t, table.DB, table.dialect, migrations.Options{Claim: "rows"})
	}
	statements, keeps := hotStatements(t, table, rows)
	plans, kept = preparedOn(t, table, "outbox", statements), preparedOn(t, table, "outbox", keeps)
	kept.do(t, "SET plan_cache_mode = force_generic_plan")
	return plans, kept
}

func preparedOn(t *testing.T, table table, name string, statements map[string]backend.Query) prepared {
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
	plans, kept := plansOf(t, table, rows)
	plans.runAll(t)
	kept.runAll(t)
	kept.wantIndexes(t, "no statistics")
	exec(t, table.DB, "VACUUM ANALYZE outbox")
	plans.runAll(t) // the table has no page yet, so kept plans would read all of it; the backend has such statements planned again
	fill(t, table.DB, *plannedRows)
	plans.wantIndexes(t, "statistics of the empty table")
	kept.wantIndexes(t, "statistics of the empty table")
	exec(t, table.DB, "VACUUM ANALYZE outbox")
	plans.wantIndexes(t, "with statistics")
	kept.wantIndexes(t, "with statistics")
	exec(t, table.DB, "DELETE FROM outbox")
	exec(t, table.DB, "VACUUM ANALYZE outbox") // keeps the pages
	plans.runAll(t)
	kept.runAll(t)
	fill(t, table.DB, *plannedRows/2)
	plans.wantIndexes(t, "statistics of the emptied table")
	kept.wantIndexes(t, "statistics of the emptied table")
}

func fill(t *testing.T, db *sql.DB, count int) {
	t.Helper()
	exec(t, db, "INSERT INTO outbox (topic, message_key, payload_text) SELECT 't', 'k' || i % 5000, 'some payload' FROM generate_series(1, $1::int) AS i", count)
}

func fillHeld(t *testing.T, db *sql.DB, count int) {
	t.Helper()
	exec(t, db, "INSERT INTO outbox_held (id, lane, state, message_id, topic, message_key, payload_text, priority, attempts, crashes, available_at, created_at, holds)"+
		" SELECT i + (SELECT COALESCE(max(id), 0) FROM outbox_held), i % 64, (ARRAY['retry', 'scheduled', 'scheduled', 'error', 'error'])[1 + i % 5], gen_random_uuid(), 't', 'k' || i % 5000, 'some payload', 0, 0, 0, now(), now(), (i % 5 = 3)::int"+
		" FROM generate_series(1, $1::int) AS i", count)
}

// prepared has the prepared statements of a session.
type prepared struct {
	conn       *sql.Conn
	statements map[string]backend.Query
	names      map[string]string
}

func prepare(t *testing.T, conn *sql.Conn, statements map[string]backend.Query) prepared {
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

// runAll runs each statement 8 times. After 5 executions PostgreSQL may choose a generic plan.
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
			t.Errorf("%s, %s: the cost is above 100,000, from which the server compiles the plan (JIT) each time\n%s", what, when, plan)
		}
		plan = boundedBitmap.ReplaceAllString(plan, "looked up")
		for line := range strings.Lines(plan) {
			if wholeTable.MatchString(line) || wholeIndex.MatchString(plan) || strings.Contains(line, "Bitmap") || sortsRows(line) {
				t.Errorf("%s, %s: %s\n%s", what, when, line, plan)
			}
		}
	}
}

// costs matches the integer part of a plan's total cost.
var costs = regexp.MustCompile(`cost=\d+\.\d+\.\.(\d+)`)

// boundedBitmap matches a bitmap lookup of whole keys, of one lane's retries, or of the rows between the first
// and the last of a list of ids. Such a lookup doesn't read the whole table.
var boundedBitmap = regexp.MustCompile(`(?m)Bitmap.*\n(?:.*\n){1,2} *-> *Bitmap Index Scan .*\n` +
	` *Index Cond: (?:\(\(lane \+ 0\) = l\.lane\)$|\(\(\(lane \+ 0\) = k\.lane\) AND \(message_key = k\.key\)\)$|\(\(lane = \w\.lane\) AND \(id (?:= \w\.id\)\)|>= \(g\.ids\)\[1\]\) AND \(id <= \(g\.ids\)\[cardinality\(g\.ids\)\]\)))`)

// wholeTable matches a scan of one of the tables that may be large.
var wholeTable = regexp.MustCompile(`Seq Scan on outbox(_held|_done)? `)

// wholeIndex matches a scan of an index without a condition.
var wholeIndex = regexp.MustCompile(`Scan using outbox_pkey on outbox .*\n(.*Filter|.*->|$)`)

// sortsRows reports whether a plan's line sorts more than the 64 lanes or the retries of one key.
func sortsRows(line string) bool {
	return strings.Contains(line, "Sort Key") && !strings.Contains(line, "l.lane") && !strings.Contains(line, "h.topic")
}

// aMessage is a message id.
const aMessage = "0197a3b4-0000-7abc-8def-0123456789ab"
