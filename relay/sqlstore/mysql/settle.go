package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Settle implements [backend.Backend]. By rows it locks all of them first, counts those
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
		settled, err = backend.ReadSettled(ctx, tx, query("SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM "+m.table.Hot+" AS t FORCE INDEX (PRIMARY)"+
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

// Purge implements [backend.Backend].
func (m *MySQL) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	old := m.sql.Fill("old done rows", []string{":retention", microseconds(-retention), ":limit", number(limit)})
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, old)
		if err != nil {
			return err
		}
		purged = len(ids)
		_, err = backend.Exec(ctx, tx, m.deleteByID(m.table.Done, "PRIMARY", ids, func(where *text) {
			where.add("t.finished_at < utc_timestamp(6) + INTERVAL " + microseconds(-retention) + " MICROSECOND")
		})...)
		return err
	})
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
	writes = append(writes, m.finish(m.table.Hot, m.claimed(), groups["hot done"])...)
	writes = append(writes, m.finish(m.table.Held, " AND t.state <> 'error'", groups["held done"])...)
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
			add("REPLACE INTO " + m.table.Done + " (" + backend.Kept + ", " + backend.Changing + ", finished_at, receipt, relay)\nSELECT " + backend.Of("t", backend.Kept) + ", ")
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
		add("INSERT INTO " + m.table.Held + " (" + backend.Kept + ", " + backend.Changing + ", state)\nSELECT " + backend.Of("t", backend.Kept) + ", ")
	g.attempts(insert)
	insert.add(", ")
	g.crashes(insert)
	insert.add(", ")
	g.availableAt(insert)
	insert.add(", ")
	g.lastError(insert)
	insert.add(", ")
	g.state(insert)
	g.rows(insert.add("\nFROM "), m.table.Hot)
	return []write{{Query: insert.add(where+m.sql.Text("lock t"), m.arguments(where)...).query()}, m.remove(m.table.Hot, where, settlements)}
}

func (m moving) change(settlements []relay.Settlement) []write {
	if len(settlements) == 0 {
		return nil
	}
	g := givens(m.server, settlements, "state", "attempts", "crashes", "delay", "error")
	update := g.update(m.table.Held)
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
	update := g.update(m.table.Hot)
	update.add("t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = ")
	g.attempts(update)
	update.add(", t.crashes = ")
	g.crashes(update)
	update.add(", t.last_error = ")
	g.lastError(update)
	return []write{{counts: true, Query: update.add("\nWHERE t.claim_token = ?", m.token).query()}}
}

// given are the values of settlements. Those that are the same for all rows
// stand in the statement: most batches are all done, at their first attempt.
// Others come as a table g, which is joined.
type given struct {
	server      string
	settlements []relay.Settlement
	columns     []column // of g, but for lane, id and n
	messages    bool     // g has n: each row has its message, too
}

type column struct {
	name, as string
	value    func(*relay.Settlement) any // int64 or string
}

var givenColumns = []column{
	{"state", "varchar(16)", func(s *relay.Settlement) any { return string(s.State) }},
	{"attempts", "int", func(s *relay.Settlement) any { return int64(s.Attempts) }},
	{"crashes", "int", func(s *relay.Settlement) any { return int64(s.Crashes) }},
	{"delay", "bigint", func(s *relay.Settlement) any { return s.Delay.Microseconds() }},
	{"error", "longtext", func(s *relay.Settlement) any { return s.Error }},
	{"receipt", "longtext", func(s *relay.Settlement) any { return s.Receipt }},
}

// givens has the columns that a statement uses, and no other: MariaDB leaves
// unused ones out of a list, and then misses them.
func givens(server string, settlements []relay.Settlement, used ...string) *given {
	g := &given{server: server, settlements: settlements, messages: true}
	for _, c := range givenColumns {
		if slices.Contains(used, c.name) && !backend.AllEqual(backend.Column(settlements, c.value)) {
			g.columns = append(g.columns, c)
		}
	}
	return g
}

// write writes a column's value: the same for all rows, or that of g.
func (g *given) write(to *text, name string) {
	for _, c := range g.columns {
		if c.name == name {
			to.add("g." + name)
			return
		}
	}
	for _, c := range givenColumns {
		if c.name == name {
			addValue(to, c.value(&g.settlements[0]))
		}
	}
}

func addValue(to *text, value any) {
	if n, ok := value.(int64); ok {
		to.add(number(n))
		return
	}
	to.add("?", value)
}

func (g *given) state(to *text)    { g.write(to, "state") }
func (g *given) attempts(to *text) { g.write(to, "attempts") }
func (g *given) crashes(to *text)  { g.write(to, "crashes") }

// lastError stays what it was if there is no other.
func (g *given) lastError(to *text) { g.nullable(to, "error", "t.last_error") }

func (g *given) receipt(to *text) { g.nullable(to, "receipt", "NULL") }

func (g *given) nullable(to *text, name, otherwise string) {
	var part text
	g.write(&part, name)
	if len(part.args) == 1 {
		if part.args[0] == "" {
			to.add(otherwise)
		} else {
			to.add("?", part.args[0])
		}
		return
	}
	to.add("coalesce(nullif(g." + name + ", ''), " + otherwise + ")")
}

// availableAt is a time from now for a retry, and stays what it was otherwise.
// No two texts are compared that have no column's collation: a connection's may
// be another one for arguments than for what stands in a statement.
func (g *given) availableAt(to *text) {
	var state text
	if g.state(&state); len(state.args) == 1 && state.args[0] != "retry" {
		to.add("t.available_at")
		return
	}
	whenRetry, otherwise := "", ""
	if len(state.args) == 0 {
		whenRetry, otherwise = "CASE WHEN "+state.sql.String()+" = 'retry' THEN ", " ELSE t.available_at END"
	}
	to.add(whenRetry + "utc_timestamp(6) + INTERVAL ")
	g.write(to, "delay")
	to.add(" MICROSECOND" + otherwise)
}

// rows writes what comes after FROM, up to conditions: the rows of a table, as t,
// found by their keys. If they are all that is given, they are a condition, which
// costs a little less than a join.
func (g *given) rows(to *text, from string) {
	if len(g.columns) == 0 {
		to.add(from + " AS t FORCE INDEX (PRIMARY)\nWHERE " + rowsOf(g.settlements))
		return
	}
	g.table(to)
	to.add(from + " AS t FORCE INDEX (PRIMARY)" + g.on() + "\nWHERE TRUE")
}

// update begins an update of the same rows.
func (g *given) update(table string) *text {
	to := (&text{}).add("UPDATE ")
	g.table(to)
	return to.add(table + " AS t FORCE INDEX (PRIMARY)" + g.on() + " SET ")
}

// table writes g, which is joined first.
func (g *given) table(to *text) {
	if g.server == mysql8 {
		g.json(to)
	} else {
		g.values(to)
	}
	to.add(" AS g STRAIGHT_JOIN ")
}

// on finds the row t of each row g. The message of the nth row stands at the nth place
// of one text: that is compared as exactly as a list of messages, and costs a server
// a third of what it takes to read one.
func (g *given) on() string {
	const place = "36 * g.n - 35, 36" // as MessageID is 36 characters
	return " ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(" + messages(g.settlements, "") + ", " + place + ")"
}

// messages is one text of all messages.
func messages(settlements []relay.Settlement, separator string) string {
	const charset = "_ascii'" // else a server walks through characters that may be longer
	text := make([]byte, 0, len(charset)+37*len(settlements)+1)
	text = append(text, charset...)
	for i := range settlements {
		text = append(append(text, settlements[i].MessageID...), separator...)
	}
	return string(append(text, '\''))
}

// values is a list of rows, the first of which names the columns. Only MariaDB
// takes the others as one list.
func (g *given) values(to *text) {
	for i := range g.settlements {
		begin, end := ",(", ")"
		switch {
		case i == 0:
			begin, end = "(SELECT ", ""
		case g.server != mariaDB:
			begin, end = " UNION ALL SELECT ", ""
		case i == 1:
			begin = " UNION ALL VALUES ("
		}
		g.row(to, begin, i, &g.settlements[i])
		to.add(end)
	}
	to.add(")")
}

func (g *given) row(to *text, begin string, at int, s *relay.Settlement) {
	named := at == 0
	as := func(name string) string {
		if named {
			return " AS " + name
		}
		return ""
	}
	to.add(begin + strconv.Itoa(s.Lane) + as("lane") + "," + strconv.FormatInt(s.ID, 10) + as("id"))
	if g.messages {
		to.add("," + strconv.Itoa(at+1) + as("n"))
	}
	for _, c := range g.columns {
		to.add(",")
		if value := c.value(s); named {
			g.first(to, c, value)
		} else {
			addValue(to, value)
		}
		to.add(as(c.name))
	}
}

// first writes a column's first value with its type: from an argument of a
// prepared statement the server takes the type as it is, and then cuts off, or
// refuses, what is longer in the rows below.
func (g *given) first(to *text, c column, value any) {
	if _, isText := value.(string); !isText {
		addValue(to, value)
		return
	}
	longest := 1
	for i := range g.settlements {
		longest = max(longest, len(c.value(&g.settlements[i]).(string)))
	}
	to.add("CAST(? AS CHAR("+strconv.Itoa(longest)+") CHARACTER SET utf8mb4) COLLATE utf8mb4_bin", value)
}

// json is the same as a list in a text, which is an argument unless it has but
// numbers.
func (g *given) json(to *text) {
	items := make([][]any, len(g.settlements))
	for i := range g.settlements {
		s := &g.settlements[i]
		items[i] = []any{s.Lane, s.ID}
		for _, c := range g.columns {
			items[i] = append(items[i], c.value(s))
		}
	}
	list := bind.JSON(items)
	columns := "lane smallint PATH '$[0]', id bigint PATH '$[1]'"
	if g.messages {
		columns += ", n FOR ORDINALITY"
	}
	for i, c := range g.columns {
		columns += ", " + c.name + " " + c.as + " PATH '$[" + strconv.Itoa(i+2) + "]'"
	}
	rest := ", '$[*]' COLUMNS (" + columns + "))"
	if len(g.columns) == 0 {
		to.add("JSON_TABLE('" + list + "'" + rest)
		return
	}
	to.add("JSON_TABLE(?"+rest, list)
}

// rowsOf is a condition that finds rows t by their keys: ranges of the index. It
// looks for a row's message in the text of those that are given beside its id. No
// message changes its row, so that this says which is whose. Such a text costs half of
// what a list does, if it is short.
func rowsOf(settlements []relay.Settlement) string {
	const most = 32
	var among backend.Alternatives
	for i := 0; i < len(settlements); {
		first, lane, ids := i, settlements[i].Lane, []int64(nil)
		for ; i < len(settlements) && settlements[i].Lane == lane && len(ids) < most; i++ {
			ids = append(ids, settlements[i].ID)
		}
		among.Add(lane, "t.lane = "+strconv.Itoa(lane)+" AND t.id IN "+backend.NumberList(ids)+" AND instr("+messages(settlements[first:i], ",")+", t.message_id)")
	}
	return among.Condition()
}
