package dialect

import (
	"strings"
	"time"
)

// oracleBlocks are how many rows one block inserts: few sizes, as each is a
// statement that the server compiles and keeps.
var oracleBlocks = []int{64, 16, 4}

// oracleShort is up to how many bytes a payload and headers may go in a block;
// more of them would be a LONG each.
const oracleShort = 4000

// Insert writes rows one by one, in their order, in a block where there are
// several: a statement that inserts many rows has no way to take a LOB of any
// size for each.
func (oracle) Insert(table Table, rows []Row) []Query {
	var queries []Query
	for len(rows) > 0 {
		n := oracleBlock(rows)
		queries = append(queries, oracleInsert(table, rows[:n]))
		rows = rows[n:]
	}
	return queries
}

func oracleBlock(rows []Row) int {
	short := 0
	for short < len(rows) && short < oracleBlocks[0] && rows[short].short() {
		short++
	}
	for _, size := range oracleBlocks {
		if size <= short {
			return size
		}
	}
	return 1
}

func (row Row) short() bool {
	return len(row.Payload) <= oracleShort && len(row.Headers) <= oracleShort
}

func oracleInsert(table Table, rows []Row) Query {
	var a oracleArgs
	statements := make([]string, len(rows))
	for i, row := range rows {
		statements[i] = a.insert(table, row)
	}
	if len(rows) == 1 {
		return a.query(statements[0])
	}
	return a.query("BEGIN", "    "+strings.Join(statements, ";\n    ")+";", "END;")
}

// insert leaves out what is null, and has the payload last: what may be a LONG
// has to come after all others. An empty payload can't be a parameter: it would
// be null.
func (a *oracleArgs) insert(table Table, row Row) string {
	names, values := "message_id, topic", a.add(row.MessageID)+", "+a.add(row.Topic)
	add := func(wanted bool, name string, value func() string) {
		if wanted {
			names, values = names+", "+name, values+", "+value()
		}
	}
	add(row.Key != "", "message_key", func() string { return a.add(row.Key) })
	add(!row.AvailableAt.IsZero(), "available_at", func() string { return a.timestamp(roundUp(row.AvailableAt, time.Microsecond)) })
	add(row.Priority != 0, "priority", func() string { return a.int(int(row.Priority)) })
	add(row.Payload != nil && len(row.Payload) == 0, "payload", func() string { return "EMPTY_BLOB()" })
	add(row.Headers != "", "headers", func() string { return a.add(row.Headers) })
	add(len(row.Payload) > 0, "payload", func() string { return a.add(row.Payload) })
	return "INSERT INTO " + table.Hot() + " (" + names + ") VALUES (" + values + ")"
}
