package dialect

import "strings"

// SettleLanes is one statement. A takeover locks the lane FOR UPDATE, and so
// doesn't get a lane in which a settle is under way; a settle that waited for
// a takeover finds the new fence. Renewals change no key and pass.
func (postgres) SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle {
	m := &postgresMoves{table: table, has: kindsOf(settlements)}
	m.with("held", "SELECT l.lane, l.fence FROM "+table.Lanes()+" AS l JOIN "+postgresLeased(&m.args, settlements)+
		" ON l.lane = s.lane AND l.fence = s.fence AND l.owner = "+m.args.text(relay)+" ORDER BY l.lane FOR KEY SHARE OF l")
	if postgresAllDone(settlements) {
		m.finishAll(relay, keep, settlements)
	} else {
		m.with("given", postgresShown(&m.args, settlements, postgresFence)+" JOIN held USING (lane, fence)")
		m.move(relay, keep)
	}
	return Settle{Facts: m.facts("UNION ALL SELECT 'lane', lane, fence FROM held")}
}

// SettleRows is the same with the claim's token in the place of the lease. Rows
// that are all done are deleted at once; one that was found and not deleted has
// another claim, or had.
func (postgres) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	m := &postgresMoves{table: table, has: kindsOf(settlements), located: true}
	fenced := "(SELECT count(*) FROM found WHERE claim_token IS DISTINCT FROM token)"
	if postgresAllDone(settlements) {
		m.finishClaimed(relay, keep, settlements)
		fenced = "(SELECT count(*) FROM found) - (SELECT count(*) FROM hot)"
	} else {
		m.lockClaimed(settlements)
		m.move(relay, keep)
	}
	return Settle{Facts: m.facts("UNION ALL SELECT 'fenced', " + fenced + ", 0")}
}

// lockClaimed locks the rows, so that it knows their tokens; one that another
// transaction has changed since the statement began is counted as it is then,
// and not changed. The conditions of claimed that are always true tell the
// planner that there are few.
func (m *postgresMoves) lockClaimed(settlements []Settlement) {
	m.with("given", postgresShown(&m.args, settlements, postgresToken))
	m.with("found", "SELECT g.*, x.* "+postgresFound(m.table.Hot(), postgresClaimed, postgresMessage, " FOR UPDATE"))
	m.with("claimed", "SELECT * FROM found WHERE claim_token = token AND found_lane = lane AND found_id = id")
}

// postgresLeased are the leases that the settlements show.
func postgresLeased(a *postgresArgs, settlements []Settlement) string {
	var lanes []int
	var fences []int64
	for i, s := range settlements {
		if i == 0 || s.Lane != settlements[i-1].Lane || s.Fence != settlements[i-1].Fence {
			lanes, fences = append(lanes, s.Lane), append(fences, s.Fence)
		}
	}
	return "(SELECT DISTINCT lane, fence FROM unnest(" + a.lanes(lanes) + ", " + a.ids(fences) + ") AS u (lane, fence)) AS s"
}

func postgresFence(c *postgresGivens, settlements []Settlement) {
	c.array("fence", c.args.ids(column(settlements, func(s Settlement) int64 { return s.Fence })))
}

func postgresToken(c *postgresGivens, settlements []Settlement) {
	c.texts("token", column(settlements, func(s Settlement) string { return s.Token }))
}

// postgresShown selects the settlements.
func postgresShown(a *postgresArgs, settlements []Settlement, claim func(*postgresGivens, []Settlement)) string {
	c := &postgresGivens{args: a}
	c.array("id", a.ids(column(settlements, func(s Settlement) int64 { return s.ID })))
	c.array("lane", a.lanes(column(settlements, func(s Settlement) int { return s.Lane })))
	c.array("message_id", a.messageIDs(settlements))
	claim(c, settlements)
	c.texts("state", column(settlements, func(s Settlement) string { return s.State }))
	c.bools("held", column(settlements, func(s Settlement) bool { return s.Held }))
	c.ints("attempts", "integer", column(settlements, func(s Settlement) int64 { return int64(s.Attempts) }))
	c.ints("crashes", "integer", column(settlements, func(s Settlement) int64 { return int64(s.Crashes) }))
	c.ints("delay", "bigint", column(settlements, func(s Settlement) int64 { return s.Delay.Microseconds() }))
	c.texts("error", column(settlements, func(s Settlement) string { return s.Error }))
	c.texts("receipt", column(settlements, func(s Settlement) string { return s.Receipt }))
	return c.sql()
}

// postgresMoves builds the statement of a settle from the changes that its
// settlements need.
type postgresMoves struct {
	table   Table
	args    postgresArgs
	has     kinds
	located bool // the hot rows are in claimed, with their places
	ctes    []string
	counts  []string // of changed rows
}

func (m *postgresMoves) with(name, query string) {
	m.ctes = append(m.ctes, name+" AS MATERIALIZED ("+query+")")
}

// change is a common table expression that changes the rows t as g says, and
// counts them.
func (m *postgresMoves) change(name, statement string) {
	m.ctes = append(m.ctes, name+" AS ("+statement+")")
	m.counts = append(m.counts, "(SELECT count(*) FROM "+name+")")
}

func (m *postgresMoves) facts(more string) Query {
	return m.args.query(
		"WITH "+strings.Join(m.ctes, ",\n"),
		"SELECT 'changed', "+strings.Join(m.counts, " + ")+", 0::bigint",
		"UNION ALL SELECT 'xid', "+postgresXID+", 0",
		more,
		"WHERE "+m.args.planNow())
}

// What a settlement changes in a row t, as g says.
const (
	postgresPlace     = "t.ctid = g.place"
	postgresError     = "COALESCE(NULLIF(g.error, ''), t.last_error)"
	postgresAvailable = "CASE WHEN g.state = 'retry' THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END"
)

func (m *postgresMoves) move(relay string, keep bool) {
	if m.has.hotDone || m.has.hotHeld {
		m.take("hot", m.table.Hot(), "NOT g.held AND g.state <> 'pending'", keep || m.has.hotHeld)
	}
	if m.has.heldDone {
		m.take("back", m.table.Held(), "g.held AND g.state = 'done' AND t.state <> 'error'", keep)
	}
	if keep {
		m.finish(relay)
	}
	if m.has.hotHeld {
		m.ctes = append(m.ctes, "moved AS (INSERT INTO "+m.table.Held()+" ("+kept+", "+changing+", state)"+
			"\n    SELECT "+kept+", "+changing+", state FROM hot WHERE state <> 'done')")
	}
	if m.has.heldHeld {
		m.change("stayed", "UPDATE "+m.table.Held()+" AS t SET state = g.state, attempts = g.attempts, crashes = g.crashes,"+
			" available_at = "+postgresAvailable+", last_error = "+postgresError+
			"\n    FROM "+m.found(m.table.Held())+" AS g WHERE "+postgresPlace+" AND g.held AND g.state <> 'done' AND t.state <> 'error' RETURNING t.id")
	}
	if m.has.freed {
		m.change("freed", "UPDATE "+m.table.Hot()+" AS t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL,"+
			" attempts = g.attempts, crashes = g.crashes, last_error = "+postgresError+
			"\n    FROM claimed AS g WHERE "+postgresPlace+" AND g.state = 'pending' RETURNING t.id")
	}
}

// take deletes rows, and returns them with their changes where they go on.
func (m *postgresMoves) take(name, from, where string, goOn bool) {
	returned := "t.id"
	if goOn {
		returned = prefixed(kept, "t.") + ", g.attempts, g.crashes, " + postgresAvailable + " AS available_at, " +
			postgresError + " AS last_error, g.state, g.receipt"
	}
	m.change(name, "DELETE FROM "+from+" AS t USING "+m.found(from)+" AS g WHERE "+postgresPlace+" AND "+where+
		"\n    RETURNING "+returned)
}

func (m *postgresMoves) found(from string) string {
	if m.located && from == m.table.Hot() {
		return "claimed"
	}
	return "(SELECT g.*, x.place " + postgresFound(from, "h.ctid AS place", postgresMessage, "") + ")"
}

func (m *postgresMoves) finish(relay string) {
	var from []string
	if m.has.hotDone {
		from = append(from, "SELECT * FROM hot WHERE state = 'done'")
	}
	if m.has.heldDone {
		from = append(from, "SELECT * FROM back")
	}
	if len(from) > 0 {
		m.ctes = append(m.ctes, "done AS (INSERT INTO "+m.table.Done()+" ("+kept+", "+changing+", finished_at, receipt, relay)"+
			"\n    SELECT "+kept+", "+changing+", now(), NULLIF(receipt, ''), "+m.args.text(relay)+
			" FROM ("+strings.Join(from, " UNION ALL ")+") AS d)")
	}
}

// Purge goes on from where the one before ended: entries of deleted rows stay in
// the index for as long as a transaction may still see them, and each purge from
// the index's beginning would pass over all of them.
func (postgres) Purge(table Table, purge Purge) []Write {
	var a postgresArgs
	until, since := "now() - "+a.interval(purge.Retention), "'-infinity'::timestamptz"
	if !purge.Since.IsZero() {
		since = a.timestamp(purge.Since)
	}
	limit := a.int(purge.Limit)
	return []Write{{Tells: true, Query: a.query(
		"WITH old AS MATERIALIZED (",
		"    SELECT "+postgresPicked+" FROM "+table.Done()+" WHERE finished_at < "+until,
		"        AND finished_at >= "+timeBoundBy("(SELECT "+since+")", "(SELECT now()::text)")+" AND "+a.planNow(),
		"    ORDER BY finished_at LIMIT "+limit+" FOR UPDATE SKIP LOCKED),",
		"gone AS (DELETE FROM "+table.Done()+" AS t USING old AS g WHERE "+postgresPickedRow+" RETURNING t.finished_at)",
		"SELECT count(*), CASE WHEN count(*) < "+limit+" THEN "+until+" ELSE max(finished_at) END FROM gone")}}
}
