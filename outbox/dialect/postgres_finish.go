package dialect

// postgresAllDone says that a batch has nothing but hot rows that are done: as
// most have.
func postgresAllDone(settlements []Settlement) bool {
	return kindsOf(settlements) == kinds{hotDone: true}
}

// finishAll settles a batch of hot rows that are all done. It deletes them by one
// list of places: for a row that is merely moved, a join with what is given for
// it costs more than the move. What is given for each row is joined afterwards,
// where it differs.
//
// The places are found list by list. The rows of a lane that are done together
// mostly lie together, so that a walk from the first to the last of a list finds
// them for a third of what it takes to look up each by itself. To look up a list of
// ids would cost the same; but the planner takes that for ten lookups, and reads all
// of the table rather where it has few statistics. So it mustn't: hence the + 0.
func (m *postgresMoves) finishAll(relay string, keep bool, settlements []Settlement) {
	table := m.table.Hot()
	returned := "t.id"
	if keep {
		returned = prefixed(kept, "t.") + ", t.available_at, t.last_error"
	}
	m.with("given", "SELECT lane, ids::bigint[] AS ids FROM "+m.args.lists(listsOf(settlements))+" JOIN held USING (lane, fence)")
	m.change("hot", "DELETE FROM "+table+" AS t WHERE t.ctid = ANY (ARRAY("+
		"\n    SELECT x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM "+table+" AS h"+
		"\n    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)] AND h.id + 0 = ANY (g.ids) OFFSET 0) AS x))"+
		"\n    RETURNING "+returned)
	if keep {
		m.ctes = append(m.ctes, "done AS (INSERT INTO "+m.table.Done()+" ("+kept+", "+changing+", finished_at, receipt, relay)"+
			"\n    SELECT "+prefixed(kept, "t.")+", g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error),"+
			" now(), NULLIF(g.receipt, ''), "+m.args.text(relay)+
			"\n    FROM hot AS t "+postgresResults(&m.args, settlements)+")")
	}
}

// postgresResults joins the rows t with what is given for them, as g.
func postgresResults(a *postgresArgs, settlements []Settlement) string {
	c := &postgresGivens{args: a}
	c.ints("attempts", "integer", column(settlements, func(s Settlement) int64 { return int64(s.Attempts) }))
	c.ints("crashes", "integer", column(settlements, func(s Settlement) int64 { return int64(s.Crashes) }))
	c.texts("error", column(settlements, func(s Settlement) string { return s.Error }))
	c.texts("receipt", column(settlements, func(s Settlement) string { return s.Receipt }))
	if c.arrays == "" {
		return "CROSS JOIN (SELECT " + c.selected + ") AS g"
	}
	c.array("id", a.ids(column(settlements, func(s Settlement) int64 { return s.ID })))
	return "JOIN (" + c.sql() + ") AS g USING (id)"
}
