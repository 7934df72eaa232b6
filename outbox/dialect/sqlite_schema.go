package dialect

func (sqlite) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = 'schema'"}
}

// MakeRowIndexes names the schema with the index, as SQLite wants it.
func (sqlite) MakeRowIndexes(table Table) []Query {
	return rowIndexes(table.Index, newTable("", table.Name()).Hot())
}

func (sqlite) DropRowIndexes(table Table) []Query {
	return dropRowIndexes(table)
}

func (sqlite) RowIndexes(table Table) Query {
	name := table.Name()
	return sqliteQuery("SELECT count(*) FROM "+table.Beside("sqlite_master")+" WHERE type = 'index' AND name IN (?, ?, ?)",
		name+"_claim_id", name+"_claim_priority", name+"_claim_until")
}
