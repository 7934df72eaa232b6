package dialect

import (
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
)

// Row is a message as it is written: validated, with its id.
type Row struct {
	MessageID   string // a UUID
	Topic       string
	Key         string    // empty: NULL
	Payload     []byte    // nil: NULL
	Headers     string    // a JSON object; empty: NULL
	AvailableAt time.Time // zero: NULL, at once
	ExpiresAt   time.Time // zero: NULL, never
	Priority    int16
}

// A statement is made of the columns that a batch uses: insertColumns chooses them among those
// that a producer fills, insertInto begins the statement, arguments are its values, and
// insertParts cuts a batch that is too large for one. What stands between is each database's own.

type insertColumn struct {
	name  string
	value func(Row) any // of a type that every driver takes
	blank any           // the value that the column's default is
}

// insertColumns are those that a producer fills, but for the ones that are blank in all rows,
// as each parameter costs time. They have times in the form of the database, which has them
// to a unit; none is early.
func insertColumns(rows []Row, unit time.Duration, form string) []insertColumn {
	columns := []insertColumn{
		{name: "message_id", value: func(row Row) any { return row.MessageID }},
		{name: "topic", value: func(row Row) any { return row.Topic }},
		{name: "message_key", value: func(row Row) any { return bind.Nullable(row.Key) }},
		{name: "payload", value: func(row Row) any {
			if row.Payload == nil { // some drivers send a nil slice as an empty value
				return nil
			}
			return row.Payload
		}},
		{name: "headers", value: func(row Row) any { return bind.Nullable(row.Headers) }},
		{name: "available_at", value: func(row Row) any { return moment(row.AvailableAt, unit, form) }},
		{name: "expires_at", value: func(row Row) any { return moment(row.ExpiresAt, unit, form) }},
		{name: "priority", value: func(row Row) any { return int64(row.Priority) }, blank: int64(0)},
	}
	return slices.DeleteFunc(columns, func(c insertColumn) bool {
		return !slices.ContainsFunc(rows, func(row Row) bool { return c.value(row) != c.blank })
	})
}

// moment is the first time in UTC that a column can hold and that isn't before the one
// given; nil for the zero time.
func moment(at time.Time, unit time.Duration, form string) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC().Add(unit - 1).Truncate(unit).Format(form)
}

// insertInto is the statement's beginning, up to its values.
func insertInto(table Table, columns []insertColumn) string {
	names := make([]string, len(columns))
	for i, column := range columns {
		names[i] = column.name
	}
	return "INSERT INTO " + table.Pending + " (" + strings.Join(names, ", ") + ")"
}

func arguments(columns []insertColumn, rows []Row) []any {
	args := make([]any, 0, len(rows)*len(columns))
	for _, row := range rows {
		for _, column := range columns {
			args = append(args, column.value(row))
		}
	}
	return args
}

// insertParts cuts rows into parts that have at most maxRows, and at most
// maxBytes of payload unless it is a single row, and makes a query of each.
func insertParts(rows []Row, maxRows, maxBytes int, query func([]Row) Query) []Query {
	var queries []Query
	for len(rows) > 0 {
		n, bytes := 0, 0
		for ; n < len(rows); n++ {
			if bytes += len(rows[n].Payload); n > 0 && (n == maxRows || bytes > maxBytes) {
				break
			}
		}
		queries, rows = append(queries, query(rows[:n])), rows[n:]
	}
	return queries
}

// insertValues has a question mark for each value, as SQLite and MySQL do.
func insertValues(table Table, columns []insertColumn, rows []Row, maxParameters, maxBytes int) []Query {
	if len(rows) == 0 {
		return nil
	}
	values := ",(?" + strings.Repeat(",?", len(columns)-1) + ")"
	return insertParts(rows, maxParameters/len(columns), maxBytes, func(part []Row) Query {
		return Query{SQL: insertInto(table, columns) + " VALUES " + strings.Repeat(values, len(part))[1:], Args: arguments(columns, part)}
	})
}
