package dialect

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The columns of a row, as Reading has them, of a table t; and what stands in
// their place where there is no row. Times are texts: what a driver makes of a
// time depends on its settings.
const (
	mysqlPlain = `t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), ` + mysqlPayload + `,` +
		` coalesce(t.headers, ''), CAST(t.available_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR)`
	mysqlHasPayload = `(t.payload IS NOT NULL OR t.payload_text IS NOT NULL)`
	mysqlLater      = `2 * coalesce(t.available_at > ` + mysqlNow + `, 0)`
	mysqlHot        = mysqlPlain + `, ` + mysqlHasPayload + ` + ` + mysqlLater
	mysqlHeld       = mysqlPlain + `, ` + mysqlHasPayload + ` + 4 * (t.state = 'retry')`
	mysqlPayload    = `coalesce(t.payload, CAST(t.payload_text AS BINARY))`
	mysqlSize       = `coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0)`
	mysqlNone       = `0, 0, '', '', '', NULL, '', NULL, 0, 0, 0, NULL, 0`
)

// mysqlUpTo are the columns of mysqlHot with a size in the place of each payload
// that is larger.
func mysqlUpTo(size int) string {
	large := mysqlSize + " > " + strconv.Itoa(size)
	return strings.Replace(mysqlHot, mysqlPayload, "CASE WHEN "+large+" THEN NULL ELSE "+mysqlPayload+" END", 1) +
		" + CASE WHEN " + large + " THEN " + strconv.Itoa(SizeOne) + " * " + mysqlSize + " ELSE 0 END"
}

// Given looks in all tables, for the highest row may be held, or done; and at the
// counter, for there may be no row at all. MySQL may have the counter of some
// hours ago.
func (mysql) Given(table Table) Query {
	where, args := mysqlNamed(table, "")
	return mysqlQuery("SELECT GREATEST("+mysqlHighest(table.Backquoted())+
		",\n    COALESCE((SELECT MAX(CAST(auto_increment AS SIGNED)) - 1 FROM information_schema.tables WHERE "+where+"), 0))", args...)
}

// mysqlHighest is a list of the highest id in each table.
func mysqlHighest(table Table) string {
	highest := column([]string{table.Hot(), table.Held(), table.Done()}, func(name string) string {
		return "COALESCE((SELECT MAX(id) FROM " + name + "), 0)"
	})
	return strings.Join(highest, ", ")
}

// Walk implements [Walking]. MariaDB doesn't tell InnoDB where a range ends: who
// reads a lane to its end passes over the deleted rows of all lanes behind it,
// as long as some old snapshot keeps them, up to the next row that is there.
func (d mysql) Walk() Walk {
	if d.isMariaDB() {
		return WalkByID
	}
	return WalkByLane
}

// Read goes along the key: one select for all positions in the order of lanes,
// and another one where that order begins anew. A union would cost a third more.
// On MariaDB it is one along the index on ids, but for keys, which are rare.
// So every row says which server this is, and where there is none, that alone is
// asked. The bytes are bounded by whoever asks for a number of rows. Numbers are
// in the text, so that nothing has to be prepared.
func (d mysql) Read(table Table, read Read) Query {
	server := "CONCAT('0 0 ', " + d.server() + "), "
	var s mysqlSelects
	s.walk(d, server+mysqlHot, table, read.Positions, read.Limit)
	if len(s.parts) == 0 {
		s.add("SELECT " + server + mysqlNone)
	}
	return s.query(read.Limit)
}

// Candidates of no position are none.
func (d mysql) Candidates(table Table, positions []Position, except []string, limit int) Query {
	s := mysqlSelects{except: except}
	s.walk(d, "t.id, t.lane, t.topic, t.message_key, coalesce(length(t.payload), length(t.payload_text), 0)", table, positions, limit)
	if len(s.parts) == 0 {
		s.add("SELECT 0, 0, '', '', 0 FROM DUAL WHERE FALSE")
	}
	return s.query(limit)
}

// mysqlSelects are the parts of a union.
type mysqlSelects struct {
	except []string // topics
	parts  []string
	args   []any
}

func (s *mysqlSelects) add(part string) { s.parts = append(s.parts, part) }

func (s *mysqlSelects) walk(d mysql, columns string, table Table, positions []Position, limit int) {
	if d.Walk() == WalkByID && len(positions) > 0 && positions[0].Key == "" {
		s.byID(columns, table, positions, limit)
		return
	}
	s.ranges(columns, table, positions, limit)
}

// ranges has one part as long as the lanes ascend. It names the index: with other
// statistics than the table's own, or none, a server would read and sort all that
// there is.
func (s *mysqlSelects) ranges(columns string, table Table, positions []Position, limit int) {
	for len(positions) > 0 {
		n := 1
		for n < len(positions) && positions[n].Lane > positions[n-1].Lane {
			n++
		}
		s.add("SELECT " + columns + " FROM " + table.Backquoted().Hot() + " AS t FORCE INDEX (PRIMARY)" +
			" WHERE " + s.among(positions[:n]) + s.otherThan() + " ORDER BY t.lane, t.id LIMIT " + strconv.Itoa(limit))
		positions = positions[n:]
	}
}

func (s *mysqlSelects) otherThan() string {
	if len(s.except) == 0 {
		return ""
	}
	s.args = append(s.args, mysqlTexts(s.except)...)
	return " AND t.topic NOT IN " + mysqlArguments(len(s.except))
}

func (s *mysqlSelects) among(positions []Position) string {
	var among mysqlAlternatives
	for _, p := range positions {
		among.add(p.Lane, s.rangeOf(p))
	}
	return among.condition()
}

func (s *mysqlSelects) rangeOf(p Position) string {
	where := "t.lane = " + strconv.Itoa(p.Lane) + " AND t.id > " + mysqlID(p.After)
	if p.Until < 1<<63-1 {
		where += " AND t.id <= " + mysqlID(p.Until)
	}
	if p.Key != "" {
		where += " AND t.message_key = ?"
		s.args = append(s.args, p.Key)
	}
	return where
}

// byID has one part along the index on ids, whose entries have the lane, too.
func (s *mysqlSelects) byID(columns string, table Table, positions []Position, limit int) {
	whole := wholeOf(positions)
	where := "t.id > " + mysqlID(whole.After)
	if whole.Until < 1<<63-1 {
		where += " AND t.id <= " + mysqlID(whole.Until)
	}
	s.add("SELECT " + columns + " FROM " + table.Backquoted().Hot() + " AS t FORCE INDEX (id)" +
		" WHERE " + where + " AND " + idsWithin(whole, positions) + s.otherThan() + " ORDER BY t.id LIMIT " + strconv.Itoa(limit))
}

// query bounds the whole. A single part is bounded by itself: in parentheses it
// would be copied before it is sent.
func (s *mysqlSelects) query(limit int) Query {
	if len(s.parts) == 1 {
		return mysqlQuery(s.parts[0], s.args...)
	}
	return mysqlQuery("("+strings.Join(s.parts, ")\nUNION ALL (")+")\nLIMIT "+strconv.Itoa(limit), s.args...)
}

func mysqlID(id int64) string { return strconv.FormatInt(id, 10) }

// Pick finds the rows of each lane by a list of ids: ranges of the key that both
// servers know.
func (mysql) Pick(table Table, lanes []int, ids []int64) Query {
	return mysqlQuery("SELECT " + mysqlHot + " FROM " + table.Backquoted().Hot() + " AS t FORCE INDEX (PRIMARY)\nWHERE " + mysqlAmong("t.", lanes, ids))
}

func (mysql) PickHeld(table Table, lanes []int, ids []int64) Query {
	return mysqlQuery("SELECT " + mysqlHeld + " FROM " + table.Backquoted().Held() + " AS t FORCE INDEX (PRIMARY)" +
		"\nWHERE t.state <> 'error' AND " + mysqlAmong("t.", lanes, ids))
}

// mysqlAmong is the condition on lane and id that holds for these rows, which
// are in the order of lanes or not.
func mysqlAmong(prefix string, lanes []int, ids []int64) string {
	var order []int
	byLane := map[int][]int64{}
	for i, lane := range lanes {
		if byLane[lane] == nil {
			order = append(order, lane)
		}
		byLane[lane] = append(byLane[lane], ids[i])
	}
	if len(order) == 0 {
		return "FALSE"
	}
	parts := column(order, func(lane int) string {
		return "(" + prefix + "lane = " + strconv.Itoa(lane) + " AND " + prefix + "id IN " + mysqlList(byLane[lane]) + ")"
	})
	return "(" + strings.Join(parts, "\n    OR ") + ")"
}

// Due goes by the time that is generated for it, in which no time is the first.
func (mysql) Due(table Table, lanes []int, after After, limit, _ int) Query {
	at := "TIMESTAMP'" + mysqlTime(after.At) + "'"
	return mysqlQuery("SELECT " + mysqlHeld + " FROM " + table.Backquoted().Held() + " AS t FORCE INDEX (held_due)" +
		"\nWHERE t.due_at <= " + mysqlNow + " AND t.due_at >= " + at + " AND (t.due_at > " + at + " OR t.id > " + mysqlID(after.ID) + ")" +
		" AND t.lane IN " + mysqlList(lanes) +
		"\nORDER BY t.due_at, t.id LIMIT " + strconv.Itoa(limit))
}

func (mysql) HeldKeys(table Table, lanes []int, limit int) Query {
	return mysqlQuery("SELECT lane, message_key, topic, id FROM " + table.Backquoted().Held() + " FORCE INDEX (held_retry)" +
		"\nWHERE state = 'retry' AND message_key <> '' AND lane IN " + mysqlList(lanes) +
		"\nLIMIT " + strconv.Itoa(limit))
}

// HeldAmong has a list of keys for each lane: ranges of the index that all servers
// know. For the collation blanks at the end don't count, so keys that differ in
// nothing else are kept apart as bytes.
func (mysql) HeldAmong(table Table, lanes []int, keys []string) Query {
	byLane := map[int][]any{}
	for i, lane := range lanes {
		byLane[lane] = append(byLane[lane], keys[i])
	}
	where, args := []string{"FALSE"}, []any(nil)
	for _, lane := range slices.Sorted(maps.Keys(byLane)) {
		where = append(where, "t.lane = "+strconv.Itoa(lane)+" AND t.message_key IN "+mysqlArguments(len(byLane[lane])))
		args = append(args, byLane[lane]...)
	}
	if len(where) > 1 {
		where = where[1:]
	}
	return mysqlQuery("SELECT t.lane, CAST(t.message_key AS BINARY) AS held_key, CAST(t.topic AS BINARY) AS held_topic, MIN(t.id)"+
		" FROM "+table.Backquoted().Held()+" AS t FORCE INDEX (held_retry)"+
		"\nWHERE t.state = 'retry' AND ("+strings.Join(where, "\n    OR ")+")"+
		"\nGROUP BY t.lane, held_key, held_topic ORDER BY NULL", args...)
}
