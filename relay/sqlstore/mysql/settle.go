package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Settle implements [backend.Settling]. By rows it locks all of them first, counts those
// that have another token, and changes the others.
func (m *MySQL) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []relay.Settlement) (settled backend.Settled, err error) {
	if tx == nil {
		err = m.inTx(ctx, func(tx *sql.Tx) error {
			settled, err = m.Settle(ctx, tx, relay, keep, settlements)
			return err
		})
		return settled, err
	}
	move := moving{MySQL: m, relay: relay, keep: keep, token: settlements[0].Token}
	if move.token != "" {
		settled, err = backend.ReadSettled(ctx, tx, query("SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM "+m.table.Hot()+" AS t FORCE INDEX (PRIMARY)"+
			"\nWHERE "+rowsOf(settlements)+" FOR UPDATE", move.token))
	} else {
		lanes, pairs := leaseLists(backend.LeasesOf(settlements))
		if _, err := backend.Exec(ctx, tx, m.sql.Fill("lock lanes of settlements", []string{":lanes", lanes})); err != nil {
			return settled, err
		}
		settled, err = backend.ReadSettled(ctx, tx, m.sql.Fill("leases of settlements", []string{":lanes", lanes, ":leases", pairs}, relay))
		settlements = settled.HeldOf(settlements)
	}
	if err != nil {
		return settled, err
	}
	for _, write := range move.writes(settlements) {
		affected, err := backend.Exec(ctx, tx, write.Query)
		if err != nil {
			return settled, err
		}
		if write.counts {
			settled.Changed += affected
		}
	}
	return settled, nil
}

// Purge implements [backend.Settling].
func (m *MySQL) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	old := m.sql.Fill("old done rows", []string{":retention", microseconds(-retention), ":limit", number(limit)})
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, old)
		if err != nil {
			return err
		}
		purged = len(ids)
		_, err = backend.Exec(ctx, tx, m.deleteByID(m.table.Done(), "PRIMARY", ids, func(where *text) {
			where.add("t.finished_at < utc_timestamp(6) + INTERVAL " + microseconds(-retention) + " MICROSECOND")
		})...)
		return err
	})
	if err == nil {
		_, err = backend.ExecTx(ctx, m.db, readCommitted, m.sql.Query("purge relays"))
	}
	return purged, until, err
}

// write is one statement of a settle. The rows that it affects may count as changed.
type write struct {
	backend.Query
	counts bool
}

// moving makes the statements that move rows: first they are locked, and
// written where they go, then deleted where they were. Who settles the same rows
// at the same time waits, and finds none. Each group of settlements has one
// statement of either kind, and one that is empty has none.
type moving struct {
	*MySQL
	relay string
	keep  bool
	token string // by rows
}

// mostGiven is how many rows one statement may be given: with too many
// conditions for their memory servers walk over the table, and TiDB, which has no
// other list, nests the selects of a union.
const mostGiven = 1000

func (m moving) writes(settlements []relay.Settlement) (writes []write) {
	for part := range slices.Chunk(settlements, mostGiven) {
		writes = append(writes, m.part(part)...)
	}
	return writes
}

func (m moving) part(settlements []relay.Settlement) (writes []write) {
	groups := map[string][]relay.Settlement{}
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
func groupOf(s relay.Settlement) string {
	from, to := "hot", "held"
	if s.Held {
		from = "held"
	}
	switch s.State {
	case relay.StatePending:
		return "freed"
	case relay.StateDone:
		to = "done"
	}
	return from + " " + to
}

// claimed is a condition of rows that are claimed, with an argument for the
// token.
func (m moving) claimed() string {
	if m.token == "" {
		return ""
	}
	return " AND t.claim_token = ?"
}

func (m moving) arguments(where string) []any {
	if where == "" || where != m.claimed() {
		return nil
	}
	return []any{m.token}
}

// finish replaces what is the same message with the same id: one that somebody has
// copied back. It would be sent again and again otherwise.
func (m moving) finish(from, where string, settlements []relay.Settlement) (writes []write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		g := givens(m.server, settlements, "attempts", "crashes", "error", "receipt")
		insert := (&text{}).
			add("REPLACE INTO " + m.table.Done() + " (" + backend.Kept + ", " + backend.Changing + ", finished_at, receipt, relay)\nSELECT " + backend.Of("t", backend.Kept) + ", ")
		g.attempts(insert)
		insert.add(", ")
		g.crashes(insert)
		insert.add(", t.available_at, ")
		g.lastError(insert)
		insert.add(", utc_timestamp(6), ")
		g.receipt(insert)
		insert.add(", ?\n", m.relay)
		g.rows(insert.add("FROM "), from)
		writes = append(writes, write{Query: insert.add(where+m.sql.Text("lock t"), m.arguments(where)...).query()})
	}
	return append(writes, m.remove(from, where, settlements))
}

// remove finds the rows by their keys, one after the other. By a condition, a
// server reads and locks all that there is if it takes the table for small: a
// DELETE doesn't heed the name of an index enough.
func (m moving) remove(from, where string, settlements []relay.Settlement) write {
	if m.server == mysql8 {
		return m.removeHinted(from, where, settlements)
	}
	keys := givens(m.server, settlements)
	remove := (&text{}).add("DELETE t FROM ")
	keys.table(remove)
	remove.add(from + " AS t FORCE INDEX (PRIMARY)" + keys.on())
	if where != "" {
		remove.add(strings.Replace(where, " AND ", " WHERE ", 1), m.arguments(where)...)
	}
	return write{counts: true, Query: remove.query()}
}

// removeHinted is for servers that let a DELETE be told its index. Walking twice,
// as a join of keys does, costs a third more. Those before 8.0.20 don't know INDEX
// yet; in the mode of safe updates they take ranges of some index, or refuse.
func (m moving) removeHinted(from, where string, settlements []relay.Settlement) write {
	condition := strings.ReplaceAll(rowsOf(settlements)+where, "t.", "") // no name: 8.0.16 is the first to take one
	return write{counts: true, Query: query("DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX("+bare(from)+" PRIMARY) */ FROM "+from+
		"\nWHERE "+condition, m.arguments(where)...)}
}

// bare is a quoted name without its schema.
func bare(name string) string { return name[strings.LastIndex(name[:len(name)-1], "`"):] }

// deleteByID is the same where the lanes aren't known, and an index has the ids; of
// the rows that have one, those are deleted of which a condition is true.
func (m *MySQL) deleteByID(from, index string, ids []int64, condition func(where *text)) (queries []backend.Query) {
	for part := range slices.Chunk(ids, mostGiven) {
		keys := &given{server: m.server, settlements: backend.Column(part, func(id *int64) relay.Settlement { return relay.Settlement{ID: *id} })}
		remove := (&text{}).add("DELETE t FROM ")
		keys.table(remove)
		condition(remove.add(from + " AS t FORCE INDEX (" + index + ") ON t.id = g.id WHERE "))
		queries = append(queries, remove.query())
	}
	return queries
}

func (m moving) hold(settlements []relay.Settlement) []write {
	if len(settlements) == 0 {
		return nil
	}
	g, where := givens(m.server, settlements, "state", "attempts", "crashes", "delay", "error"), m.claimed()
	insert := (&text{}).
		add("INSERT INTO " + m.table.Held() + " (" + backend.Kept + ", " + backend.Changing + ", state)\nSELECT " + backend.Of("t", backend.Kept) + ", ")
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
	return []write{{Query: insert.add(where+m.sql.Text("lock t"), m.arguments(where)...).query()}, m.remove(m.table.Hot(), where, settlements)}
}

func (m moving) change(settlements []relay.Settlement) []write {
	if len(settlements) == 0 {
		return nil
	}
	g := givens(m.server, settlements, "state", "attempts", "crashes", "delay", "error")
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
	return []write{{counts: true, Query: update.add("\nWHERE t.state <> 'error'").query()}}
}

func (m moving) free(settlements []relay.Settlement) []write {
	if len(settlements) == 0 {
		return nil
	}
	g := givens(m.server, settlements, "attempts", "crashes", "error")
	update := g.update(m.table.Hot())
	update.add("t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = ")
	g.attempts(update)
	update.add(", t.crashes = ")
	g.crashes(update)
	update.add(", t.last_error = ")
	g.lastError(update)
	return []write{{counts: true, Query: update.add("\nWHERE t.claim_token = ?", m.token).query()}}
}
