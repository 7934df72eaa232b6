package dialect

import "slices"

// postgresAllDone says that a batch has nothing but hot rows that are done: as
// most have.
func postgresAllDone(settlements []Settlement) bool {
	return kindsOf(settlements) == kinds{hotDone: true}
}

// finishAll settles a batch of hot rows that are all done, of lanes that are held.
// It deletes them by one list of places: for a row that is merely moved, a join
// with what is given for it costs more than the move. What is given for each row
// is joined afterwards, where it differs.
func (m *postgresMoves) finishAll(relay string, keep bool, settlements []Settlement) {
	m.with("given", "SELECT lane, ids::bigint[] AS ids, before FROM "+m.args.lists(listsOf(settlements))+" JOIN held USING (lane, fence)")
	m.removeAll("SELECT x.place "+m.walk("h.ctid AS place", settlements), "", keep)
	m.finishRemoved(relay, keep, settlements)
}

// finishClaimed is the same by rows. It doesn't lock them first, which would cost
// as much as to delete them: a row that another transaction has changed since the
// statement began stays as it is. What is always true of given tells the planner
// that they are few.
func (m *postgresMoves) finishClaimed(relay string, keep bool, settlements []Settlement) {
	token := m.args.text(settlements[0].Token)
	m.with("given", "SELECT lane, ids::bigint[] AS ids, before FROM "+m.args.lists(listsOf(settlements))+" WHERE lane + 0 = lane")
	m.with("found", "SELECT x.* "+m.walk("h.ctid AS place, h.claim_token", settlements))
	m.removeAll("SELECT place FROM found WHERE claim_token = "+token, " AND t.claim_token = "+token, keep)
	m.finishRemoved(relay, keep, settlements)
}

// walk finds the hot rows list by list. The rows of a lane that are done together
// mostly lie together, so that a walk from the first to the last of a list finds
// them for a third of what it takes to look up each by itself. To look up a list of
// ids would cost the same; but the planner takes that for ten lookups, and reads all
// of the table rather where it has few statistics.
//
// A row is taken if its message's id is the one that stands at its own id's place.
// As bytes these cost the server a tenth of what it takes to read an array of them.
func (m *postgresMoves) walk(columns string, settlements []Settlement) string {
	return "FROM given AS g CROSS JOIN LATERAL (SELECT " + columns + " FROM " + m.table.Hot() + " AS h" +
		"\n    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)]" +
		"\n        AND uuid_send(h.message_id) = substring(" + m.args.add(messageBytes(settlements), "bytea") +
		" FROM 16 * (g.before + array_position(g.ids, h.id)) - 15 FOR 16) OFFSET 0) AS x"
}

// removeAll deletes the hot rows at some places, where they are as a condition says.
func (m *postgresMoves) removeAll(places, where string, keep bool) {
	returned := "t.id"
	if keep {
		returned = prefixed(kept, "t.") + ", t.available_at, t.last_error"
	}
	m.change("hot", "DELETE FROM "+m.table.Hot()+" AS t WHERE t.ctid = ANY (ARRAY("+
		"\n    "+places+"))"+where+"\n    RETURNING "+returned)
}

// finishRemoved writes what was deleted where done rows are kept.
func (m *postgresMoves) finishRemoved(relay string, keep bool, settlements []Settlement) {
	if !keep {
		return
	}
	m.ctes = append(m.ctes, "done AS (INSERT INTO "+m.table.Done()+" ("+kept+", "+changing+", finished_at, receipt, relay)"+
		"\n    SELECT "+prefixed(kept, "t.")+", g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error),"+
		" now(), NULLIF(g.receipt, ''), "+m.args.text(relay)+
		"\n    FROM hot AS t "+postgresResults(&m.args, settlements)+")")
}

// eachOnce says that no id is there twice, as one may be of two lanes or messages.
func eachOnce(ids []int64) bool {
	sorted := slices.Sorted(slices.Values(ids))
	return len(slices.Compact(sorted)) == len(ids)
}

// postgresResults joins the rows t with what is given for them, as g: by their ids, and
// where that isn't enough by their messages, which cost the server as much again.
func postgresResults(a *postgresArgs, settlements []Settlement) string {
	c := &postgresGivens{args: a}
	c.ints("attempts", "integer", column(settlements, func(s Settlement) int64 { return int64(s.Attempts) }))
	c.ints("crashes", "integer", column(settlements, func(s Settlement) int64 { return int64(s.Crashes) }))
	c.texts("error", column(settlements, func(s Settlement) string { return s.Error }))
	c.texts("receipt", column(settlements, func(s Settlement) string { return s.Receipt }))
	if c.arrays == "" {
		return "CROSS JOIN (SELECT " + c.selected + ") AS g"
	}
	ids := column(settlements, func(s Settlement) int64 { return s.ID })
	c.array("id", a.ids(ids))
	if eachOnce(ids) {
		return "JOIN (" + c.sql() + ") AS g USING (id)"
	}
	c.array("message_id", a.messageIDs(settlements))
	return "JOIN (" + c.sql() + ") AS g USING (id, message_id)"
}
