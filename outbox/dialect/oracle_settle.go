package dialect

// SettleLanes locks one lock of each lane, the one of its session, which a
// takeover doesn't get then; a settle that waited for a takeover finds the new
// fence, as the statement that looks for it begins later. Renewals lock something
// else and pass.
func (oracle) SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle {
	type shown struct {
		lane  int
		fence int64
	}
	leases := make(map[shown]bool)
	items := [][]int64{}
	for _, settlement := range settlements {
		lease := shown{settlement.Lane, settlement.Fence}
		if !leases[lease] {
			leases[lease] = true
			items = append(items, []int64{int64(lease.lane), lease.fence})
		}
	}
	const columns = "lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]'"
	var lock, facts oracleArgs
	move := oracleMove{table: table, relay: relay, keep: keep, claim: "claim NUMBER PATH '$[2]'", byLanes: true}
	return Settle{
		Begin: []Query{lock.lockAll("SELECT lock_id FROM " + oracleLocks(table) + " WHERE lock_id IN (\n        SELECT " + oracleLaneSlots +
			" * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), " + oracleLaneSlots + ") FROM " + lock.given("g", items, columns) + ")\n    ORDER BY lock_id FOR UPDATE")},
		Facts:  facts.query("SELECT 'lane', l.lane, l.fence FROM " + facts.given("g", items, columns) + " JOIN " + table.Lanes() + " l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = " + facts.add(relay)),
		Writes: move.writes(settlements),
	}
}

// SettleRows locks the rows first, so that their tokens stay what it finds.
func (oracle) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	const columns = "id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]'"
	var lock, facts oracleArgs
	move := oracleMove{table: table, relay: relay, keep: keep, claim: "claim VARCHAR2(255) PATH '$[2]'", token: " AND t.claim_token = g.claim"}
	return Settle{
		Begin: []Query{lock.lockAll("SELECT t.id FROM " + table.Hot() + " t WHERE t.id IN " + lock.ids(column(settlements, func(s Settlement) int64 { return s.ID })) +
			"\n    ORDER BY t.id FOR UPDATE")},
		Facts: facts.query("SELECT 'fenced', COUNT(*), 0 FROM "+facts.given("g", oracleItems(settlements), columns)+" JOIN "+table.Hot()+" t ON "+oracleRow,
			"WHERE t.claim_token IS NULL OR t.claim_token <> g.claim"),
		Writes: move.writes(settlements),
	}
}

func oracleItems(settlements []Settlement) [][]any {
	return column(settlements, func(s Settlement) []any {
		claim := any(s.Fence)
		if s.Token != "" {
			claim = s.Token
		}
		return []any{s.ID, s.Lane, claim, s.State, s.Attempts, s.Crashes, s.Delay.Microseconds(), oracleCut(s.Error), oracleCut(s.Receipt), s.MessageID}
	})
}

// oracleMove makes the statements that move the rows that are still the relay's:
// the claim is a join with the lanes, or the token.
type oracleMove struct {
	table   Table
	relay   string
	keep    bool
	claim   string // how the settlement shows it
	byLanes bool
	token   string // a condition, by rows
}

// oracleRow finds the row t that g is about.
const oracleRow = "t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id"

// oracleGroups are settlements by what becomes of them.
type oracleGroups struct{ hotDone, hotHeld, heldDone, heldHeld, freed []Settlement }

func oracleGroup(settlements []Settlement) (groups oracleGroups) {
	for _, s := range settlements {
		group := &groups.hotHeld
		switch {
		case s.State == "pending":
			group = &groups.freed
		case s.State == "done" && s.Held:
			group = &groups.heldDone
		case s.State == "done":
			group = &groups.hotDone
		case s.Held:
			group = &groups.heldHeld
		}
		*group = append(*group, s)
	}
	return groups
}

// writes has nothing for a group that is empty.
func (m oracleMove) writes(settlements []Settlement) (writes []Write) {
	groups := oracleGroup(settlements)
	writes = append(writes, m.finish(m.table.Hot(), m.token, groups.hotDone)...)
	writes = append(writes, m.finish(m.table.Held(), " AND t.state <> 'error'", groups.heldDone)...)
	writes = append(writes, m.hold(groups.hotHeld)...)
	writes = append(writes, m.change(groups.heldHeld)...)
	return append(writes, m.free(groups.freed)...)
}

const (
	oracleAvailable = "CASE WHEN g.state = 'retry' THEN " + oracleNow + " + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END"
	oracleFault     = "NVL(g.fault, t.last_error)"
)

// given are the settlements, as g, of rows that may be the relay's.
func (m oracleMove) given(a *oracleArgs, settlements []Settlement) string {
	given := a.given("g", oracleItems(settlements), "\n        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', "+m.claim+
		", state VARCHAR2(10) PATH '$[3]',\n        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]'")
	if m.byLanes {
		given += "\n    JOIN " + m.table.Lanes() + " l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = " + a.add(m.relay)
	}
	return given
}

// found joins the settlements with their rows, as t, by the key of each.
func (m oracleMove) found(a *oracleArgs, from, where string, settlements []Settlement) string {
	return "FROM " + m.given(a, settlements) + "\n    JOIN " + from + " t ON " + oracleRow + where
}

const oracleFound = "/*+ LEADING(g) USE_NL(t) INDEX(t) */"

func (m oracleMove) finish(from, where string, settlements []Settlement) (writes []Write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		var a oracleArgs
		writes = append(writes, Write{Query: a.query(
			"INSERT INTO "+m.table.Done()+" ("+kept+", "+changing+", finished_at, receipt, relay)",
			"SELECT "+oracleFound+" "+prefixed(kept, "t.")+", g.attempts, g.crashes, t.available_at, "+oracleFault+", "+oracleNow+", g.receipt, "+a.add(m.relay),
			m.found(&a, from, where, settlements))})
	}
	return append(writes, m.remove(from, where, settlements))
}

func (m oracleMove) remove(from, where string, settlements []Settlement) Write {
	var a oracleArgs
	return Write{Counts: true, Query: a.query(
		"DELETE /*+ INDEX(d) */ FROM "+from+" d WHERE (d.id, d.message_id) IN (SELECT "+oracleFound+" t.id, t.message_id",
		m.found(&a, from, where, settlements)+")")}
}

func (m oracleMove) hold(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	var a oracleArgs
	return []Write{
		{Query: a.query(
			"INSERT INTO "+m.table.Held()+" ("+kept+", "+changing+", state)",
			"SELECT "+oracleFound+" "+prefixed(kept, "t.")+", g.attempts, g.crashes, "+oracleAvailable+", "+oracleFault+", g.state",
			m.found(&a, m.table.Hot(), m.token, settlements))},
		m.remove(m.table.Hot(), m.token, settlements),
	}
}

func (m oracleMove) change(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	var a oracleArgs
	return []Write{{Counts: true, Query: a.query(
		"MERGE INTO "+m.table.Held()+" t USING (SELECT g.* FROM "+m.given(&a, settlements)+") g ON ("+oracleRow+")",
		"WHEN MATCHED THEN UPDATE SET t.state = g.state, t.attempts = g.attempts, t.crashes = g.crashes,",
		"    t.available_at = "+oracleAvailable+", t.last_error = "+oracleFault,
		"    WHERE t.state <> 'error'")}}
}

func (m oracleMove) free(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	var a oracleArgs
	return []Write{{Counts: true, Query: a.query(
		"MERGE INTO "+m.table.Hot()+" t USING (SELECT g.* FROM "+m.given(&a, settlements)+") g ON ("+oracleRow+")",
		"WHEN MATCHED THEN UPDATE SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.claim_stamp = NULL,",
		"    t.attempts = g.attempts, t.crashes = g.crashes, t.last_error = "+oracleFault,
		"    WHERE t.claim_token = g.claim")}}
}

func (oracle) Purge(table Table, purge Purge) []Write {
	var a oracleArgs
	return []Write{{Counts: true, Query: a.query(
		"DELETE FROM "+table.Done()+" WHERE (id, message_id) IN (SELECT id, message_id FROM (",
		"    SELECT id, message_id FROM "+table.Done()+" WHERE finished_at < "+a.in(-purge.Retention),
		"    ORDER BY finished_at) WHERE ROWNUM <= "+a.int(purge.Limit)+")")}}
}
