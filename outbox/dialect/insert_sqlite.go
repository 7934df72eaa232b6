package dialect

import (
	"strings"
	"time"
)

const (
	sqliteMaxParameters = 32766

	// sqliteTimeFormat is the form of times in the tables; always in UTC, so
	// that they compare as text.
	sqliteTimeFormat = "2006-01-02 15:04:05.000"
)

var sqliteColumns = []insertColumn{
	{name: "message_id", value: Row.messageID},
	{name: "topic", value: Row.topic},
	{name: "message_key", value: Row.key},
	{name: "payload", value: Row.payload},
	{name: "headers", value: Row.headers},
	{name: "available_at", value: func(row Row) any { return nullable(sqliteTime(row.AvailableAt)) }},
	{name: "priority", value: Row.priority, blank: int64(0)},
}

func (sqlite) Insert(table Table, rows []Row) []Query {
	if len(rows) == 0 {
		return nil
	}
	const maxBytes = 1 << 30
	columns := used(sqliteColumns, rows)
	values := ",(?" + strings.Repeat(",?", len(columns)-1) + ")"
	return insertParts(rows, sqliteMaxParameters/len(columns), maxBytes, func(part []Row) Query {
		return Query{
			SQL:  insertInto(table, columns) + " VALUES " + strings.Repeat(values, len(part))[1:],
			Args: arguments(columns, part),
		}
	})
}

func sqliteTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return roundUp(at, time.Millisecond).Format(sqliteTimeFormat)
}
