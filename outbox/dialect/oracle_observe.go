package dialect

// Observe compares positions in the database's log: transactions are known by
// that of their first change, which comes before their first id, as the table's
// trigger begins the transaction. All instances of a cluster are asked. A
// position of 0 is one that the database doesn't know, and holds everything up.
func (oracle) Observe(Table, string) Steps {
	return alone(Query{SQL: "SELECT 'number', TO_CHAR(current_scn) FROM v$database\n" +
		"UNION ALL SELECT 'open', TO_CHAR(MIN(start_scn)) FROM gv$transaction HAVING COUNT(*) > 0\n" +
		"UNION ALL SELECT 'server', " + oracleServer + " FROM dual"})
}

// Grant has both views; without one of them the database says that there is no
// such thing.
func (oracle) Grant() string {
	return "SELECT ON sys.gv_$transaction (and the same ON sys.v_$database)"
}
