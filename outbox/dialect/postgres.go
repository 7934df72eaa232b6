package dialect

type postgres struct{}

// Postgres is the dialect of PostgreSQL 13 and later.
func Postgres() Dialect { return postgres{} }

// Name returns "postgres".
func (postgres) Name() string { return "postgres" }

// LockKeys takes one advisory lock a key. Any producer can compute the same
// number, so it must not change: see outbox/README.md. The table's oid keeps
// two tables apart, and locks that are taken in order can't deadlock.
func (postgres) LockKeys(table Table, keys []string) []Query {
	if len(keys) == 0 {
		return nil
	}
	return []Query{{
		SQL: "SELECT pg_advisory_xact_lock(h) FROM (SELECT DISTINCT hashtextextended(k, " + postgresOID(table) +
			"::bigint) AS h FROM unnest($1::text[]) AS k ORDER BY h) AS locks",
		Args: []any{arrayOf(keys, quotedItem)},
	}}
}

// Notify sends the table's oid along, so that a listener can tell it from a
// table of the same name in another schema.
func (postgres) Notify(table Table) []Query {
	return []Query{{SQL: "SELECT pg_notify('" + table.Channel() + "', " + postgresOID(table) + "::text)"}}
}

func (postgres) Written(table Table) Query {
	return Query{SQL: "SELECT message_id::text, topic, message_key, payload, payload IS NULL, payload_text, headers::text," +
		" to_char(available_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), priority FROM " + table.Messages() + " ORDER BY id"}
}

// postgresOID can paste the name into a literal, for it has no such quotes.
func postgresOID(table Table) string { return "'" + table.Hot() + "'::regclass::oid" }
