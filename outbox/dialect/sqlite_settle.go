package dialect

import (
	"slices"
	"strconv"
)

// SettleLanes has the database to itself once it has begun, so that the fences
// that it sees stay what they are, and what is written needn't look at them again.
func (s sqlite) SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle {
	leases := column(leasesOf(settlements), func(l lease) []any { return []any{l.lane, l.fence} })
	move := sqliteMove{table: table, relay: relay, keep: keep}
	return Settle{
		Begin: s.Begin(table),
		Facts: sqliteQuery("SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN "+table.Lanes()+
			" AS l ON l.lane = "+sqliteItem(0)+" AND l.fence = "+sqliteItem(1)+" AND l.owner = ?", sqliteJSON(leases), relay),
		Then: func(holds func(lane int, fence int64) bool) []Write { return move.writes(held(settlements, holds)) },
	}
}

// SettleRows changes the rows that still have the token.
func (s sqlite) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	move := sqliteMove{table: table, relay: relay, keep: keep, token: settlements[0].Token}
	rows, messages := sqliteRows(table.Hot(), settlements)
	return Settle{
		Begin:  s.Begin(table),
		Facts:  sqliteQuery("SELECT 'fenced', count(*), 0 FROM "+rows+" WHERE t.claim_token IS NOT ?", messages, move.token),
		Writes: move.writes(settlements),
	}
}

// sqliteByID keeps off all indexes but that of ids: with statistics of a table that
// was empty all of it would be read, along some index.
const sqliteByID = " AS t NOT INDEXED"

// sqliteRows are rows t that are found by their ids and have the messages that stand
// beside them. Those of other lanes than the settlements', whose leases hold, are none
// of them. An object is a third of what a list of lists costs, which has to be taken
// apart for each row, and half of what two lists do.
func sqliteRows(table string, settlements []Settlement) (from string, arg any) {
	lanes := slices.Compact(column(settlements, func(s Settlement) int { return s.Lane }))
	return "json_each(?) AS j CROSS JOIN " + table + sqliteByID + " ON t.id = j.key AND t.message_id = j.value AND t.lane IN " + mysqlList(lanes), sqliteMessages(settlements)
}

// sqliteMessages is an object of the messages by their rows' ids.
func sqliteMessages(settlements []Settlement) string {
	text := make([]byte, 0, 2+51*len(settlements))
	separator := byte('{')
	for i := range settlements {
		text = strconv.AppendInt(append(text, separator, '"'), settlements[i].ID, 10)
		text = append(append(append(text, `":"`...), settlements[i].MessageID...), '"')
		separator = ','
	}
	return string(append(text, '}'))
}

func sqliteItems(settlements []Settlement) string {
	return sqliteJSON(column(settlements, func(s Settlement) []any {
		return []any{s.ID, s.Lane, s.State, s.Attempts, s.Crashes, sqliteSeconds(s.Delay), s.Error, s.Receipt, s.MessageID}
	}))
}

// sqliteMove makes the statements that move rows: of lanes that are held, or those
// that have the token.
type sqliteMove struct {
	table Table
	relay string
	keep  bool
	token string // by rows
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
	writes = append(writes, m.finish(m.table.Hot(), m.claimed(), hotDone)...)
	writes = append(writes, m.finish(m.table.Held(), " AND t.state <> 'error'", heldDone)...)
	writes = append(writes, m.hold(hotHeld)...)
	writes = append(writes, m.change(heldHeld)...)
	return append(writes, m.free(freed)...)
}

const sqliteAvailable = "CASE WHEN g.state = 'retry' THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END"
const sqliteError = "coalesce(nullif(g.error, ''), t.last_error)"

// sqliteTheRow finds the row t that g is about.
const sqliteTheRow = "t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id"

// given is the list of settlements with its columns.
func (m sqliteMove) given() string {
	return "(SELECT " + sqliteItem(0) + " AS id, " + sqliteItem(1) + " AS lane, " + sqliteItem(2) + " AS state, " +
		sqliteItem(3) + " AS attempts, " + sqliteItem(4) + " AS crashes, " + sqliteItem(5) + " AS delay, " + sqliteItem(6) + " AS error, " +
		sqliteItem(7) + " AS receipt, " + sqliteItem(8) + " AS message_id FROM json_each(?) AS j) AS g"
}

// claimed is a condition of rows that are claimed, with an argument for the token.
func (m sqliteMove) claimed() string {
	if m.token == "" {
		return ""
	}
	return " AND t.claim_token = ?"
}

// arguments are args, and the token where the condition has one.
func (m sqliteMove) arguments(where string, args ...any) []any {
	if where != "" && where == m.claimed() {
		args = append(args, m.token)
	}
	return args
}

func (m sqliteMove) finish(from, where string, settlements []Settlement) (writes []Write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		writes = append(writes, Write{Query: m.copyDone(from, where, settlements)})
	}
	return append(writes, m.remove(from, where, settlements))
}

// copyDone joins the settlements, unless all have the same values: most batches
// are all done, at their first attempt.
func (m sqliteMove) copyDone(from, where string, settlements []Settlement) Query {
	insert := "INSERT INTO " + m.table.Done() + " (" + kept + ", " + changing + ", finished_at, receipt, relay)\nSELECT " + prefixed(kept, "t.") + ", "
	same := settlements[0]
	if !allEqual(column(settlements, func(s Settlement) any { return [...]any{s.Attempts, s.Crashes, s.Error, s.Receipt} })) {
		return sqliteQuery(insert+"g.attempts, g.crashes, t.available_at, "+sqliteError+", "+sqliteNow+`, nullif(g.receipt, ''), ?
FROM `+m.given()+" CROSS JOIN "+from+sqliteByID+" ON "+sqliteTheRow+where, m.arguments(where, m.relay, sqliteItems(settlements))...)
	}
	rows, messages := sqliteRows(from, settlements)
	args := []any{int64(same.Attempts), int64(same.Crashes), same.Error, same.Receipt, m.relay, messages}
	return sqliteQuery(insert+"?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), "+sqliteNow+", nullif(?, ''), ?\nFROM "+rows+where,
		m.arguments(where, args...)...)
}

func (m sqliteMove) remove(from, where string, settlements []Settlement) Write {
	key, selected := "id", "t.id" // which a row of the hot table has alone
	if from == m.table.Held() {
		key, selected = "(id, message_id)", "t.id, t.message_id"
	}
	rows, messages := sqliteRows(from, settlements)
	return Write{Counts: true, Query: sqliteQuery("DELETE FROM "+from+" WHERE "+key+" IN (SELECT "+selected+" FROM "+rows+where+")", m.arguments(where, messages)...)}
}

func (m sqliteMove) hold(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	return []Write{
		{Query: sqliteQuery("INSERT INTO "+m.table.Held()+" ("+kept+", "+changing+`, state)
SELECT `+prefixed(kept, "t.")+", g.attempts, g.crashes, "+sqliteAvailable+", "+sqliteError+`, g.state
FROM `+m.given()+" CROSS JOIN "+m.table.Hot()+sqliteByID+" ON "+sqliteTheRow+m.claimed(), m.arguments(m.claimed(), sqliteItems(settlements))...)},
		m.remove(m.table.Hot(), m.claimed(), settlements),
	}
}

func (m sqliteMove) change(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	return []Write{{Counts: true, Query: sqliteQuery("UPDATE "+m.table.Held()+sqliteByID+`
SET state = g.state, attempts = g.attempts, crashes = g.crashes, available_at = `+sqliteAvailable+", last_error = "+sqliteError+`
FROM `+m.given()+" WHERE "+sqliteTheRow+" AND t.state <> 'error'", sqliteItems(settlements))}}
}

func (m sqliteMove) free(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	return []Write{{Counts: true, Query: sqliteQuery("UPDATE "+m.table.Hot()+sqliteByID+`
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = `+sqliteError+`
FROM `+m.given()+" WHERE "+sqliteTheRow+" AND t.claim_token = ?", sqliteItems(settlements), m.token)}}
}

func (sqlite) Purge(table Table, purge Purge) []Write {
	return []Write{{Counts: true, Query: sqliteQuery("DELETE FROM "+table.Done()+" WHERE rowid IN (SELECT rowid FROM "+table.Done()+" WHERE finished_at < "+sqliteIn+
		" ORDER BY finished_at LIMIT ?)", sqliteSeconds(-purge.Retention), int64(purge.Limit))}}
}
