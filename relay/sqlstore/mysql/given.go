package mysql

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

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
	list := g.list()
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

func (g *given) list() string {
	items := make([][]any, len(g.settlements))
	for i, s := range g.settlements {
		items[i] = []any{s.Lane, s.ID}
		for _, c := range g.columns {
			items[i] = append(items[i], c.value(&g.settlements[i]))
		}
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // numbers and texts always have a form
	}
	return string(text)
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
