package dialect

// SettleRows locks the rows first, so that a claim that is the one shown stays
// so until the transaction ends. Then each group of rows goes its way, in
// statements of its own: CockroachDB lets one statement change a table once.
func (k kin) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	var a postgresArgs
	m := kinMoves{table: table, relay: relay, keep: keep}
	return Settle{
		Begin: k.Begin(table),
		Facts: a.query(
			kinGiven(&a, settlements)+",",
			"found AS MATERIALIZED (",
			"    SELECT g.token, t.claim_token FROM given AS g JOIN "+table.Hot()+" AS t ON "+kinMessage+" FOR UPDATE OF t)",
			"SELECT 'fenced', count(*), 0::bigint FROM found WHERE claim_token IS DISTINCT FROM token"),
		Writes: m.writes(settlements),
	}
}

// kinMoves makes the statements that move rows.
type kinMoves struct {
	table Table
	relay string
	keep  bool
}

const (
	kinClaimed = kinMessage + " AND t.claim_token = g.token"
	kinParked  = kinMessage + " AND t.state <> 'error'"

	// Whatever is held and not parked has a time.
	kinAvailable = "CASE WHEN g.state = 'retry' THEN now() + g.delay * interval '1 microsecond' WHEN g.state = 'scheduled' THEN COALESCE(t.available_at, now()) ELSE t.available_at END"
)

func (m kinMoves) writes(settlements []Settlement) (writes []Write) {
	var hotDone, hotHeld, heldDone, heldHeld, freed []Settlement
	for _, s := range settlements {
		group := &hotHeld
		switch {
		case s.State == "pending":
			group = &freed
		case s.State == "done" && s.Held:
			group = &heldDone
		case s.State == "done":
			group = &hotDone
		case s.Held:
			group = &heldHeld
		}
		*group = append(*group, s)
	}
	writes = append(writes, m.finish(m.table.Hot(), kinClaimed, hotDone)...)
	writes = append(writes, m.finish(m.table.Held(), kinParked, heldDone)...)
	writes = append(writes, m.hold(hotHeld)...)
	writes = append(writes, m.change(m.table.Held(), "state = g.state, available_at = "+kinAvailable, kinParked, heldHeld)...)
	return append(writes, m.change(m.table.Hot(), "claimed_by = NULL, claim_token = NULL, claimed_until = NULL", kinClaimed, freed)...)
}

func (m kinMoves) finish(from, where string, settlements []Settlement) (writes []Write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		var a postgresArgs
		writes = append(writes, Write{Query: a.query(
			kinGiven(&a, settlements),
			"INSERT INTO "+m.table.Done()+" ("+kept+", "+changing+", finished_at, receipt, relay)",
			"SELECT "+prefixed(kept, "t.")+", g.attempts, g.crashes, t.available_at, "+postgresError+", now(), NULLIF(g.receipt, ''), "+a.text(m.relay),
			"FROM given AS g JOIN "+from+" AS t ON "+where)})
	}
	return append(writes, m.remove(from, where, settlements))
}

func (m kinMoves) remove(from, where string, settlements []Settlement) Write {
	var a postgresArgs
	return Write{Counts: true, Query: a.query(
		kinGiven(&a, settlements),
		"DELETE FROM "+from+" AS t USING given AS g WHERE "+where)}
}

func (m kinMoves) hold(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	var a postgresArgs
	return []Write{
		{Query: a.query(
			kinGiven(&a, settlements),
			"INSERT INTO "+m.table.Held()+" ("+kept+", "+changing+", state)",
			"SELECT "+prefixed(kept, "t.")+", g.attempts, g.crashes, "+kinAvailable+", "+postgresError+", g.state",
			"FROM given AS g JOIN "+m.table.Hot()+" AS t ON "+kinClaimed)},
		m.remove(m.table.Hot(), kinClaimed, settlements),
	}
}

func (m kinMoves) change(table, set, where string, settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	var a postgresArgs
	return []Write{{Counts: true, Query: a.query(
		kinGiven(&a, settlements),
		"UPDATE "+table+" AS t SET "+set+", attempts = g.attempts, crashes = g.crashes, last_error = "+postgresError,
		"FROM given AS g WHERE "+where)}}
}

// kinGiven selects the settlements.
func kinGiven(a *postgresArgs, settlements []Settlement) string {
	return "WITH given AS MATERIALIZED (" + postgresShown(a, settlements, postgresToken) + ")"
}

// Purge goes on from where the one before ended, as on PostgreSQL.
func (kin) Purge(table Table, purge Purge) []Write {
	var a postgresArgs
	until, since := "now() - "+a.interval(purge.Retention), ""
	if !purge.Since.IsZero() {
		since = " AND finished_at >= " + a.timestamp(purge.Since)
	}
	limit := a.int(purge.Limit)
	return []Write{{Tells: true, Query: a.query(
		"WITH old AS MATERIALIZED (",
		"    SELECT id, message_id FROM "+table.Done()+" WHERE finished_at < "+until+since,
		"    ORDER BY finished_at LIMIT "+limit+" FOR UPDATE SKIP LOCKED),",
		"gone AS (DELETE FROM "+table.Done()+" AS d USING old WHERE d.id = old.id AND d.message_id = old.message_id RETURNING d.finished_at)",
		"SELECT count(*), CASE WHEN count(*) < "+limit+" THEN "+until+" ELSE max(finished_at) END FROM gone")}}
}
