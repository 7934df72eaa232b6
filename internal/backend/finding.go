package backend

import (
	"context"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Probe is one question of a check.
type Probe struct {
	Name  string
	Query Query // selects lines: text in any number of columns

	// Judge says what is wrong with the answer, and what to do; nothing if all
	// is well. An answer is its lines, with blanks between columns.
	Judge func(answer []string) (wrong, hint string)
}

// Findings are those of some probes.
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

// Nothing finds nothing wrong: it is enough that the database understood.
func Nothing([]string) (wrong, hint string) { return "", "" }

// List is for a query that selects what is wrong.
func List(wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if len(answer) == 0 {
			return "", ""
		}
		return wrong + strings.Join(answer, ", "), hint
	}
}

// Lacks judges what a user lacks, in lines as SELECT on outbox, by the commands that grant it.
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
			grants = append(grants, "GRANT "+strings.Join(rights[table], ", ")+" ON "+table+" TO "+user)
		}
		return "this user lacks: " + strings.Join(answer, ", "), "have the tables' owner run " + strings.Join(grants, "; ") + "; or migrate as the user who relays"
	}
}

// RowIndexes probes whether the indexes for claiming by rows are there.
func RowIndexes(query Query) Probe {
	return Probe{"indexes", query, func(answer []string) (string, string) {
		if answer[0] == strconv.Itoa(dialect.RowIndexCount) {
			return "", ""
		}
		return "indexes for claiming by rows are missing", "the first relay makes them if it may; else run rowrelay migrate up --claim rows as the tables' owner"
	}}
}
