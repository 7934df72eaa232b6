package dialect

import (
	"strings"
	"time"
)

const (
	mysqlMaxParameters = 65535

	// A packet has 4 MiB at most on old servers, if nobody has changed that, and
	// a driver that puts arguments into the text sends a payload in twice its
	// length.
	mysqlMaxBytes = 1 << 20
)

var mysqlColumns = []insertColumn{
	{name: "message_id", value: Row.messageID},
	{name: "topic", value: Row.topic},
	{name: "message_key", value: Row.key},
	{name: "payload", value: Row.payload},
	{name: "headers", value: Row.headers},
	{name: "available_at", value: func(row Row) any { return nullable(mysqlInsertTime(row.AvailableAt)) }},
	{name: "priority", value: Row.priority, blank: int64(0)},
}

func (mysql) Insert(table Table, rows []Row) []Query {
	if len(rows) == 0 {
		return nil
	}
	columns := used(mysqlColumns, rows)
	values := ",(?" + strings.Repeat(",?", len(columns)-1) + ")"
	return insertParts(rows, mysqlMaxParameters/len(columns), mysqlMaxBytes, func(part []Row) Query {
		return Query{
			SQL:  insertInto(table.Backquoted(), columns) + " VALUES " + strings.Repeat(values, len(part))[1:],
			Args: arguments(columns, part),
		}
	})
}

func mysqlInsertTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return mysqlTime(roundUp(at, time.Microsecond))
}
