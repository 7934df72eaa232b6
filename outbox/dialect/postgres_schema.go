package dialect

func (postgres) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = 'schema'"}
}

// MakeRowIndexes doesn't say CONCURRENTLY, which can't run in a transaction and
// leaves an invalid index behind when it fails; the table is small or new.
func (postgres) MakeRowIndexes(table Table) []Query {
	return rowIndexes(table.IndexName, table.Hot())
}

func (postgres) DropRowIndexes(table Table) []Query {
	return dropRowIndexes(table)
}

// rowIndexes gives each way to pick rows its order, among the free rows only,
// and finds the claims that ended.
func rowIndexes(name func(string) string, on string) []Query {
	var queries []Query
	for _, index := range []struct{ suffix, definition string }{
		{"claim_id", "(id) WHERE claimed_until IS NULL"},
		{"claim_priority", "(priority DESC, id) WHERE claimed_until IS NULL"},
		{"claim_until", "(claimed_until) WHERE claimed_until IS NOT NULL"},
	} {
		queries = append(queries, Query{SQL: "CREATE INDEX IF NOT EXISTS " + name(index.suffix) + " ON " + on + " " + index.definition})
	}
	return queries
}

func dropRowIndexes(table Table) []Query {
	var queries []Query
	for _, suffix := range []string{"claim_id", "claim_priority", "claim_until"} {
		queries = append(queries, Query{SQL: "DROP INDEX IF EXISTS " + table.Index(suffix)})
	}
	return queries
}

func (postgres) RowIndexes(table Table) Query {
	var a postgresArgs
	names := []string{table.Index("claim_id"), table.Index("claim_priority"), table.Index("claim_until")}
	return a.query("SELECT count(to_regclass(name)) FROM unnest(" + a.add(arrayOf(names, quotedItem), "text[]") + ") AS n (name)")
}
