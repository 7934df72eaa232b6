package dialect

func (mysql) SchemaVersion(table Table) Query {
	return mysqlQuery("SELECT value FROM " + table.Backquoted().Settings() + " WHERE name = 'schema'")
}

// MakeRowIndexes makes all in one statement, so that there are all or none. There
// are no indexes of some rows only: the free ones have no claimed_until and come
// first. The claims that have ended are found by either.
func (mysql) MakeRowIndexes(table Table) []Query {
	return []Query{mysqlQuery("ALTER TABLE " + table.Backquoted().Hot() +
		" ADD INDEX claim_id (claimed_until, id), ADD INDEX claim_priority (claimed_until, urgency, id)")}
}

func (mysql) DropRowIndexes(table Table) []Query {
	return []Query{mysqlQuery("ALTER TABLE " + table.Backquoted().Hot() + " DROP INDEX claim_id, DROP INDEX claim_priority")}
}

// RowIndexes counts the first one twice: here, it does for two.
func (mysql) RowIndexes(table Table) Query {
	where, args := mysqlNamed(table, "")
	return mysqlQuery("SELECT coalesce(sum(CASE index_name WHEN 'claim_id' THEN 2 ELSE 1 END), 0)"+
		" FROM information_schema.statistics WHERE "+where+
		" AND index_name IN ('claim_id', 'claim_priority') AND seq_in_index = 1", args...)
}

// mysqlNamed is a condition of the information schema's tables about tables.
func mysqlNamed(table Table, suffix string) (where string, args []any) {
	if table.Schema() == "" {
		return "table_schema = database() AND table_name = ?", []any{table.Name() + suffix}
	}
	return "table_schema = ? AND table_name = ?", []any{table.Schema(), table.Name() + suffix}
}
