package dialect

import (
	"slices"
	"strings"
	"time"
)

// insertColumn is one that a producer fills.
type insertColumn struct {
	name  string
	cast  string // what its parameter has to be followed by
	value func(Row) any
	blank any // the value that the column's default is
}

// used leaves out the columns that are blank in all rows, for each parameter
// costs time.
func used(columns []insertColumn, rows []Row) []insertColumn {
	return slices.DeleteFunc(slices.Clone(columns), func(c insertColumn) bool {
		return !slices.ContainsFunc(rows, func(row Row) bool { return c.value(row) != c.blank })
	})
}

// insertInto is the statement's beginning, up to its values.
func insertInto(table Table, columns []insertColumn) string {
	names := make([]string, len(columns))
	for i, column := range columns {
		names[i] = column.name
	}
	return "INSERT INTO " + table.Hot() + " (" + strings.Join(names, ", ") + ")"
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
		n := partLength(rows, maxRows, maxBytes)
		queries = append(queries, query(rows[:n]))
		rows = rows[n:]
	}
	return queries
}

func partLength(rows []Row, maxRows, maxBytes int) int {
	bytes := 0
	for i, row := range rows {
		bytes += len(row.Payload)
		if i > 0 && (i == maxRows || bytes > maxBytes) {
			return i
		}
	}
	return len(rows)
}

// The values of columns. Each is of a type that every driver takes.

func (row Row) messageID() any { return row.MessageID }
func (row Row) topic() any     { return row.Topic }
func (row Row) key() any       { return nullable(row.Key) }
func (row Row) headers() any   { return nullable(row.Headers) }
func (row Row) priority() any  { return int64(row.Priority) }

// payload keeps an empty one apart from none: some drivers send a nil slice as
// an empty value.
func (row Row) payload() any {
	if row.Payload == nil {
		return nil
	}
	return row.Payload
}

func (row Row) length() any {
	if row.Payload == nil {
		return nil
	}
	return int64(len(row.Payload))
}

// nullable is the text, or NULL if it is empty.
func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// roundUp is the first time in UTC that the column can hold and that isn't
// before this one.
func roundUp(at time.Time, unit time.Duration) time.Time {
	return at.UTC().Add(unit - 1).Truncate(unit)
}
