package dialect

import (
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
)

// Row is a validated message with its id.
type Row struct {
	MessageID   string // a UUID
	Topic       string
	Key         string    // empty for NULL
	Payload     []byte    // nil for NULL
	Headers     string    // a JSON object; empty for NULL
	AvailableAt time.Time // zero for NULL: available immediately
	ExpiresAt   time.Time // zero for NULL: never expires
	Priority    int16
}

// An INSERT names only the columns that its rows use: insertColumns selects the columns,
// insertInto builds the beginning of the statement, arguments returns its values, and insertParts
// splits the rows if there are too many for one statement. Each database has its own code for the
// rest.

type insertColumn struct {
	name  string
	value func(Row) any // returns a type that every driver accepts
	blank any           // the column's default
}

// insertColumns returns the columns that a producer fills. It omits columns that have the default
// in all rows, because each parameter costs time. Times are formatted with the layout `form`, and
// rounded up to the unit that the database stores, so that no message is available too early.
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

// moment returns the time in UTC, rounded up to the unit and formatted with the layout `form`.
// It returns nil for the zero time.
func moment(at time.Time, unit time.Duration, form string) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC().Add(unit - 1).Truncate(unit).Format(form)
}

// insertInto returns the beginning of the statement, up to its values.
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

// insertParts splits the rows into parts and builds a query for each part. A part has at most
// maxRows rows and maxBytes bytes of payload; a part of a single row may exceed maxBytes.
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

// insertValues builds the INSERTs of SQLite and MySQL, with a question mark for each value.
func insertValues(table Table, columns []insertColumn, rows []Row, maxParameters, maxBytes int) []Query {
	if len(rows) == 0 {
		return nil
	}
	values := ",(?" + strings.Repeat(",?", len(columns)-1) + ")"
	return insertParts(rows, maxParameters/len(columns), maxBytes, func(part []Row) Query {
		return Query{SQL: insertInto(table, columns) + " VALUES " + strings.Repeat(values, len(part))[1:], Args: arguments(columns, part)}
	})
}
