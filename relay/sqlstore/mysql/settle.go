package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Settle implements [backend.Backend]. By lanes it locks the lanes against a takeover, and
// goes on with the settlements whose leases hold. By rows it locks all rows first, counts those
// that have another token, and changes the others.
//
// Then rows are locked and written where they go, and deleted where they were. Who settles the
// same rows at the same time waits, and finds none. Each group of settlements has one statement
// of either kind, and one that is empty has none.
func (m *MySQL) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (settled backend.Settled, err error) {
	if tx == nil {
		err = m.inTx(ctx, func(tx *sql.Tx) error {
			settled, err = m.Settle(ctx, tx, relay, keep, settlements)
			return err
		})
		return settled, err
	}
	move := moving{MySQL: m, relay: relay, keep: keep}
	if token := settlements[0].Token; token != "" {
		move.claimed = text{" AND t.claim_token = ?", []any{token}}
		settled, err = backend.ReadSettled(ctx, tx, query("SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM "+m.table.Pending+" AS t FORCE INDEX (PRIMARY)"+
			"\nWHERE "+rowsOf(settlements)+" FOR UPDATE", token))
	} else {
		settled, err = m.lockLanes(ctx, tx, relay, settlements)
		if first := settlements[0]; backend.NamesSinks(&first) {
			move.claimed = text{" AND t.sinks = ?", []any{first.Sinks}}
		}
		settlements = settled.HeldOf(settlements)
	}
	if err != nil {
		return settled, err
	}
	for part := range slices.Chunk(settlements, mostGiven) {
		groups := backend.GroupsOf(part)
		writes := move.deadLetters(part)
		writes = append(writes, move.finish(m.table.Pending, move.claimed, groups.HotDone)...)
		writes = append(writes, move.finish(m.table.Held, text{sql: " AND t.state <> 'error'"}, groups.HeldDone)...)
		writes = append(writes, move.others(groups)...)
		if err := settled.Write(ctx, tx, writes); err != nil {
			return settled, err
		}
	}
	return settled, nil
}

// lockLanes locks the settlements' lanes against a takeover, and tells which leases hold.
func (m *MySQL) lockLanes(ctx context.Context, tx *sql.Tx, relay string, settlements []storage.Settlement) (backend.Settled, error) {
	lanes, pairs := leaseLists(backend.LeasesOf(settlements))
	if _, err := backend.Exec(ctx, tx, m.sql.Fill("lock lanes of settlements", []string{":lanes", lanes})); err != nil {
		return backend.Settled{}, err
	}
	return backend.ReadSettled(ctx, tx, m.sql.Fill("leases of settlements", []string{":lanes", lanes, ":leases", pairs}, relay))
}

// SettleParts implements [backend.Backend]. What it writes beside the rows locks them.
func (m *MySQL) SettleParts(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (backend.Settled, error) {
	settled, err := m.lockLanes(ctx, tx, relay, settlements)
	if err != nil {
		return settled, err
	}
	for some := range slices.Chunk(settled.HeldOf(settlements), mostGiven) {
		if err := settled.Write(ctx, tx, moving{MySQL: m}.deadLetters(some)); err != nil {
			return settled, err
		}
		for _, parts := range backend.PartsOf(some, keep) {
			from, among := m.table.Pending, []string{"sinks"}
			where := func(*given) text { return text{} }
			if parts.Deferred {
				from, among = m.table.Held, []string{"sinks", "holds"}
				where = func(g *given) text {
					return join(" AND t.state <> 'error' AND (t.holds < 2 OR ", g.value("holds"), " = 0)")
				}
			}
			var writes []backend.Write
			if len(parts.Done) > 0 {
				g := givens(m.server, parts.Done, append(among, "part", "attempts", "crashes", "error", "receipt")...)
				writes = append(writes, backend.Write{Query: m.keepDone(relay, g, join(backend.KeptFor(""), g.value("part")), join(g.rows(from), where(g)))})
			}
			if len(parts.Held) > 0 {
				g := givens(m.server, parts.Held, append(among, "part", "state", "attempts", "crashes", "delay", "error", "holds")...)
				writes = append(writes, backend.Write{Query: m.hold(g, join(backend.KeptFor(""), g.value("part")), join(g.rows(from), where(g)))})
			}
			g := givens(m.server, parts.All, append(among, "rest")...)
			writes = append(writes, backend.Write{Counts: true, Query: join(
				m.unchecked+"UPDATE ", g.table(), from+" AS t FORCE INDEX (PRIMARY)", g.on(), " SET t.sinks = ", g.value("rest"), "\nWHERE TRUE", where(g)).query()})
			if err := settled.Write(ctx, tx, writes); err != nil {
				return settled, err
			}
		}
	}
	return settled, nil
}

// keepDone inserts rows t, which come after FROM, among the done ones.
func (m *MySQL) keepDone(relay string, g *given, kept, rows text) backend.Query {
	return join("REPLACE INTO "+m.table.Done+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)",
		"\nSELECT ", kept, ", ", g.value("attempts"), ", ", g.value("crashes"), ", t.available_at, ", g.nullable("error", "t.last_error"),
		", utc_timestamp(6), ", g.nullable("receipt", "NULL"), ", ", arg(relay),
		"\nFROM ", rows, m.sql.Text("lock t")).query()
}

// hold inserts rows t, which come after FROM, among the held ones. Dates that don't exist stay
// behind: a row that has one is parked.
func (m *MySQL) hold(g *given, kept, rows text) backend.Query {
	real := strings.NewReplacer("t.available_at", m.sql.Text("real available_at"), "t.expires_at", m.sql.Text("real expires_at"), "t.created_at", m.sql.Text("real created_at"))
	kept.sql = real.Replace(kept.sql)
	available := g.availableAt()
	available.sql = real.Replace(available.sql)
	return join("INSERT INTO "+m.table.Held+" ("+backend.Kept+", "+backend.Changing+", state, holds)",
		"\nSELECT ", kept, ", ", g.value("attempts"), ", ", g.value("crashes"), ", ", available, ", ", g.nullable("error", "t.last_error"), ", ", g.value("state"), ", ", g.value("holds"),
		"\nFROM ", rows, m.sql.Text("lock t")).query()
}

// mostGiven is how many rows one statement may be given: with too many
// conditions for their memory servers walk over the table.
const mostGiven = 1000

// Purge implements [backend.Backend].
func (m *MySQL) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	old := m.sql.Fill("old done rows", []string{":retention", microseconds(-retention), ":limit", number(limit)})
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, old)
		if err != nil {
			return err
		}
		purged = len(ids)
		_, err = backend.Exec(ctx, tx, m.deleteByID(m.table.Done, "PRIMARY", ids,
			text{sql: "t.finished_at < utc_timestamp(6) + INTERVAL " + microseconds(-retention) + " MICROSECOND"})...)
		if err != nil {
			return err
		}
		return m.purgeIDs(ctx, tx, microseconds(-backend.IDsKept(retention)), limit, &purged)
	})
	return purged, until, err
}

func (m *MySQL) purgeIDs(ctx context.Context, tx *sql.Tx, kept string, limit int, purged *int) error {
	ids, err := backend.Lines(ctx, tx, m.sql.Fill("old ids", []string{":kept", kept, ":limit", number(limit)}))
	if err != nil || len(ids) == 0 {
		return err
	}
	*purged = max(*purged, len(ids))
	_, err = backend.Exec(ctx, tx, m.sql.Fill("delete ids", []string{":kept", kept, ":ids", strings.Repeat(", ?", len(ids))[2:]},
		backend.Column(ids, func(id *string) any { return *id })...))
	return err
}

// moving makes the statements that move rows.
type moving struct {
	*MySQL
	relay   string
	keep    bool
	claimed text // a condition of hot rows: that they are claimed, or have the sinks that are shown
}

// deadLetters are written before their rows move. Who settles the same rows at the same time
// waits, and then finds none.
func (m moving) deadLetters(settlements []storage.Settlement) (writes []backend.Write) {
	hot, held := backend.DeadLettersOf(settlements)
	if len(hot) > 0 {
		writes = append(writes, backend.Write{Query: m.copies(m.table.Pending, hot, m.claimed)})
	}
	if len(held) > 0 {
		g := givens(m.server, held, "holds", "read_at")
		writes = append(writes, backend.Write{Query: m.copies(m.table.Held, held, join(" AND t.state <> 'error' AND (t.holds < 2 OR ", g.value("holds"), " = 0) AND ", g.asRead()))})
	}
	return writes
}

// copies writes the messages that settlements have as their DeadLetter: of those rows of a table
// that meet a condition, which are locked.
func (m *MySQL) copies(from string, settlements []storage.Settlement, where text) backend.Query {
	used := []string{"holds", "read_at", "copy_id", "copy_topic", "copy_headers", "copy_sinks"}
	if backend.BySinks(&settlements[0]) {
		used = append(used, "sinks")
	}
	g := givens(m.server, settlements, used...)
	return join("INSERT INTO "+m.table.Pending+" ("+backend.CopyInto+")",
		"\nSELECT ", g.value("copy_id"), ", ", g.value("copy_topic"), ", t.message_key, t.payload, t.payload_text, ", g.nullable("copy_headers", "NULL"), ", t.priority, "+backend.CopiedExpiry(m.sql.Text("now"))+", ", g.value("copy_sinks"),
		"\nFROM ", g.rows(from), where, "\nORDER BY t.id"+m.sql.Text("lock t")).query()
}

// finish replaces what is the same message with the same id: one that somebody has
// copied back. It would be sent again and again otherwise.
func (m moving) finish(from string, where text, settlements []storage.Settlement) (writes []backend.Write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		g := givens(m.server, settlements, m.identified(from, "attempts", "crashes", "error", "receipt")...)
		writes = append(writes, backend.Write{Query: m.keepDone(m.relay, g, text{sql: backend.Of("t", backend.Kept)}, join(g.rows(from), where))})
	}
	return append(writes, m.remove(from, where, settlements))
}

// others are the statements of rows that aren't done: hot ones that are moved among the held
// ones, held ones that stay there, and claimed ones that are given back.
func (m moving) others(groups backend.Groups) (writes []backend.Write) {
	if some := groups.HotHeld; len(some) > 0 {
		g := givens(m.server, some, "state", "attempts", "crashes", "delay", "error", "holds")
		held := m.hold(g, text{sql: backend.Of("t", backend.Kept)}, join(g.rows(m.table.Pending), m.claimed))
		writes = append(writes, backend.Write{Query: held}, m.remove(m.table.Pending, m.claimed, some))
	}
	if some := groups.HeldHeld; len(some) > 0 {
		g := givens(m.server, some, "state", "attempts", "crashes", "delay", "error", "holds", "read_at", "sinks")
		writes = append(writes, backend.Write{Counts: true, Query: join(
			"UPDATE ", g.table(), m.table.Held+" AS t FORCE INDEX (PRIMARY)", g.on(),
			" SET t.state = ", g.value("state"), ", t.holds = ", g.value("holds"), ", t.attempts = ", g.value("attempts"), ", t.crashes = ", g.value("crashes"),
			", t.changes = t.changes + 1, t.available_at = ", g.availableAt(), ", t.last_error = ", g.nullable("error", "t.last_error"),
			"\nWHERE t.state <> 'error' AND (t.holds < 2 OR ", g.value("holds"), " = 0 AND ", g.value("state"), " <> 'retry') AND ", g.asRead()).query()})
	}
	if some := groups.Freed; len(some) > 0 {
		g := givens(m.server, some, "attempts", "crashes", "error")
		writes = append(writes, backend.Write{Counts: true, Query: join(
			m.unchecked+"UPDATE ", g.table(), m.table.Pending+" AS t FORCE INDEX (PRIMARY)", g.on(),
			" SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = ", g.value("attempts"), ", t.crashes = ", g.value("crashes"),
			", t.last_error = ", g.nullable("error", "t.last_error"),
			"\nWHERE ", text{"t.claim_token = ?", m.claimed.args}).query()})
	}
	return writes
}

// remove finds the rows by their keys, one after the other. By a condition, a
// server reads and locks all that there is if it takes the table for small: a
// DELETE doesn't heed the name of an index enough.
//
// MySQL lets a DELETE be told its index. Walking twice, as a join of keys does, costs a third
// more. Versions before 8.0.20 don't know INDEX yet; in the mode of safe updates they take
// ranges of some index, or refuse.
func (m moving) remove(from string, where text, settlements []storage.Settlement) backend.Write {
	keys := givens(m.server, settlements, m.identified(from)...)
	if m.server == mysql8 && len(keys.columns) == 0 {
		where = join(keys.sameSinks(), where)
		bare := from[strings.LastIndex(from[:len(from)-1], "`"):]                // without its schema
		condition := strings.ReplaceAll(rowsOf(settlements)+where.sql, "t.", "") // no name: 8.0.16 is the first to take one
		return backend.Write{Counts: true, Query: query("DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX("+bare+" PRIMARY) */ FROM "+from+"\nWHERE "+condition, where.args...)}
	}
	where.sql = strings.Replace(where.sql, " AND ", " WHERE ", 1)
	return backend.Write{Counts: true, Query: join("DELETE t FROM ", keys.table(), from+" AS t FORCE INDEX (PRIMARY)", keys.on(), where).query()}
}

// identified are columns, and those that identify a row of the table beside its id, lane and
// message.
func (m *MySQL) identified(table string, columns ...string) []string {
	if table == m.table.Held {
		return append(columns, "sinks")
	}
	return columns
}

// deleteByID is the same where the lanes aren't known, and an index has the ids; of
// the rows that have one, those are deleted of which a condition is true.
func (m *MySQL) deleteByID(from, index string, ids []int64, condition text) (queries []backend.Query) {
	for part := range slices.Chunk(ids, mostGiven) {
		keys := &given{server: m.server, settlements: backend.Column(part, func(id *int64) storage.Settlement { return storage.Settlement{ID: *id} })}
		queries = append(queries, join("DELETE t FROM ", keys.table(), from+" AS t FORCE INDEX ("+index+") ON t.id = g.id WHERE ", condition).query())
	}
	return queries
}

// given are the values of settlements. Those that are the same for all rows
// stand in the statement: most batches are all done, at their first attempt.
// Others come as a table g, which is joined.
type given struct {
	server      string
	settlements []storage.Settlement
	columns     []column // of g, but for lane, id and n
	messages    bool     // g has n: each row has its message, too
	sinks       bool     // and its sinks
}

type column struct {
	name, as string
	value    func(*storage.Settlement) any // int64 or string
}

var givenColumns = []column{
	{"state", "varchar(16)", func(s *storage.Settlement) any { return string(s.State) }},
	{"attempts", "int", func(s *storage.Settlement) any { return int64(s.Attempts) }},
	{"crashes", "int", func(s *storage.Settlement) any { return int64(s.Crashes) }},
	{"delay", "bigint", func(s *storage.Settlement) any { return s.Delay.Microseconds() }},
	{"error", "longtext", func(s *storage.Settlement) any { return s.Error }},
	{"receipt", "longtext", func(s *storage.Settlement) any { return s.Receipt }},
	{"holds", "smallint", func(s *storage.Settlement) any { return backend.HoldsOf(s) }},
	{"read_at", "varchar(30)", func(s *storage.Settlement) any { return timestamp(backend.ReadAt(s)) }},
	{"copy_id", "char(36)", func(s *storage.Settlement) any { return s.DeadLetter.MessageID }},
	{"copy_topic", "varchar(255)", func(s *storage.Settlement) any { return s.DeadLetter.Topic }},
	{"copy_headers", "longtext", func(s *storage.Settlement) any { return s.DeadLetter.Headers }},
	{"copy_sinks", "varchar(400)", func(s *storage.Settlement) any { return s.DeadLetter.Sinks }},
	{"sinks", "varchar(400)", func(s *storage.Settlement) any { return s.Sinks }},
	{"part", "varchar(400)", func(s *storage.Settlement) any { return s.For }},
	{"rest", "varchar(400)", func(s *storage.Settlement) any { return s.Left }},
}

// givens has the columns that a statement uses, and no other: MariaDB leaves
// unused ones out of a list, and then misses them.
func givens(server string, settlements []storage.Settlement, used ...string) *given {
	g := &given{server: server, settlements: settlements, messages: true, sinks: slices.Contains(used, "sinks")}
	for _, c := range givenColumns {
		if !slices.Contains(used, c.name) {
			continue
		}
		values := backend.Column(settlements, c.value)
		if slices.ContainsFunc(values, func(v any) bool { return v != values[0] }) {
			g.columns = append(g.columns, c)
		}
	}
	return g
}

// value is that of a column: the same for all rows, or that of g.
func (g *given) value(name string) text {
	if slices.ContainsFunc(g.columns, func(c column) bool { return c.name == name }) {
		return text{sql: "g." + name}
	}
	i := slices.IndexFunc(givenColumns, func(c column) bool { return c.name == name })
	return valueOf(givenColumns[i].value(&g.settlements[0]))
}

func valueOf(value any) text {
	if n, ok := value.(int64); ok {
		return text{sql: number(n)}
	}
	return arg(value)
}

// nullable is something else where the text is empty.
func (g *given) nullable(name, otherwise string) text {
	value := g.value(name)
	switch {
	case len(value.args) == 0:
		return text{sql: "coalesce(nullif(g." + name + ", ''), " + otherwise + ")"}
	case value.args[0] == "":
		return text{sql: otherwise}
	default:
		return value
	}
}

// asRead is backend.AsRead of a row t.
func (g *given) asRead() text {
	return join("(t.available_at IS NULL OR t.available_at <= CAST(", g.value("read_at"), " AS DATETIME(6)))")
}

// availableAt is a time from now for a retry, now for a row that is parked and holds its key,
// and stays what it was otherwise. No two texts are compared that have no column's collation: a
// connection's may be another one for arguments than for what stands in a statement.
func (g *given) availableAt() text {
	state, holds, later := g.value("state"), g.value("holds"), join("utc_timestamp(6) + INTERVAL ", g.value("delay"), " MICROSECOND")
	switch {
	case holds.sql == "1" || len(state.args) > 0 && state.args[0] == "retry":
		return later
	case len(state.args) == 0:
		return join("CASE WHEN ", state, " = 'retry' OR ", holds, " > 0 THEN ", later, " ELSE t.available_at END")
	case holds.sql != "0":
		return join("CASE WHEN ", holds, " > 0 THEN ", later, " ELSE t.available_at END")
	default:
		return text{sql: "t.available_at"}
	}
}

// rows is what comes after FROM, up to conditions: the rows of a table, as t,
// found by their keys. If they are all that is given, they are a condition, which
// costs a little less than a join.
func (g *given) rows(from string) text {
	if len(g.columns) == 0 {
		return join(from+" AS t FORCE INDEX (PRIMARY)\nWHERE "+rowsOf(g.settlements), g.sameSinks())
	}
	return join(g.table(), from+" AS t FORCE INDEX (PRIMARY)", g.on(), "\nWHERE TRUE")
}

// table is g, which is joined first. On MySQL it is a list in a text, which is an argument
// unless it has but numbers. Others have a list of rows, the first of which names the columns;
// only MariaDB takes the others as one list.
func (g *given) table() text {
	if g.server == mysql8 {
		items := make([][]any, len(g.settlements))
		for i := range g.settlements {
			s := &g.settlements[i]
			items[i] = []any{s.Lane, s.ID}
			for _, c := range g.columns {
				items[i] = append(items[i], c.value(s))
			}
		}
		list := arg(bind.JSON(items))
		if len(g.columns) == 0 {
			list = text{sql: "'" + bind.JSON(items) + "'"}
		}
		columns := "lane smallint PATH '$[0]', id bigint PATH '$[1]'"
		if g.messages {
			columns += ", n FOR ORDINALITY"
		}
		for i, c := range g.columns {
			columns += ", " + c.name + " " + c.as + " PATH '$[" + strconv.Itoa(i+2) + "]'"
		}
		return join("JSON_TABLE(", list, ", '$[*]' COLUMNS ("+columns+")) AS g STRAIGHT_JOIN ")
	}
	var parts []any
	for i := range g.settlements {
		s, begin, end := &g.settlements[i], ",(", ")"
		switch {
		case i == 0:
			begin, end = "(SELECT ", ""
		case g.server != mariaDB:
			begin, end = " UNION ALL SELECT ", ""
		case i == 1:
			begin = " UNION ALL VALUES ("
		}
		as := func(name string) string {
			if i > 0 {
				return ""
			}
			return " AS " + name
		}
		parts = append(parts, begin+strconv.Itoa(s.Lane)+as("lane")+","+number(s.ID)+as("id"))
		if g.messages {
			parts = append(parts, ","+strconv.Itoa(i+1)+as("n"))
		}
		for _, c := range g.columns {
			value := valueOf(c.value(s))
			if i == 0 {
				value = g.first(c)
			}
			parts = append(parts, ",", value, as(c.name))
		}
		parts = append(parts, end)
	}
	return join(append(parts, ") AS g STRAIGHT_JOIN ")...)
}

// first is a column's first value with its type: from an argument of a
// prepared statement the server takes the type as it is, and then cuts off, or
// refuses, what is longer in the rows below.
func (g *given) first(c column) text {
	value := valueOf(c.value(&g.settlements[0]))
	if len(value.args) == 0 {
		return value
	}
	longest := 1
	for i := range g.settlements {
		longest = max(longest, len(c.value(&g.settlements[i]).(string)))
	}
	return join("CAST(", value, " AS CHAR("+strconv.Itoa(longest)+") CHARACTER SET utf8mb4) COLLATE utf8mb4_bin")
}

// on finds the row t of each row g. The message of the nth row stands at the nth place
// of one text: that is compared as exactly as a list of messages, and costs a server
// a third of what it takes to read one.
func (g *given) on() text {
	const place = "36 * g.n - 35, 36" // as MessageID is 36 characters
	return join(" ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr("+messages(g.settlements, "")+", "+place+")", g.sameSinks())
}

// sameSinks is a condition of a row that is known by its sinks, too.
func (g *given) sameSinks() text {
	value := g.value("sinks")
	switch {
	case !g.sinks:
		return text{}
	case len(value.args) > 0 && value.args[0] == "":
		return text{sql: " AND t.sinks = ''"}
	default: // whatever the connection's collation is
		return join(" AND t.sinks = CONVERT(", value, " USING utf8mb4) COLLATE utf8mb4_bin")
	}
}

// messages is one text of all messages.
func messages(settlements []storage.Settlement, separator string) string {
	const charset = "_ascii'" // else a server walks through characters that may be longer
	text := make([]byte, 0, len(charset)+37*len(settlements)+1)
	text = append(text, charset...)
	for i := range settlements {
		text = append(append(text, settlements[i].MessageID...), separator...)
	}
	return string(append(text, '\''))
}

// rowsOf is a condition that finds rows t by their keys: ranges of the index. It
// looks for a row's message in the text of those that are given beside its id. No
// message changes its row, so that this says which is whose. Such a text costs half of
// what a list does, if it is short.
func rowsOf(settlements []storage.Settlement) string {
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
