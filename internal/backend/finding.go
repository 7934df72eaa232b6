package backend

import (
	"context"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Probe is one query of a check, with a function that judges its result.
type Probe struct {
	Name  string
	Query Query // selects text in any number of columns

	// Judge examines the result of the query: a text for each row, with blanks between the columns. If the
	// result shows a problem, Judge returns a description and a hint; otherwise it returns empty strings.
	Judge func(answer []string) (wrong, hint string)
}

// Findings runs the probes, and returns a finding for each.
func Findings(ctx context.Context, q Querier, probes []Probe) (findings []storage.Finding) {
	for _, probe := range probes {
		finding := storage.Finding{Name: probe.Name}
		if answer, err := Lines(ctx, q, probe.Query); err != nil {
			finding.Detail = err.Error()
		} else {
			finding.Detail, finding.Hint = probe.Judge(answer)
			finding.OK = finding.Detail == ""
		}
		findings = append(findings, finding)
	}
	return findings
}

// Nothing is a Judge that accepts every result. A probe with this Judge only tests whether the database runs the query.
func Nothing([]string) (wrong, hint string) { return "", "" }

// List returns a Judge for a query that selects a row for each problem. The description of the problems consists of the
// first argument and the list of rows.
func List(wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if len(answer) == 0 {
			return "", ""
		}
		return wrong + strings.Join(answer, ", "), hint
	}
}

// Lacks returns a Judge for a query that selects the privileges that the user lacks, such as "SELECT on outbox".
// Its hint has the statements that grant these privileges, each on a line of its own.
func Lacks(user string) func(answer []string) (wrong, hint string) {
	return func(answer []string) (wrong, hint string) {
		if len(answer) == 0 {
			return "", ""
		}
		var tables, grants []string
		rights := map[string][]string{}
		for _, line := range answer {
			i := strings.LastIndex(strings.ToLower(line), " on ")
			right, table := line[:i], line[i+len(" on "):]
			if rights[table] == nil {
				tables = append(tables, table)
			}
			rights[table] = append(rights[table], right)
		}
		for _, table := range tables {
			grants = append(grants, "\nGRANT "+strings.Join(rights[table], ", ")+" ON "+table+" TO "+user+";")
		}
		return "this user lacks: " + strings.Join(answer, ", "), "migrate as the relay's user, or have the tables' owner run these statements:" + strings.Join(grants, "")
	}
}

// RowIndexes returns a probe that tests whether the indexes for claiming by rows exist.
func RowIndexes(query Query) Probe {
	return Probe{"indexes", query, func(answer []string) (string, string) {
		if answer[0] == strconv.Itoa(dialect.RowIndexCount) {
			return "", ""
		}
		return "indexes for claiming by rows are missing", "the first relay creates them if it has the privileges; otherwise run rowrelay migrate up --claim rows as the tables' owner"
	}}
}
