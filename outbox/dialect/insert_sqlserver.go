package dialect

import (
	"strconv"
	"strings"
)

const sqlserverMaxBytes = 16 << 20

var sqlserverColumns = []insertColumn{
	{name: "message_id", value: Row.messageID},
	{name: "topic", value: Row.topic},
	{name: "message_key", value: Row.key},
	{name: "payload", value: Row.payload},
	{name: "headers", value: Row.headers},
	{name: "available_at", value: func(row Row) any { return nullable(sqlserverTime(row.AvailableAt)) }},
	{name: "priority", value: Row.priority, blank: int64(0)},
}

// Insert leaves NULLs out of a single row: the driver sends them as texts, which
// no column of bytes takes.
func (sqlserver) Insert(table Table, rows []Row) []Query {
	return insertParts(rows, len(rows), sqlserverMaxBytes, func(part []Row) Query {
		if len(part) > 1 {
			return sqlserverInsertMany(table, part)
		}
		columns := used(sqlserverColumns, part)
		return Query{SQL: insertInto(table, columns) + " VALUES (" + sqlserverPlaces(len(columns)) + ")", Args: arguments(columns, part)}
	})
}

func sqlserverPlaces(count int) string {
	places := make([]string, count)
	for i := range places {
		places[i] = "@p" + strconv.Itoa(i+1)
	}
	return strings.Join(places, ",")
}

// sqlserverInsertMany sends the rows as one list. Payloads would grow there: they
// go as one value that the database cuts up. ORDER BY makes sure that ids are
// given in the rows' order.
func sqlserverInsertMany(table Table, rows []Row) Query {
	var a sqlserverArgs
	payloads := a.add(sqlserverJoin(rows))
	return a.query(
		"INSERT INTO "+table.Hot()+" (message_id, topic, message_key, payload, headers, available_at, priority)",
		"SELECT r.message_id, r.topic, r.message_key, SUBSTRING("+payloads+", r.start, r.length), r.headers, r.available_at, r.priority",
		"FROM OPENJSON("+sqlserverList(&a, sqlserverItems(rows))+") WITH (n int '$[0]', start bigint '$[1]', length bigint '$[2]',",
		"    message_id uniqueidentifier '$[3]', topic nvarchar(255) '$[4]', message_key nvarchar(255) '$[5]',",
		"    headers nvarchar(max) '$[6]', available_at datetime2(7) '$[7]', priority smallint '$[8]') AS r ORDER BY r.n")
}

// sqlserverJoin has a byte more than all payloads, for no value may be empty: it
// could be taken for NULL.
func sqlserverJoin(rows []Row) (joined []byte) {
	for _, row := range rows {
		joined = append(joined, row.Payload...)
	}
	return append(joined, 0)
}

func sqlserverItems(rows []Row) (items [][]any) {
	start := 1
	for i, row := range rows {
		var length any
		if row.Payload != nil {
			length = len(row.Payload)
		}
		items = append(items, []any{i, start, length, row.MessageID, row.Topic, row.key(), row.headers(),
			nullable(sqlserverTime(row.AvailableAt)), row.Priority})
		start += len(row.Payload)
	}
	return items
}
