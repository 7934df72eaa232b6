package dialect

import (
	"strings"
	"time"
)

const sqliteMaxParameters = 32766

// sqliteTimeFormat is the form of times in the tables; always in UTC, so that
// they compare as text.
const sqliteTimeFormat = "2006-01-02 15:04:05.000"

type sqlite struct{}

// SQLite is the dialect of SQLite 3.35 and later.
func SQLite() Dialect { return sqlite{} }

// Name returns "sqlite".
func (sqlite) Name() string { return "sqlite" }

func (sqlite) Insert(table Table, rows []Row) []Query {
	var queries []Query
	for _, part := range chunks(rows, sqliteMaxParameters/insertColumnCount, 1<<30) {
		queries = append(queries, sqliteInsert(table, part))
	}
	return queries
}

func sqliteInsert(table Table, rows []Row) Query {
	values := strings.Repeat(",(?,?,?,?,?,?,?)", len(rows))[1:]
	args := make([]any, 0, len(rows)*insertColumnCount)
	for _, row := range rows {
		args = append(args, row.MessageID, row.Topic, nullable(row.Key), nullableBytes(row.Payload),
			nullable(row.Headers), sqliteTime(row.AvailableAt), int64(row.Priority))
	}
	return Query{SQL: "INSERT INTO " + table.Hot() + " " + insertColumns + " VALUES " + values, Args: args}
}

// LockKeys returns nothing: there is one writer at a time.
func (sqlite) LockKeys(Table, []string) []Query { return nil }

// Notify returns nothing: SQLite can't wake another process.
func (sqlite) Notify(Table) []Query { return nil }

func sqliteTime(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC().Format(sqliteTimeFormat)
}
