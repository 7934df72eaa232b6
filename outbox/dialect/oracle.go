package dialect

type oracle struct{}

// Oracle is the dialect of Oracle Database 12.2 and later. ORACLE.md, beside
// this file, has what it runs and why.
func Oracle() Dialect { return oracle{} }

// Name returns "oracle".
func (oracle) Name() string { return "oracle" }

// oracleLocks is the table whose rows are locked in the place of what has no
// row, or none that may be locked: see ORACLE.md. A lane has several, of which a
// settle locks one and a takeover all.
func oracleLocks(table Table) string { return table.Index("locks") }

const (
	oracleKeyLocks = "1000" // the first of 1,024 locks of keys
	oracleKeyMax   = "1023"
)

// oracleBytes is a text as its bytes, whatever the session compares by.
func oracleBytes(text string) string { return "NLSSORT(" + text + ", 'NLS_SORT=BINARY')" }

// LockKeys locks a row a key, by the key's hash, in their order.
func (oracle) LockKeys(table Table, keys []string) []Query {
	if len(keys) == 0 {
		return nil
	}
	var a oracleArgs
	return []Query{a.lockAll("SELECT lock_id FROM " + oracleLocks(table) + " WHERE lock_id IN (\n" +
		"        SELECT " + oracleKeyLocks + " + ORA_HASH(" + oracleBytes("k.message_key") + ", " + oracleKeyMax + ") FROM " +
		a.given("k", keys, "message_key VARCHAR2(255) PATH '$'") + ")\n    ORDER BY lock_id FOR UPDATE")}
}

// Notify returns nothing: nobody listens.
func (oracle) Notify(Table) []Query { return nil }

func (oracle) Written(table Table) Query {
	return Query{SQL: "SELECT message_id, topic, message_key, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, payload_text, headers,\n" +
		"    " + oracleTime("available_at") + ", priority FROM " + table.Messages() + " ORDER BY id"}
}
