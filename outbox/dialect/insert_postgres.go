package dialect

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

const (
	// Up to here a list of values is quicker than arrays, measured through pgx
	// and lib/pq. There are as many texts of it as lengths, and a driver that
	// keeps prepared statements keeps each; the other statement has one text for
	// each choice of columns.
	postgresMaxValues = 20

	// A message of the protocol has less than 1 GiB, and a driver may send a
	// payload in twice its length.
	postgresMaxBytes = 16 << 20
)

// Text is cast where the column's type is another, for some drivers declare
// every string to be text.
var postgresColumns = []insertColumn{
	{name: "message_id", cast: "::uuid", value: Row.messageID},
	{name: "topic", value: Row.topic},
	{name: "message_key", value: Row.key},
	{name: "payload", value: Row.payload},
	{name: "headers", cast: "::json", value: Row.headers},
	{name: "available_at", cast: "::timestamptz", value: func(row Row) any { return nullable(postgresTime(row.AvailableAt)) }},
	{name: "priority", cast: "::smallint", value: Row.priority, blank: int64(0)},
}

func (postgres) Insert(table Table, rows []Row) []Query {
	columns := used(postgresColumns, rows)
	if len(rows) > postgresMaxValues {
		return insertParts(rows, len(rows), postgresMaxBytes, func(part []Row) Query {
			return postgresInsertArrays(table, columns, part)
		})
	}
	return insertParts(rows, len(rows), postgresMaxBytes, func(part []Row) Query {
		return Query{
			SQL:  insertInto(table, columns) + " VALUES " + postgresValues(columns, len(part)),
			Args: arguments(columns, part),
		}
	})
}

func postgresValues(columns []insertColumn, rows int) string {
	var sql strings.Builder
	for n := range rows * len(columns) {
		separator := ","
		switch {
		case n == 0:
			separator = "("
		case n%len(columns) == 0:
			separator = "),("
		}
		sql.WriteString(separator + "$" + strconv.Itoa(n+1) + columns[n%len(columns)].cast)
	}
	return sql.String() + ")"
}

// postgresInsertArrays sends one array a column, as text, which every driver
// can. Payloads would double in length that way: they go as one value that the
// database cuts up. ORDER BY makes sure that ids are given in the rows' order.
func postgresInsertArrays(table Table, columns []insertColumn, rows []Row) Query {
	payloads, from, length := joinPayloads(rows)
	args := []any{payloads, from, length}
	var arrays, names []string
	for _, column := range columns {
		if column.name != "payload" {
			args = append(args, itemsOf(rows, column))
			arrays = append(arrays, "$"+strconv.Itoa(len(args))+cmp.Or(column.cast, "::text")+"[]")
			names = append(names, column.name)
		}
	}
	list := strings.Join(names, ", ")
	return Query{
		SQL: "INSERT INTO " + table.Hot() + " (payload, " + list + ") SELECT substring($1::bytea FROM f FOR l), " + list +
			" FROM unnest($2::int[], $3::int[], " + strings.Join(arrays, ", ") + ") WITH ORDINALITY AS r (f, l, " + list + ", n) ORDER BY n",
		Args: args,
	}
}

// joinPayloads returns all payloads in one, and as arrays where each begins,
// counted from 1, and its length, which is NULL if it is.
func joinPayloads(rows []Row) (joined []byte, from, length string) {
	size := 0
	for i := range rows {
		size += len(rows[i].Payload)
	}
	joined = make([]byte, 0, size) // never nil: all parts of a NULL are NULL
	starts, lengths := arrayFor(rows), arrayFor(rows)
	for i := range rows {
		starts = append(strconv.AppendInt(starts, int64(len(joined)+1), 10), ',')
		lengths = append(appendItem(lengths, rows[i].length()), ',')
		joined = append(joined, rows[i].Payload...)
	}
	return joined, closed(starts), closed(lengths)
}

// postgresTime has all the precision that the column has, and is never early.
func postgresTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return roundUp(at, time.Microsecond).Format("2006-01-02 15:04:05.000000+00")
}
