package dialect

// SettleLanes has the database to itself once it has begun, so that the fences
// that it sees stay what they are.
func (s sqlite) SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle {
	type shown struct {
		lane  int
		fence int64
	}
	leases := make(map[shown]bool)
	items := [][]any{}
	for _, settlement := range settlements {
		lease := shown{settlement.Lane, settlement.Fence}
		if !leases[lease] {
			leases[lease] = true
			items = append(items, []any{lease.lane, lease.fence})
		}
	}
	move := sqliteMove{table: table, relay: relay, keep: keep,
		claim: "CROSS JOIN " + table.Lanes() + " AS l ON l.lane = " + sqliteItem(1) + " AND l.fence = " + sqliteItem(2)}
	return Settle{
		Begin: s.Begin(table),
		Facts: sqliteQuery("SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN "+table.Lanes()+
			" AS l ON l.lane = "+sqliteItem(0)+" AND l.fence = "+sqliteItem(1), sqliteJSON(items)),
		Writes: move.writes(settlements),
	}
}

func (s sqlite) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	move := sqliteMove{table: table, relay: relay, keep: keep, token: " AND t.claim_token = " + sqliteItem(2)}
	return Settle{
		Begin: s.Begin(table),
		Facts: sqliteQuery("SELECT 'fenced', count(*), 0 FROM json_each(?) AS j CROSS JOIN "+table.Hot()+" AS t ON t.id = "+sqliteItem(0)+
			" AND t.lane = "+sqliteItem(1)+" WHERE t.claim_token IS NOT "+sqliteItem(2), sqliteItems(settlements)),
		Writes: move.writes(settlements),
	}
}

func sqliteItems(settlements []Settlement) string {
	return sqliteJSON(column(settlements, func(s Settlement) []any {
		claim := any(s.Fence)
		if s.Token != "" {
			claim = s.Token
		}
		return []any{s.ID, s.Lane, claim, s.State, s.Attempts, s.Crashes, sqliteSeconds(s.Delay), s.Error, s.Receipt}
	}))
}

// sqliteMove makes the statements that move the rows that are still the
// relay's: a claim is a join with the lanes, or the token.
type sqliteMove struct {
	table        Table
	relay        string
	keep         bool
	claim, token string
}

// writes groups the settlements by what becomes of them, and writes nothing
// for a group that is empty.
func (m sqliteMove) writes(settlements []Settlement) (writes []Write) {
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
	writes = append(writes, m.finish(m.table.Hot(), m.token, hotDone)...)
	writes = append(writes, m.finish(m.table.Held(), " AND t.state <> 'error'", heldDone)...)
	writes = append(writes, m.hold(hotHeld)...)
	writes = append(writes, m.change(heldHeld)...)
	return append(writes, m.free(freed)...)
}

const sqliteAvailable = "CASE WHEN g.state = 'retry' THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END"
const sqliteError = "coalesce(nullif(g.error, ''), t.last_error)"

// given is the list of settlements with its columns, of rows that are the
// relay's.
func (m sqliteMove) given() string {
	return "(SELECT " + sqliteItem(0) + " AS id, " + sqliteItem(1) + " AS lane, " + sqliteItem(2) + " AS claim, " + sqliteItem(3) + " AS state, " +
		sqliteItem(4) + " AS attempts, " + sqliteItem(5) + " AS crashes, " + sqliteItem(6) + " AS delay, " + sqliteItem(7) + " AS error, " +
		sqliteItem(8) + " AS receipt FROM json_each(?) AS j " + m.claim + ") AS g"
}

func (m sqliteMove) finish(from, where string, settlements []Settlement) (writes []Write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		writes = append(writes, Write{Query: sqliteQuery("INSERT INTO "+m.table.Done()+" ("+kept+", "+changing+`, finished_at, receipt, relay)
SELECT `+prefixed(kept, "t.")+", g.attempts, g.crashes, t.available_at, "+sqliteError+", "+sqliteNow+`, nullif(g.receipt, ''), ?
FROM `+m.given()+" CROSS JOIN "+from+" AS t ON t.id = g.id AND t.lane = g.lane"+m.byClaim(where), m.relay, sqliteItems(settlements))})
	}
	return append(writes, m.remove(from, where, settlements))
}

func (m sqliteMove) byClaim(where string) string {
	if where != "" && where == m.token {
		return " AND t.claim_token = g.claim"
	}
	return where
}

func (m sqliteMove) remove(from, where string, settlements []Settlement) Write {
	return Write{Counts: true, Query: sqliteQuery("DELETE FROM "+from+` WHERE id IN (
    SELECT t.id FROM json_each(?) AS j `+m.claim+" CROSS JOIN "+from+" AS t ON t.id = "+sqliteItem(0)+" AND t.lane = "+sqliteItem(1)+where+")", sqliteItems(settlements))}
}

func (m sqliteMove) hold(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	return []Write{
		{Query: sqliteQuery("INSERT INTO "+m.table.Held()+" ("+kept+", "+changing+`, state)
SELECT `+prefixed(kept, "t.")+", g.attempts, g.crashes, "+sqliteAvailable+", "+sqliteError+`, g.state
FROM `+m.given()+" CROSS JOIN "+m.table.Hot()+" AS t ON t.id = g.id AND t.lane = g.lane"+m.byClaim(m.token), sqliteItems(settlements))},
		m.remove(m.table.Hot(), m.token, settlements),
	}
}

func (m sqliteMove) change(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	return []Write{{Counts: true, Query: sqliteQuery("UPDATE "+m.table.Held()+` AS t
SET state = g.state, attempts = g.attempts, crashes = g.crashes, available_at = `+sqliteAvailable+", last_error = "+sqliteError+`
FROM `+m.given()+" WHERE t.id = g.id AND t.lane = g.lane AND t.state <> 'error'", sqliteItems(settlements))}}
}

func (m sqliteMove) free(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	return []Write{{Counts: true, Query: sqliteQuery("UPDATE "+m.table.Hot()+` AS t
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = `+sqliteError+`
FROM `+m.given()+" WHERE t.id = g.id AND t.lane = g.lane AND t.claim_token = g.claim", sqliteItems(settlements))}}
}

func (sqlite) Purge(table Table, purge Purge) []Write {
	return []Write{{Counts: true, Query: sqliteQuery("DELETE FROM "+table.Done()+" WHERE id IN (SELECT id FROM "+table.Done()+" WHERE finished_at < "+sqliteIn+
		" ORDER BY finished_at LIMIT ?)", sqliteSeconds(-purge.Retention), int64(purge.Limit))}}
}
