package dialect

import (
	"slices"
	"strings"
)

// Probes are what an operator would look at. What Fit notes isn't repeated.
func (d mysql) Probes(table Table, claim string) []Probe {
	probes := []Probe{
		{"columns", d.Read(table, Read{Limit: 1}), nothingWrong},
		{"transactions", mysqlOldest(), listOf("a transaction that has written is open since ",
			"end it: no mark passes it, and each read looks through all that was written since")},
		{"marks", mysqlBelowMarks(table), listOf("messages lie below what was finished before, in lane ",
			"ids have begun anew, as TRUNCATE lets them; such messages are delivered, but late and in no order: use DELETE to empty the table")},
	}
	plan := d.Read(table, Read{Positions: []Position{{Lane: 1, Until: 1 << 62}}, Limit: 500})
	if claim == "rows" {
		plan = d.Claim(table, Claim{Limit: 500}).Ask
		probes = append(probes, indexProbe(d.RowIndexes(table)))
	}
	plan.SQL = d.explain() + plan.SQL
	return append(probes, Probe{"plan", plan, mysqlPlan})
}

// explain asks for lines with columns, of which newer servers have another form.
func (d mysql) explain() string {
	if d.isMySQL8() {
		return "EXPLAIN FORMAT=TRADITIONAL "
	}
	return "EXPLAIN "
}

// Rights explains statements that need the rights: who lacks one may not
// have them explained either. Roles count, which no list of rights shows.
func (d mysql) Rights(table Table, claim string) (tries []Try) {
	hot, table := "SELECT UPDATE DELETE", table.Backquoted()
	if claim == "rows" {
		hot += " INSERT"
	}
	for _, needed := range []struct{ name, column, rights string }{
		{table.Hot(), "attempts", hot}, {table.Held(), "lane", "SELECT INSERT UPDATE DELETE"}, {table.Done(), "lane", "SELECT INSERT UPDATE DELETE"},
		{table.Lanes(), "lane", "SELECT UPDATE"}, {table.LaneLocks(), "lane", "SELECT UPDATE"}, {table.Relays(), "host", "SELECT INSERT UPDATE DELETE"},
		{table.Settings(), "value", "SELECT INSERT UPDATE"}, {table.Messages(), "", "SELECT"},
	} {
		for right := range strings.FieldsSeq(needed.rights) {
			tries = append(tries, Try{right + " ON " + needed.name, mysqlTry(right, needed.name, needed.column)})
		}
	}
	return tries
}

func mysqlTry(right, name, column string) Query {
	switch right {
	case "INSERT":
		return mysqlQuery("EXPLAIN INSERT INTO " + name + " VALUES ()")
	case "DELETE":
		return mysqlQuery("EXPLAIN DELETE FROM " + name)
	case "UPDATE":
		return mysqlQuery("EXPLAIN UPDATE " + name + " SET " + column + " = ''")
	default:
		return mysqlQuery("SELECT 1 FROM " + name + " WHERE FALSE")
	}
}

// mysqlOldest is in UTC. The list has its times in the server's own time zone,
// whatever the session's is.
func mysqlOldest() Query {
	return mysqlQuery("SELECT CONVERT_TZ(MIN(trx_started), 'SYSTEM', '+00:00') FROM information_schema.innodb_trx WHERE trx_rows_modified > 0" +
		" HAVING MIN(trx_started) < CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM') - INTERVAL 10 MINUTE")
}

// mysqlBelowMarks looks for what no relay looks for.
func mysqlBelowMarks(table Table) Query {
	table = table.Backquoted()
	return mysqlQuery("SELECT l.lane FROM " + table.Lanes() + " AS l WHERE EXISTS (SELECT 1 FROM " + table.Hot() + " AS t FORCE INDEX (PRIMARY)" +
		" WHERE t.lane = l.lane AND t.id <= CAST(JSON_EXTRACT(NULLIF(l.marks, ''), '$.main') AS SIGNED)) ORDER BY l.lane")
}

// mysqlPlan looks for a scan or sort of the whole table. Of the plan's columns,
// the type of access comes before the possible keys.
func mysqlPlan(answer []string) (wrong, hint string) {
	for _, line := range answer {
		if slices.Contains(strings.Fields(line), "ALL") || strings.Contains(line, "Using filesort") || strings.Contains(line, "Using temporary") {
			return "the claim reads the whole table: " + strings.Join(strings.Fields(line), " "), "see that its indexes are there: run rowrelay migrate up"
		}
	}
	return "", ""
}
