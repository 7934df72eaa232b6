package dialect

import "strings"

func (oracle) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = 'schema'"}
}

// An index has no entry for a row whose columns are all null there: so these have
// the free rows only, or the claimed ones only.
const (
	oracleFreeID       = "CASE WHEN claimed_until IS NULL THEN id END"
	oracleFreePriority = "CASE WHEN claimed_until IS NULL THEN -priority END"
)

var oracleRowIndexes = []struct{ suffix, columns string }{
	{"claim_id", oracleFreeID},
	{"claim_priority", oracleFreePriority + ", " + oracleFreeID},
	{"claim_until", "claimed_until, claim_stamp"},
}

// MakeRowIndexes waits some seconds for producers' transactions to end: it can't
// have the table while one is open. An index that is there is as good.
func (oracle) MakeRowIndexes(table Table) []Query {
	var queries []Query
	for _, index := range oracleRowIndexes {
		queries = append(queries, oracleDDL("CREATE INDEX "+table.Index(index.suffix)+" ON "+table.Hot()+" ("+index.columns+")", "-955, -1408"))
	}
	return queries
}

func (oracle) DropRowIndexes(table Table) []Query {
	var queries []Query
	for _, index := range oracleRowIndexes {
		queries = append(queries, oracleDDL("DROP INDEX "+table.Index(index.suffix), "-1418"))
	}
	return queries
}

// oracleDDL passes over the errors that say that there is nothing to do.
func oracleDDL(statement, done string) Query {
	return Query{SQL: strings.Join([]string{
		"DECLARE code NUMBER;",
		"BEGIN",
		"    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';",
		"    EXECUTE IMMEDIATE '" + statement + "';",
		"    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';",
		"EXCEPTION WHEN OTHERS THEN",
		"    code := SQLCODE;",
		"    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';",
		"    IF code NOT IN (" + done + ") THEN RAISE; END IF;",
		"END;",
	}, "\n")}
}

func (oracle) RowIndexes(table Table) Query {
	names := make([]string, len(oracleRowIndexes))
	for i, index := range oracleRowIndexes {
		names[i] = "'" + oracleIndexName(table, index.suffix) + "'"
	}
	return Query{SQL: "SELECT COUNT(*) FROM all_indexes WHERE owner = " + oracleOwner(table) +
		" AND index_name IN (" + strings.Join(names, ", ") + ")"}
}

// oracleIndexName follows the quoting of the whole name.
func oracleIndexName(table Table, suffix string) string {
	return oracleName(table.Name() + "_" + suffix)
}
