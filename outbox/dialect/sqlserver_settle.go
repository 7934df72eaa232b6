package dialect

import (
	"strings"
)

// SettleLanes is one transaction in one batch. A takeover asks for the lane's
// entry in the index of fences exclusively, and so doesn't get a lane in which a
// settle is under way; a settle that waited for a takeover doesn't find its fence
// there any more. Renewals change no fence and pass.
func (sqlserver) SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle {
	m := newSQLServerMoves(table, settlements, "bigint", "", func(s Settlement) any { return s.Fence })
	m.add(
		"DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);",
		sqlserverBegin,
		"INSERT INTO @held (lane, fence)",
		"SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s",
		"INNER JOIN "+table.Lanes()+" AS l WITH (INDEX("+table.IndexName("lanes_fence")+"), FORCESEEK, REPEATABLEREAD, ROWLOCK)",
		"    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = "+m.args.add(relay),
		"OPTION (FORCE ORDER, LOOP JOIN);",
		"DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);")
	m.move(relay, keep)
	return m.settle("UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held")
}

// SettleRows is the same with the claim's token in the place of the lease. It
// locks all the rows first, so that those that it counts are those that it passes
// over: where a row doesn't pass a filter, READ COMMITTED lets go of its lock again,
// so there is none. It keeps the way of claiming as it is, too: who changes that
// passes over rows that are locked, and a token would outlive it.
func (sqlserver) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	m := newSQLServerMoves(table, settlements, "nvarchar(255)", " "+sqlserverBinary, func(s Settlement) any { return s.Token })
	m.token = " AND t.claim_token = g.claim"
	m.add(
		"DECLARE @fenced int;",
		sqlserverBegin,
		"DELETE g FROM @given AS g WHERE NOT "+sqlserverByRows(table)+";",
		"SET @fenced = @@ROWCOUNT;",
		"SELECT @fenced = @fenced + COALESCE(SUM(CASE WHEN t.claim_token = g.claim THEN 0 ELSE 1 END), 0) FROM @given AS g",
		"INNER JOIN "+table.Hot()+" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON "+sqlserverRow,
		"OPTION (FORCE ORDER, LOOP JOIN);")
	m.move(relay, keep)
	return m.settle("UNION ALL SELECT N'fenced', CONVERT(bigint, @fenced), CONVERT(bigint, 0)")
}

// sqlserverMoves builds the batch of a settle from the changes that its
// settlements need.
type sqlserverMoves struct {
	table Table
	args  sqlserverArgs
	has   kinds
	token string // a further condition of hot rows
	lines []string
}

// newSQLServerMoves reads the settlements into a table, each with what it shows:
// a claim of that type.
func newSQLServerMoves(table Table, settlements []Settlement, claim, collate string, claimOf func(Settlement) any) *sqlserverMoves {
	m := &sqlserverMoves{table: table, has: kindsOf(settlements)}
	items := column(settlements, func(s Settlement) []any {
		return []any{s.Lane, s.ID, claimOf(s), s.State, s.Held, s.Attempts, s.Crashes, sqlserverMillis(s.Delay), nullable(s.Error), nullable(s.Receipt), s.MessageID}
	})
	const columns = "lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id"
	m.add(
		sqlserverPrepare,
		"DECLARE @changed bigint = 0;",
		"DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim "+claim+collate+" NOT NULL, state nvarchar(10) "+sqlserverBinary+" NOT NULL, held bit NOT NULL,",
		"    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) "+sqlserverBinary+", receipt nvarchar(max) "+sqlserverBinary+", message_id uniqueidentifier NOT NULL, INDEX place CLUSTERED (lane, id));",
		"INSERT INTO @given ("+columns+")",
		"SELECT "+columns+" FROM OPENJSON("+sqlserverList(&m.args, items)+") WITH (lane smallint '$[0]', id bigint '$[1]', claim "+claim+" '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',",
		"    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]');")
	return m
}

// sqlserverRow finds the row t that g is about.
const sqlserverRow = "t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id"

func (m *sqlserverMoves) add(lines ...string) { m.lines = append(m.lines, lines...) }

// settle tells the facts once everything is committed.
func (m *sqlserverMoves) settle(more string) Settle {
	m.add(
		sqlserverCommit,
		"SELECT N'changed', @changed, CONVERT(bigint, 0)",
		more)
	return Settle{Facts: m.args.query(m.lines...)}
}

// What a settlement changes in a row t, as g says.
var (
	sqlserverError     = "COALESCE(g.error, t.last_error)"
	sqlserverAvailable = "CASE WHEN g.state = N'retry' THEN " + sqlserverIn("g.delay") + " ELSE t.available_at END"
)

func (m *sqlserverMoves) move(relay string, keep bool) {
	const hot, held = "g.held = 0", "g.held = 1 AND t.state <> N'error'"
	if m.has.hotDone {
		m.finish(m.table.Hot(), hot+m.token, relay, keep)
	}
	if m.has.heldDone {
		m.finish(m.table.Held(), held, relay, keep)
	}
	if m.has.hotHeld {
		m.take(m.table.Hot(), "g.state NOT IN (N'done', N'pending') AND "+hot+m.token,
			"OUTPUT "+sqlserverTaken+", "+strings.ReplaceAll(sqlserverAvailable, "t.", "deleted.")+", "+sqlserverTakenError+", g.state",
			"INTO "+m.table.Held()+" ("+kept+", "+changing+", state)")
	}
	if m.has.heldHeld {
		m.change(m.table.Held(), "state = g.state, attempts = g.attempts, crashes = g.crashes, available_at = "+sqlserverAvailable+", last_error = "+sqlserverError,
			"g.state <> N'done' AND "+held)
	}
	if m.has.freed {
		m.change(m.table.Hot(), "claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = "+sqlserverError,
			"g.state = N'pending' AND "+hot+m.token)
	}
}

// What a row that is deleted takes with it, in the order of kept and changing.
var (
	sqlserverTaken      = prefixed(kept, "deleted.") + ", g.attempts, g.crashes"
	sqlserverTakenError = strings.ReplaceAll(sqlserverError, "t.", "deleted.")
)

func (m *sqlserverMoves) finish(from, where, relay string, keep bool) {
	where = "g.state = N'done' AND " + where
	if !keep {
		m.take(from, where)
		return
	}
	m.take(from, where,
		"OUTPUT "+sqlserverTaken+", deleted.available_at, "+sqlserverTakenError+", SYSUTCDATETIME(), g.receipt, "+m.args.add(relay),
		"INTO "+m.table.Done()+" ("+kept+", "+changing+", finished_at, receipt, relay)")
}

// take deletes rows, one by its key after the other. A scan would wait for open
// writers.
func (m *sqlserverMoves) take(from, where string, output ...string) {
	m.add("DELETE t")
	m.add(output...)
	m.found(from, where)
}

func (m *sqlserverMoves) change(table, set, where string) {
	m.add("UPDATE t SET " + set)
	m.found(table, where)
}

func (m *sqlserverMoves) found(table, where string) {
	m.add(
		"FROM @given AS g INNER JOIN "+table+" AS t WITH (FORCESEEK, ROWLOCK) ON "+sqlserverRow,
		"WHERE "+where,
		"OPTION (FORCE ORDER, LOOP JOIN);",
		"SET @changed = @changed + @@ROWCOUNT;")
}

func (sqlserver) Purge(table Table, purge Purge) []Write {
	var a sqlserverArgs
	return []Write{{Counts: true, Query: a.write(
		"WITH old AS (",
		"    SELECT TOP ("+a.int(purge.Limit)+") * FROM "+table.Done()+" WITH (INDEX("+table.IndexName("done_finished")+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE finished_at < "+a.ago(purge.Retention)+" ORDER BY finished_at)",
		"DELETE FROM old")}}
}
