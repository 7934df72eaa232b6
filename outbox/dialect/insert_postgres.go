package dialect

import (
	"strconv"
	"strings"
	"time"
)

const (
	// Up to here a list of values is quicker than arrays, measured through pgx
	// and lib/pq. There are as many texts of it as lengths, and a driver that
	// keeps prepared statements keeps each; the other statement has one text.
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
	{name: "priority", value: Row.priority, blank: int64(0)},
}

func (postgres) Insert(table Table, rows []Row) []Query {
	if len(rows) > postgresMaxValues {
		return insertParts(rows, len(rows), postgresMaxBytes, func(part []Row) Query {
			return postgresInsertArrays(table, part)
		})
	}
	columns := used(postgresColumns, rows)
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
func postgresInsertArrays(table Table, rows []Row) Query {
	payloads, from, length := joinPayloads(rows)
	return Query{
		SQL: insertInto(table, postgresColumns) +
			" SELECT m, t, k, substring($1::bytea FROM f FOR l), h, a, p FROM unnest($2::int[], $3::int[]," +
			" $4::uuid[], $5::text[], $6::text[], $7::json[], $8::timestamptz[], $9::smallint[])" +
			" WITH ORDINALITY AS r (f, l, m, t, k, h, a, p, n) ORDER BY n",
		Args: []any{
			payloads, from, length,
			arrayOf(rows, func(row Row) string { return row.MessageID }),
			arrayOf(rows, func(row Row) string { return quotedItem(row.Topic) }),
			arrayOf(rows, func(row Row) string { return itemOrNull(row.Key) }),
			arrayOf(rows, func(row Row) string { return itemOrNull(row.Headers) }),
			arrayOf(rows, func(row Row) string { return itemOrNull(postgresTime(row.AvailableAt)) }),
			arrayOf(rows, func(row Row) string { return strconv.Itoa(int(row.Priority)) }),
		},
	}
}

// joinPayloads returns all payloads in one, and as arrays where each begins,
// counted from 1, and its length, which is NULL if it is.
func joinPayloads(rows []Row) (joined []byte, from, length string) {
	size := 0
	for _, row := range rows {
		size += len(row.Payload)
	}
	joined = make([]byte, 0, size) // never nil: all parts of a NULL are NULL
	starts, lengths := make([]string, len(rows)), make([]string, len(rows))
	for i, row := range rows {
		starts[i], lengths[i] = strconv.Itoa(len(joined)+1), strconv.Itoa(len(row.Payload))
		if row.Payload == nil {
			lengths[i] = "NULL"
		}
		joined = append(joined, row.Payload...)
	}
	return joined, "{" + strings.Join(starts, ",") + "}", "{" + strings.Join(lengths, ",") + "}"
}

// arrayOf is PostgreSQL's text form of an array.
func arrayOf[T any](items []T, form func(T) string) string {
	var text strings.Builder
	separator := byte('{')
	for _, item := range items {
		text.WriteByte(separator)
		text.WriteString(form(item))
		separator = ','
	}
	text.WriteByte('}')
	return text.String()
}

var itemEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quotedItem(text string) string { return `"` + itemEscapes.Replace(text) + `"` }

func itemOrNull(text string) string {
	if text == "" {
		return "NULL"
	}
	return quotedItem(text)
}

// postgresTime has all the precision that the column has, and is never early.
func postgresTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return roundUp(at, time.Microsecond).Format("2006-01-02 15:04:05.000000+00")
}
