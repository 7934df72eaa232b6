package dialect

func (sqlserver) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = N'schema'"}
}

// MakeRowIndexes gives each way to pick rows its order, among the free rows only,
// and finds the claims that ended. There are no locks of pages: READPAST passes
// over them, and so over rows that nobody has, or waits for them.
func (sqlserver) MakeRowIndexes(table Table) []Query {
	var queries []Query
	for _, index := range []struct{ suffix, definition string }{
		{"claim_id", "(id) WHERE claimed_until IS NULL"},
		{"claim_priority", "(priority DESC, id) WHERE claimed_until IS NULL"},
		{"claim_until", "(claimed_until) INCLUDE (claim_token) WHERE claimed_until IS NOT NULL"},
	} {
		queries = append(queries, sqlserverQuery(
			"IF NOT EXISTS ("+sqlserverIndexes(table)+" AND name = N'"+table.Name()+"_"+index.suffix+"')",
			"CREATE INDEX "+table.IndexName(index.suffix)+" ON "+table.Hot()+" "+index.definition+" WITH (ALLOW_PAGE_LOCKS = OFF)"))
	}
	return queries
}

func (sqlserver) DropRowIndexes(table Table) []Query {
	var queries []Query
	for _, suffix := range []string{"claim_id", "claim_priority", "claim_until"} {
		queries = append(queries, sqlserverQuery("DROP INDEX IF EXISTS "+table.IndexName(suffix)+" ON "+table.Hot()))
	}
	return queries
}

func (sqlserver) RowIndexes(table Table) Query {
	name := table.Name()
	return sqlserverQuery("SELECT COUNT(*) FROM (" + sqlserverIndexes(table) +
		" AND name IN (N'" + name + "_claim_id', N'" + name + "_claim_priority', N'" + name + "_claim_until')) AS i")
}

func sqlserverIndexes(table Table) string {
	return "SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(" + sqlserverLiteral(table, "") + ")"
}
