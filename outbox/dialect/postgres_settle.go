package dialect

import (
	"strconv"
	"strings"
	"time"
)

// The columns that a row keeps wherever it goes.
const kept = "id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at"

func prefixed(columns, prefix string) string {
	return prefix + strings.ReplaceAll(columns, ", ", ", "+prefix)
}

// SettleLanes is one statement. A takeover locks the lane FOR UPDATE, and so
// doesn't get a lane in which a settle is under way; a settle that waited for
// a takeover finds the new fence. Renewals change no key and pass.
func (postgres) SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle {
	var a postgresArgs
	lanes := a.lanes(column(settlements, func(s Settlement) int { return s.Lane }))
	fences := a.ids(column(settlements, func(s Settlement) int64 { return s.Fence }))
	ctes := []string{
		"shown AS MATERIALIZED (SELECT * FROM unnest(" + lanes + ", " + fences + postgresSettlements(&a, settlements),
		"held AS MATERIALIZED (SELECT l.lane, l.fence FROM " + table.Lanes() + " AS l" +
			" JOIN (SELECT DISTINCT lane, fence FROM shown) AS s ON l.lane = s.lane AND l.fence = s.fence" +
			" ORDER BY l.lane FOR KEY SHARE OF l)",
		"given AS MATERIALIZED (SELECT s.* FROM shown AS s JOIN held AS h ON h.lane = s.lane AND h.fence = s.fence)",
	}
	moves, counts := postgresMoves(&a, table, relay, keep, settlements, "")
	return Settle{Facts: a.query(
		"WITH "+strings.Join(append(ctes, moves...), ",\n"),
		"SELECT 'lane', lane::bigint, fence FROM held",
		"UNION ALL SELECT 'changed', "+counts+", 0",
		"UNION ALL SELECT 'xid', "+postgresXID+", 0",
		"WHERE "+a.planNow())}
}

// SettleRows is the same with the claim's token in the place of the lease.
func (postgres) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	var a postgresArgs
	lanes := a.lanes(column(settlements, func(s Settlement) int { return s.Lane }))
	tokens := a.texts(column(settlements, func(s Settlement) string { return s.Token }))
	ctes := []string{
		"given AS MATERIALIZED (SELECT * FROM unnest(" + lanes + ", " + tokens +
			strings.Replace(postgresSettlements(&a, settlements), "fence", "token", 1),
	}
	moves, counts := postgresMoves(&a, table, relay, keep, settlements, " AND t.claim_token = g.token")
	return Settle{Facts: a.query(
		"WITH "+strings.Join(append(ctes, moves...), ",\n"),
		"SELECT 'changed', "+counts+", 0",
		"UNION ALL SELECT 'fenced', (SELECT count(*) FROM "+table.Hot()+" AS t, given AS g",
		"    WHERE t.lane = g.lane AND t.id = g.id AND t.claim_token IS DISTINCT FROM g.token), 0",
		"UNION ALL SELECT 'xid', "+postgresXID+", 0",
		"WHERE "+a.planNow())}
}

// postgresSettlements is the rest of the arrays.
func postgresSettlements(a *postgresArgs, settlements []Settlement) string {
	arrays := []string{
		a.ids(column(settlements, func(s Settlement) int64 { return s.ID })),
		a.texts(column(settlements, func(s Settlement) string { return s.State })),
		a.add(postgresArray(settlements, func(s Settlement) string { return strconv.FormatBool(s.Held) }), "boolean[]"),
		a.ids(column(settlements, func(s Settlement) int64 { return int64(s.Attempts) })),
		a.ids(column(settlements, func(s Settlement) int64 { return int64(s.Crashes) })),
		a.ids(column(settlements, func(s Settlement) int64 { return s.Delay.Microseconds() })),
		a.texts(column(settlements, func(s Settlement) string { return s.Error })),
		a.texts(column(settlements, func(s Settlement) string { return s.Receipt })),
	}
	return ", " + strings.Join(arrays, ", ") + ") AS s (lane, fence, id, state, held, attempts, crashes, delay, error, receipt))"
}

// What a settlement changes in a row t, as g says.
const (
	postgresError     = "COALESCE(NULLIF(g.error, ''), t.last_error)"
	postgresAvailable = "CASE WHEN g.state = 'retry' THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END"
	newColumns        = "attempts, crashes, available_at, last_error"
	doneColumns       = "finished_at, receipt, relay"
)

// postgresMoves has those of the changes that the settlements need, and how to
// count the rows.
func postgresMoves(a *postgresArgs, table Table, relay string, keep bool, settlements []Settlement, claimed string) (ctes []string, count string) {
	var counted, done []string
	taken := func(name, from, where string) {
		ctes = append(ctes, name+" AS (DELETE FROM "+from+" AS t USING given AS g WHERE t.lane = g.lane AND t.id = g.id AND "+where+
			"\n    RETURNING "+prefixed(kept, "t.")+", g.attempts, g.crashes, "+postgresAvailable+" AS available_at, "+postgresError+" AS last_error, g.state, g.receipt)")
		counted = append(counted, "(SELECT count(*) FROM "+name+")")
	}
	has := needs(settlements)
	if has.hotDone || has.hotHeld {
		taken("hot", table.Hot(), "NOT g.held AND g.state <> 'pending'"+claimed)
	}
	if has.hotDone {
		done = append(done, "SELECT * FROM hot WHERE state = 'done'")
	}
	if has.heldDone {
		taken("back", table.Held(), "g.held AND g.state = 'done' AND t.state <> 'error'")
		done = append(done, "SELECT * FROM back")
	}
	if keep && len(done) > 0 {
		ctes = append(ctes, "done AS (INSERT INTO "+table.Done()+" ("+kept+", "+newColumns+", "+doneColumns+")\n    SELECT "+kept+", "+newColumns+
			", now(), NULLIF(receipt, ''), "+a.text(relay)+" FROM ("+strings.Join(done, " UNION ALL ")+") AS d)")
	}
	if has.hotHeld {
		ctes = append(ctes, "moved AS (INSERT INTO "+table.Held()+" ("+kept+", "+newColumns+", state)\n    SELECT "+kept+", "+newColumns+", state FROM hot WHERE state <> 'done')")
	}
	if has.heldHeld {
		ctes = append(ctes, "stayed AS (UPDATE "+table.Held()+" AS t SET state = g.state, attempts = g.attempts, crashes = g.crashes, available_at = "+postgresAvailable+
			", last_error = "+postgresError+"\n    FROM given AS g WHERE t.lane = g.lane AND t.id = g.id AND g.held AND g.state <> 'done' AND t.state <> 'error' RETURNING t.id)")
		counted = append(counted, "(SELECT count(*) FROM stayed)")
	}
	if has.freed {
		ctes = append(ctes, "freed AS (UPDATE "+table.Hot()+" AS t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = "+postgresError+
			"\n    FROM given AS g WHERE t.lane = g.lane AND t.id = g.id AND g.state = 'pending'"+claimed+" RETURNING t.id)")
		counted = append(counted, "(SELECT count(*) FROM freed)")
	}
	if len(counted) == 0 {
		return ctes, "0::bigint"
	}
	return ctes, strings.Join(counted, " + ")
}

// kinds are the ways that rows of a batch go.
type kinds struct {
	hotDone, hotHeld, heldDone, heldHeld, freed bool
}

func needs(settlements []Settlement) (has kinds) {
	for _, s := range settlements {
		done := s.State == "done"
		switch {
		case s.State == "pending":
			has.freed = true
		case s.Held:
			has.heldDone, has.heldHeld = has.heldDone || done, has.heldHeld || !done
		default:
			has.hotDone, has.hotHeld = has.hotDone || done, has.hotHeld || !done
		}
	}
	return has
}

func (postgres) Purge(table Table, retention time.Duration, limit int) Query {
	var a postgresArgs
	return a.query(
		"WITH old AS MATERIALIZED (",
		"    SELECT id FROM "+table.Done()+" WHERE finished_at < now() - "+a.interval(retention),
		"    ORDER BY finished_at LIMIT "+a.int(limit)+" FOR UPDATE SKIP LOCKED)",
		"DELETE FROM "+table.Done()+" AS d USING old WHERE d.id = old.id")
}
