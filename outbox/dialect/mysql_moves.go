package dialect

import (
	"slices"
	"strings"
)

// mysqlMove makes the statements that move rows: first they are locked, and
// written where they go, then deleted where they were. Who settles the same rows
// at the same time waits, and finds none. Each group of settlements has one
// statement of either kind, and one that is empty has none.
type mysqlMove struct {
	dialect mysql
	table   Table
	relay   string
	keep    bool
	token   string // by rows
}

// mysqlMostGiven is how many rows one statement may be given: with too many
// conditions for their memory servers walk over the table, and TiDB, which has no
// other list, nests the selects of a union.
const mysqlMostGiven = 1000

func (m mysqlMove) writes(settlements []Settlement) (writes []Write) {
	for part := range slices.Chunk(settlements, mysqlMostGiven) {
		writes = append(writes, m.part(part)...)
	}
	return writes
}

func (m mysqlMove) part(settlements []Settlement) (writes []Write) {
	groups := map[string][]Settlement{}
	for _, s := range settlements {
		groups[groupOf(s)] = append(groups[groupOf(s)], s)
	}
	writes = append(writes, m.finish(m.table.Hot(), m.claimed(), groups["hot done"])...)
	writes = append(writes, m.finish(m.table.Held(), " AND t.state <> 'error'", groups["held done"])...)
	writes = append(writes, m.hold(groups["hot held"])...)
	writes = append(writes, m.change(groups["held held"])...)
	return append(writes, m.free(groups["freed"])...)
}

// groupOf says where a row is and where it goes.
func groupOf(s Settlement) string {
	from, to := "hot", "held"
	if s.Held {
		from = "held"
	}
	switch s.State {
	case "pending":
		return "freed"
	case "done":
		to = "done"
	}
	return from + " " + to
}

// claimed is a condition of rows that are claimed, with an argument for the
// token.
func (m mysqlMove) claimed() string {
	if m.token == "" {
		return ""
	}
	return " AND t.claim_token = ?"
}

func (m mysqlMove) arguments(where string) []any {
	if where == "" || where != m.claimed() {
		return nil
	}
	return []any{m.token}
}

// finish replaces what is the same message with the same id: one that somebody has
// copied back. It would be sent again and again otherwise.
func (m mysqlMove) finish(from, where string, settlements []Settlement) (writes []Write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		g := mysqlGivens(m.dialect, settlements, "attempts", "crashes", "error", "receipt")
		insert := (&mysqlText{}).
			add("REPLACE INTO " + m.table.Done() + " (" + kept + ", " + changing + ", finished_at, receipt, relay)\nSELECT " + prefixed(kept, "t.") + ", ")
		g.attempts(insert)
		insert.add(", ")
		g.crashes(insert)
		insert.add(", t.available_at, ")
		g.lastError(insert)
		insert.add(", " + mysqlNow + ", ")
		g.receipt(insert)
		insert.add(", ?\n", m.relay)
		g.rows(insert.add("FROM "), from)
		writes = append(writes, Write{Query: insert.add(where+m.dialect.lockT(), m.arguments(where)...).query()})
	}
	return append(writes, m.remove(from, where, settlements))
}

// remove finds the rows by their keys, one after the other. By a condition, a
// server reads and locks all that there is if it takes the table for small: a
// DELETE doesn't heed the name of an index enough.
func (m mysqlMove) remove(from, where string, settlements []Settlement) Write {
	if m.dialect.isMySQL8() {
		return m.removeHinted(from, where, settlements)
	}
	keys := mysqlGivens(m.dialect, settlements)
	remove := (&mysqlText{}).add("DELETE t FROM ")
	keys.table(remove)
	remove.add(from + " AS t FORCE INDEX (PRIMARY)" + keys.on())
	if where != "" {
		remove.add(strings.Replace(where, " AND ", " WHERE ", 1), m.arguments(where)...)
	}
	return Write{Counts: true, Query: remove.query()}
}

// removeHinted is for servers that let a DELETE be told its index. Walking twice,
// as a join of keys does, costs a third more. Those before 8.0.20 don't know INDEX
// yet; in the mode of safe updates they take ranges of some index, or refuse.
func (m mysqlMove) removeHinted(from, where string, settlements []Settlement) Write {
	condition := strings.ReplaceAll(mysqlRows(settlements)+where, "t.", "") // no name: 8.0.16 is the first to take one
	return Write{Counts: true, Query: mysqlQuery("DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX("+mysqlBare(from)+" PRIMARY) */ FROM "+from+
		"\nWHERE "+condition, m.arguments(where)...)}
}

// mysqlBare is a quoted name without its schema.
func mysqlBare(name string) string { return name[strings.LastIndex(name[:len(name)-1], "`"):] }

// deleteByID is the same where the lanes aren't known, and an index has the ids; of
// the rows that have one, those are deleted of which a condition is true.
func (d mysql) deleteByID(from, index string, ids []int64, condition func(where *mysqlText)) (queries []Query) {
	for part := range slices.Chunk(ids, mysqlMostGiven) {
		keys := &mysqlGiven{dialect: d, settlements: column(part, func(id int64) Settlement { return Settlement{ID: id} })}
		remove := (&mysqlText{}).add("DELETE t FROM ")
		keys.table(remove)
		condition(remove.add(from + " AS t FORCE INDEX (" + index + ") ON t.id = g.id WHERE "))
		queries = append(queries, remove.query())
	}
	return queries
}

func (m mysqlMove) hold(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	g, where := mysqlGivens(m.dialect, settlements, "state", "attempts", "crashes", "delay", "error"), m.claimed()
	insert := (&mysqlText{}).
		add("INSERT INTO " + m.table.Held() + " (" + kept + ", " + changing + ", state)\nSELECT " + prefixed(kept, "t.") + ", ")
	g.attempts(insert)
	insert.add(", ")
	g.crashes(insert)
	insert.add(", ")
	g.availableAt(insert)
	insert.add(", ")
	g.lastError(insert)
	insert.add(", ")
	g.state(insert)
	g.rows(insert.add("\nFROM "), m.table.Hot())
	return []Write{{Query: insert.add(where+m.dialect.lockT(), m.arguments(where)...).query()}, m.remove(m.table.Hot(), where, settlements)}
}

func (m mysqlMove) change(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	g := mysqlGivens(m.dialect, settlements, "state", "attempts", "crashes", "delay", "error")
	update := g.update(m.table.Held())
	update.add("t.state = ")
	g.state(update)
	update.add(", t.attempts = ")
	g.attempts(update)
	update.add(", t.crashes = ")
	g.crashes(update)
	update.add(", t.changes = t.changes + 1, t.available_at = ")
	g.availableAt(update)
	update.add(", t.last_error = ")
	g.lastError(update)
	return []Write{{Counts: true, Query: update.add("\nWHERE t.state <> 'error'").query()}}
}

func (m mysqlMove) free(settlements []Settlement) []Write {
	if len(settlements) == 0 {
		return nil
	}
	g := mysqlGivens(m.dialect, settlements, "attempts", "crashes", "error")
	update := g.update(m.table.Hot())
	update.add("t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = ")
	g.attempts(update)
	update.add(", t.crashes = ")
	g.crashes(update)
	update.add(", t.last_error = ")
	g.lastError(update)
	return []Write{{Counts: true, Query: update.add("\nWHERE t.claim_token = ?", m.token).query()}}
}

// lockT locks the rows t that are selected, and not those that are joined with
// them.
func (d mysql) lockT() string {
	if d.isMySQL8() {
		return " FOR UPDATE OF t"
	}
	return " FOR UPDATE"
}
