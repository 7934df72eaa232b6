package dialect

import (
	"fmt"
	"strings"
	"time"
)

// The protocol counts parameters in two bytes.
const postgresMaxParameters = 65535

// A message of the protocol has less than 1 GiB, and a driver may send bytes
// in twice their length.
const postgresMaxBytes = 16 << 20

type postgres struct{}

// Postgres is the dialect of PostgreSQL 13 and later.
func Postgres() Dialect { return postgres{} }

// Name returns "postgres".
func (postgres) Name() string { return "postgres" }

func (postgres) Insert(table Table, rows []Row) []Query {
	var queries []Query
	for _, part := range chunks(rows, postgresMaxParameters/insertColumnCount, postgresMaxBytes) {
		queries = append(queries, postgresInsert(table, part))
	}
	return queries
}

func postgresInsert(table Table, rows []Row) Query {
	var sql strings.Builder
	sql.WriteString("INSERT INTO " + table.Hot() + " " + insertColumns + " VALUES ")
	args := make([]any, 0, len(rows)*insertColumnCount)
	for i, row := range rows {
		if i > 0 {
			sql.WriteByte(',')
		}
		n := len(args)
		fmt.Fprintf(&sql, "($%d,$%d,$%d,$%d,$%d,$%d,$%d)", n+1, n+2, n+3, n+4, n+5, n+6, n+7)
		args = append(args, row.MessageID, row.Topic, nullable(row.Key), nullableBytes(row.Payload),
			nullable(row.Headers), postgresTime(row.AvailableAt), int64(row.Priority))
	}
	return Query{SQL: sql.String(), Args: args}
}

func postgresTime(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return at.UTC()
}

// LockKeys hashes as a producer in another language can: see outbox/README.md.
// The table's oid keeps two tables apart. Sorted locks can't deadlock.
func (postgres) LockKeys(table Table, keys []string) []Query {
	if len(keys) == 0 {
		return nil
	}
	return []Query{{
		SQL: "SELECT pg_advisory_xact_lock(h) FROM (SELECT DISTINCT hashtextextended(k, '" + table.Hot() +
			"'::regclass::oid::bigint) AS h FROM unnest($1::text[]) AS k ORDER BY h) AS locks",
		Args: []any{textArray(keys)},
	}}
}

// Notify sends the table's oid as well, for listeners that share the channel
// with tables of the same name in other schemas.
func (postgres) Notify(table Table) []Query {
	return []Query{{SQL: "SELECT pg_notify('" + table.Channel() + "', '" + table.Hot() + "'::regclass::oid::text)"}}
}

// textArray is PostgreSQL's text form of an array, which every driver can send.
func textArray(items []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var text strings.Builder
	text.WriteByte('{')
	for i, item := range items {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(`"` + escape.Replace(item) + `"`)
	}
	text.WriteByte('}')
	return text.String()
}
