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

// Settle implements [backend.Backend]. For rows of leased lanes, it locks the lanes against a
// takeover, and continues with the settlements whose leases are still valid. For claimed rows, it
// locks all rows, counts the rows that have another token, and changes the rest.
//
// For each group of rows that move, one statement locks the rows and copies them to their new
// table, and another one deletes them from the old table. No statement runs for an empty group. A
// concurrent settle of the same rows waits until the rows have moved, and then doesn't find them.
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

// lockLanes locks the settlements' lanes against a takeover, and returns the leases that are still valid.
func (m *MySQL) lockLanes(ctx context.Context, tx *sql.Tx, relay string, settlements []storage.Settlement) (backend.Settled, error) {
	lanes, pairs := leaseLists(backend.LeasesOf(settlements))
	if _, err := backend.Exec(ctx, tx, m.sql.Fill("lock lanes of settlements", []string{":lanes", lanes})); err != nil {
		return backend.Settled{}, err
	}
	return backend.ReadSettled(ctx, tx, m.sql.Fill("leases of settlements", []string{":lanes", lanes, ":leases", pairs}, relay))
}

// SettleParts implements [backend.Backend]. Each statement locks the original rows that it copies or updates.
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
				g := givens(m.server, parts.Held, append(among, "part", "state", "attempts", "crashes", "delay", "error", "holds", "attempt_log")...)
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

// keepDone returns the statement that copies rows t to the done table. The last argument is the part of the
// statement after FROM.
func (m *MySQL) keepDone(relay string, g *given, kept, rows text) backend.Query {
	return join("REPLACE INTO "+m.table.Done+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)",
		"\nSELECT ", kept, ", ", g.value("attempts"), ", ", g.value("crashes"), ", t.available_at, ", g.nullable("error", "t.last_error"),
		", utc_timestamp(6), ", g.nullable("receipt", "NULL"), ", ", arg(relay),
		"\nFROM ", rows, m.sql.Text("lock t")).query()
}

// hold returns the statement that copies rows t to the held table. The last argument is the part of the statement
// after FROM. If a row has a date that doesn't exist, the relay parks the row, and the date isn't copied.
func (m *MySQL) hold(g *given, kept, rows text) backend.Query {
	real := strings.NewReplacer("t.available_at", m.sql.Text("real available_at"), "t.expires_at", m.sql.Text("real expires_at"), "t.created_at", m.sql.Text("real created_at"))
	kept.sql = real.Replace(kept.sql)
	available := g.availableAt()
	available.sql = real.Replace(available.sql)
	return join("INSERT INTO "+m.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)",
		"\nSELECT ", kept, ", ", g.value("attempts"), ", ", g.value("crashes"), ", ", available, ", ", g.nullable("error", "t.last_error"), ", ", g.nullable("attempt_log", "t.attempt_log"), ", ", g.value("state"), ", ", g.value("holds"),
		"\nFROM ", rows, m.sql.Text("lock t")).query()
}

// mostGiven is the maximum number of rows in one statement. If a statement has more
// conditions than fit in the optimizer's memory, a server scans the whole table.
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

// moving builds the statements that move rows.
type moving struct {
	*MySQL
	relay   string
	keep    bool
	claimed text // the condition that a row of outbox has the claim's token or, in leased lanes, the settlements' sinks; empty if the settlements name none
}

// deadLetters returns the statements that write dead letters. They run before the rows are moved, and
// lock the rows. A concurrent settle of the same rows waits until the rows have moved, and then doesn't
// find them.
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

// copies returns the statement that writes the DeadLetters of settlements. The first argument is the table of the settlements' rows, and
// the last argument is a condition on these rows. Rows that don't meet the condition get no dead letter. The statement locks the rows that
// it copies.
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

// finish returns the statements for done rows. They replace a done row of the same message and
// id, which exists if somebody copied the done row back to the table outbox. A plain INSERT
// would fail because of the existing row, and the relay would send the message again and again.
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

// others returns the statements for rows that aren't done: rows that move from outbox to the
// held table, held rows that stay there, and claimed rows that are released.
func (m moving) others(groups backend.Groups) (writes []backend.Write) {
	if some := groups.HotHeld; len(some) > 0 {
		g := givens(m.server, some, "state", "attempts", "crashes", "delay", "error", "holds", "attempt_log")
		held := m.hold(g, text{sql: backend.Of("t", backend.Kept)}, join(g.rows(m.table.Pending), m.claimed))
		writes = append(writes, backend.Write{Query: held}, m.remove(m.table.Pending, m.claimed, some))
	}
	if some := groups.HeldHeld; len(some) > 0 {
		g := givens(m.server, some, "state", "attempts", "crashes", "delay", "error", "holds", "read_at", "sinks", "attempt_log")
		writes = append(writes, backend.Write{Counts: true, Query: join(
			"UPDATE ", g.table(), m.table.Held+" AS t FORCE INDEX (PRIMARY)", g.on(),
			" SET t.state = ", g.value("state"), ", t.holds = ", g.value("holds"), ", t.attempts = ", g.value("attempts"), ", t.crashes = ", g.value("crashes"),
			", t.changes = t.changes + 1, t.available_at = ", g.availableAt(), ", t.last_error = ", g.nullable("error", "t.last_error"), ", t.attempt_log = ", g.nullable("attempt_log", "t.attempt_log"),
			"\nWHERE t.state <> 'error' AND (t.holds < 2 OR ", g.value("holds"), " = 0 AND CAST(", g.value("state"), " AS BINARY) <> 'retry') AND ", g.asRead()).query()}) // the value and the text may have different collations
	}
	if some := groups.Freed; len(some) > 0 {
		g := givens(m.server, some, "attempts", "crashes", "error", "attempt_log")
		writes = append(writes, backend.Write{Counts: true, Query: join(
			m.unchecked+"UPDATE ", g.table(), m.table.Pending+" AS t FORCE INDEX (PRIMARY)", g.on(),
			" SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = ", g.value("attempts"), ", t.crashes = ", g.value("crashes"),
			", t.last_error = ", g.nullable("error", "t.last_error"), ", t.attempt_log = ", g.nullable("attempt_log", "t.attempt_log"),
			"\nWHERE ", text{"t.claim_token = ?", m.claimed.args}).query()})
	}
	return writes
}

// remove returns a DELETE that finds each row by its key. On MariaDB, and for rows with different
// sinks, the DELETE has a join. A DELETE with a condition doesn't always use the index that it
// names: if the server expects a small table, it reads and locks the whole table.
//
// On MySQL, a DELETE of rows with the same sinks has a condition, because a join visits the rows
// twice, which costs a third more. The hint INDEX makes the DELETE use its index. Versions before
// 8.0.20 don't know the hint. On these versions, the variable sql_safe_updates makes the server use
// ranges of some index, or reject the statement.
func (m moving) remove(from string, where text, settlements []storage.Settlement) backend.Write {
	keys := givens(m.server, settlements, m.identified(from)...)
	if m.server == mysql8 && len(keys.columns) == 0 {
		where = join(keys.sameSinks(), where)
		bare := from[strings.LastIndex(from[:len(from)-1], "`"):]                // without its schema
		condition := strings.ReplaceAll(rowsOf(settlements)+where.sql, "t.", "") // no alias: versions before 8.0.16 reject one
		return backend.Write{Counts: true, Query: query("DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX("+bare+" PRIMARY) */ FROM "+from+"\nWHERE "+condition, where.args...)}
	}
	where.sql = strings.Replace(where.sql, " AND ", " WHERE ", 1)
	return backend.Write{Counts: true, Query: join("DELETE t FROM ", keys.table(), from+" AS t FORCE INDEX (PRIMARY)", keys.on(), where).query()}
}

// identified returns the given columns. For the held table, it adds the column `sinks`, because a
// held row is identified by its lane, id, message and sinks.
func (m *MySQL) identified(table string, columns ...string) []string {
	if table == m.table.Held {
		return append(columns, "sinks")
	}
	return columns
}

// deleteByID returns statements that delete rows whose lanes aren't known. They find the
// ids by the given index, and delete only rows that meet the condition.
func (m *MySQL) deleteByID(from, index string, ids []int64, condition text) (queries []backend.Query) {
	for part := range slices.Chunk(ids, mostGiven) {
		keys := &given{server: m.server, settlements: backend.Column(part, func(id *int64) storage.Settlement { return storage.Settlement{ID: *id} })}
		queries = append(queries, join("DELETE t FROM ", keys.table(), from+" AS t FORCE INDEX ("+index+") ON t.id = g.id WHERE ", condition).query())
	}
	return queries
}

// given has the values of settlements. A value that all rows share is written into the statement.
// Most values are shared, because in most batches all rows are done at their first attempt. The
// other values are columns of a table g, which the statement joins.
type given struct {
	server      string
	settlements []storage.Settlement
	columns     []column // the columns of g, except lane, id and n
	messages    bool     // whether g has the column `n`, with which the method [given.on] finds a row's message id
	sinks       bool     // whether rows must also have the sinks of their settlements
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
	{"attempt_log", "longtext", func(s *storage.Settlement) any { return backend.AttemptLog(s) }},
}

// givens returns the values of the settlements, with only the columns that the statement uses.
// MariaDB removes unused columns from a list and then reports them as missing.
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

// value returns the expression for a column: either the value that all rows share, or the column of g.
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

// nullable returns the expression for a column of texts. The second argument is the expression that replaces an empty
// text.
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

// asRead returns the condition of [backend.AsRead] on a row t.
func (g *given) asRead() text {
	return join("(t.available_at IS NULL OR t.available_at <= CAST(", g.value("read_at"), " AS DATETIME(6)))")
}

// availableAt returns the expression for the new available_at. For a retry and for a parked row that
// holds its key, it is the current time plus the delay; for other rows it is the old value. The
// expression compares no argument with a literal, because the two may have different collations.
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

// rows returns the part of a statement after FROM. It finds the settlements' rows by their keys; the alias of their table is t.
// Callers can append conditions. If g has no columns, the part has a condition on the keys,
// which costs a little less than a join.
func (g *given) rows(from string) text {
	if len(g.columns) == 0 {
		return join(from+" AS t FORCE INDEX (PRIMARY)\nWHERE "+rowsOf(g.settlements), g.sameSinks())
	}
	return join(g.table(), from+" AS t FORCE INDEX (PRIMARY)", g.on(), "\nWHERE TRUE")
}

// table returns the table g, followed by STRAIGHT_JOIN, so that the server reads g first. On MySQL,
// g is a JSON list, which is an argument unless it contains only numbers. On MariaDB, g is a SELECT
// of the first row, which names the columns, followed by a list of VALUES.
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
		switch i {
		case 0:
			begin, end = "(SELECT ", ""
		case 1:
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

// first returns a column's first value, cast to a type that fits the longest value. Without
// the cast, the server derives the column's type from the first argument of a prepared
// statement, and then truncates or rejects longer values in the later rows.
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

// on returns the join condition that finds the row t for each row of g. One literal has all message
// ids: for the nth row of g, the row t must have the nth of these ids. The literal is as exact as a
// list of message ids, and costs the server a third as much.
func (g *given) on() text {
	const place = "36 * g.n - 35, 36" // because a MessageID has 36 characters
	return join(" ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr("+messages(g.settlements, "")+", "+place+")", g.sameSinks())
}

// sameSinks returns the condition that a row has its settlement's sinks, or nothing if g.sinks isn't set.
func (g *given) sameSinks() text {
	value := g.value("sinks")
	switch {
	case !g.sinks:
		return text{}
	case len(value.args) > 0 && value.args[0] == "":
		return text{sql: " AND t.sinks = ''"}
	default: // make the result independent of the connection's collation
		return join(" AND t.sinks = CONVERT(", value, " USING utf8mb4) COLLATE utf8mb4_bin")
	}
}

// messages returns an SQL literal of all message ids, each followed by the separator.
func messages(settlements []storage.Settlement, separator string) string {
	const charset = "_ascii'" // in a multi-byte character set, substr would have to read the text from its start
	text := make([]byte, 0, len(charset)+37*len(settlements)+1)
	text = append(text, charset...)
	for i := range settlements {
		text = append(append(text, settlements[i].MessageID...), separator...)
	}
	return string(append(text, '\''))
}

// rowsOf returns a condition that finds rows t by their keys, in ranges of the index. It searches
// for a row's message id in one literal, which has the message ids of up to 32 settlements. A short
// literal costs half as much as a list. The condition doesn't check that the row's id and its
// message id are from the same settlement. Such a check isn't necessary, because a message keeps its
// row's id: a row with the id of one settlement can't have the message of another settlement.
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
