package dialect

import (
	"regexp"
	"strconv"
	"strings"
)

// Probes are what an operator would look at.
func (d postgres) Probes(table Table, claim string) []Probe {
	probes := []Probe{
		{"settings", postgresSettings(), listOf("these settings do not fit: ", "change them for this user or database (ALTER ROLE … SET), or use the primary server")},
		{"rights", postgresRights(table, claim), listOf("this user lacks: ", "have the tables' owner run GRANT, as outbox/dialect/POSTGRES.md says, or migrate as the user who relays")},
		{"ids", d.OutOfOrder(table), listOf("by lanes a message could be passed over for good: the sequence of the ids has ", "run ALTER SEQUENCE … CACHE 1 INCREMENT BY 1 NO CYCLE")},
		{"columns", d.Read(table, Read{Limit: 1}), nothingWrong},
		{"transactions", postgresOldest(), listOf("a transaction is open since ", "end it: no vacuum and no mark passes it")},
	}
	plan := d.Read(table, Read{Positions: []Position{{Lane: 1, Until: 1 << 62}}, Limit: 500})
	if claim == "rows" {
		plan = d.Claim(table, Claim{Limit: 500}).Ask
		probes = append(probes, indexProbe(d.RowIndexes(table)))
	}
	plan.SQL = "EXPLAIN " + plan.SQL
	return append(probes, Probe{"plan", plan, postgresPlan(table)})
}

// OutOfOrder implements [Numbering]. Sessions that take ids ahead, by CACHE, write
// low ids after high ones were read, and no snapshot tells. Without the right to see
// the sequence it looks as if ids began anew all the time.
func (postgres) OutOfOrder(table Table) Query {
	return Query{SQL: "SELECT s.setting FROM pg_sequence AS q CROSS JOIN LATERAL (VALUES" +
		"\n    ('CACHE ' || q.seqcache, q.seqcache > 1), ('INCREMENT BY ' || q.seqincrement, q.seqincrement <= 0), ('CYCLE', q.seqcycle)) AS s (setting, wrong)" +
		"\nWHERE q.seqrelid = pg_get_serial_sequence('" + table.Hot() + "', 'id')::regclass AND s.wrong" +
		"\nUNION ALL SELECT 'no right of this user to SELECT' WHERE NOT has_sequence_privilege(pg_get_serial_sequence('" + table.Hot() + "', 'id'), 'SELECT')"}
}

func nothingWrong([]string) (wrong, hint string) { return "", "" }

// listOf is for a query that selects what is wrong.
func listOf(wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if len(answer) == 0 {
			return "", ""
		}
		return wrong + strings.Join(answer, ", "), hint
	}
}

func indexProbe(query Query) Probe {
	return Probe{"indexes", query, func(answer []string) (string, string) {
		if answer[0] == strconv.Itoa(RowIndexCount) {
			return "", ""
		}
		return "indexes for claiming by rows are missing", "the first relay makes them if it may; else run rowrelay migrate up --claim rows as the tables' owner"
	}}
}

func postgresSettings() Query {
	return Query{SQL: `SELECT name, value FROM (VALUES
    ('transaction_read_only', 'on'), ('enable_indexscan', 'off'), ('synchronous_commit', 'off'), ('plan_cache_mode', 'force_generic_plan')) AS unfit (name, value)
WHERE current_setting(name) = value
UNION ALL SELECT 'the server is', 'a standby' WHERE pg_is_in_recovery()`}
}

// postgresRights tries each right that a relay needs.
func postgresRights(table Table, claim string) Query {
	var a postgresArgs
	return a.query(
		postgresLacking(&a, postgresNeeds(table, claim)),
		"UNION ALL SELECT 'SELECT', 'on', pg_get_serial_sequence('"+table.Hot()+"', 'id')",
		"WHERE NOT has_sequence_privilege(pg_get_serial_sequence('"+table.Hot()+"', 'id'), 'SELECT')")
}

// right is to a table.
type right struct{ need, table string }

// postgresNeeds are the rights of a relay. Locking a row takes the right to
// UPDATE.
func postgresNeeds(table Table, claim string) (rights []right) {
	hot := "SELECT UPDATE DELETE"
	if claim == "rows" {
		hot += " INSERT"
	}
	for _, needed := range []struct{ table, rights string }{
		{table.Hot(), hot}, {table.Held(), "SELECT INSERT UPDATE DELETE"}, {table.Done(), "SELECT INSERT UPDATE DELETE"},
		{table.Lanes(), "SELECT UPDATE"}, {table.Relays(), "SELECT INSERT UPDATE DELETE"},
		{table.Settings(), "SELECT INSERT UPDATE"}, {table.Epoch(), "SELECT INSERT"}, {table.Messages(), "SELECT"},
	} {
		for need := range strings.FieldsSeq(needed.rights) {
			rights = append(rights, right{need, needed.table})
		}
	}
	return rights
}

func postgresLacking(a *postgresArgs, rights []right) string {
	tables := column(rights, func(r right) string { return r.table })
	needs := column(rights, func(r right) string { return r.need })
	return "SELECT need, 'on', name FROM unnest(" + a.texts(tables) + ", " + a.texts(needs) + ") AS n (name, need)" +
		"\nWHERE NOT has_table_privilege(name, need)"
}

func postgresOldest() Query {
	return Query{SQL: "SELECT min(xact_start)::timestamp(0)::text FROM pg_stat_activity" +
		" WHERE backend_type = 'client backend' HAVING min(xact_start) < now() - interval '10 minutes'"}
}

var postgresEstimate = regexp.MustCompile(`rows=(\d+)`)

// postgresPlan looks for a scan or sort of the whole table. While the table is
// small that is the best plan.
func postgresPlan(table Table) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		for _, line := range answer {
			whole := strings.Contains(line, "Seq Scan on "+quoted(table.Name())) || strings.Contains(line, "Sort ")
			estimate := postgresEstimate.FindStringSubmatch(line)
			if !whole || estimate == nil {
				continue
			}
			if rows, err := strconv.Atoi(estimate[1]); err != nil || rows > 10_000 {
				return "the claim reads the whole table: " + strings.TrimSpace(line), "run ANALYZE " + table.Hot() + ", and see that its indexes are there and valid"
			}
		}
		return "", ""
	}
}
