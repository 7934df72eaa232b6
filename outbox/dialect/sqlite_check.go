package dialect

import (
	"strconv"
	"strings"
)

// Probes are what an operator would look at.
func (d sqlite) Probes(table Table, claim string) []Probe {
	probes := []Probe{
		{"server", sqliteQuery("SELECT sqlite_version()"), sqliteVersion},
		{"journal", sqliteQuery("PRAGMA journal_mode"), sqlitePragma("wal", "journal_mode is ", "open the file with journal_mode=WAL, so that readers don't hold up writers")},
		{"busy timeout", sqliteQuery("PRAGMA busy_timeout"), sqliteAtLeast(1000, "busy_timeout is ", "open the file with a busy_timeout of some seconds")},
		{"synchronous", sqliteQuery("PRAGMA synchronous"), sqliteAtLeast(1, "synchronous is ", "open the file with synchronous=NORMAL or FULL: what was committed may get lost")},
		{"columns", d.Read(table, Read{Limit: 1}), nothingWrong},
	}
	plan := d.Read(table, Read{Positions: []Position{{Lane: 1, Until: 1 << 62}}, Limit: 500})
	if claim == "rows" {
		plan = d.Claim(table, Claim{Limit: 500}).Ask
		probes = append(probes, indexProbe(d.RowIndexes(table)))
	}
	plan.SQL = "EXPLAIN QUERY PLAN " + plan.SQL
	return append(probes, Probe{"plan", plan, sqlitePlan(table)})
}

func sqliteVersion(answer []string) (wrong, hint string) {
	parts := strings.Split(answer[0], ".")
	major, _ := strconv.Atoi(parts[0])
	minor := 0
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	if major < 3 || major == 3 && minor < 35 {
		return "SQLite is of version " + answer[0], "3.35 or later is needed"
	}
	return "", ""
}

func sqlitePragma(want, wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if strings.EqualFold(answer[0], want) {
			return "", ""
		}
		return wrong + answer[0], hint
	}
}

func sqliteAtLeast(least int, wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if value, err := strconv.Atoi(answer[0]); err == nil && value >= least {
			return "", ""
		}
		return wrong + answer[0], hint
	}
}

// sqlitePlan looks for a scan or sort of the whole table.
func sqlitePlan(table Table) func([]string) (string, string) {
	return func(answer []string) (wrong, hint string) {
		for _, line := range answer {
			if strings.Contains(line, "TEMP B-TREE FOR ORDER BY") || strings.HasSuffix(line, "SCAN t") || strings.HasSuffix(line, "SCAN "+table.Name()) {
				return "the claim reads the whole table: " + line, "see that the table's indexes are there, and run rowrelay migrate up"
			}
		}
		return "", ""
	}
}
