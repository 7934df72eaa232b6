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

func (sqlite) Insert(table Table, rows []Row) []Query {
	const maxRows, maxBytes = sqliteMaxParameters / insertColumnCount, 1 << 30
	return insertParts(rows, maxRows, maxBytes, func(part []Row) Query {
		return sqliteInsert(table, part)
	})
}

func sqliteInsert(table Table, rows []Row) Query {
	values := strings.Repeat(",(?,?,?,?,?,?,?)", len(rows))[1:]
	args := make([]any, 0, len(rows)*insertColumnCount)
	for _, row := range rows {
		args = append(args, row.MessageID, row.Topic, nullable(row.Key), nullableBytes(row.Payload),
			nullable(row.Headers), nullable(sqliteTime(row.AvailableAt)), int64(row.Priority))
	}
	return Query{SQL: "INSERT INTO " + table.Hot() + " " + insertColumns + " VALUES " + values, Args: args}
}

func sqliteTime(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return roundUp(at, time.Millisecond).Format(sqliteTimeFormat)
}
