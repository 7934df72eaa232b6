package sqlite

import (
	"context"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Check implements [backend.Backend].
func (s *SQLite) Check(ctx context.Context, claim relay.Claim) []backend.Finding {
	probes := []backend.Probe{
		{Name: "server", Query: query("SELECT sqlite_version()"), Judge: judgeVersion},
		{Name: "journal", Query: query("PRAGMA journal_mode"), Judge: pragma("wal", "journal_mode is ", "open the file with journal_mode=WAL, so that readers don't hold up writers")},
		{Name: "busy timeout", Query: query("PRAGMA busy_timeout"), Judge: atLeast(1000, "busy_timeout is ", "open the file with a busy_timeout of some seconds")},
		{Name: "synchronous", Query: query("PRAGMA synchronous"), Judge: atLeast(1, "synchronous is ", "open the file with synchronous=NORMAL or FULL: what was committed may get lost")},
		{Name: "columns", Query: s.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
	}
	plan := s.page(backend.Read{Positions: []relay.Position{{Lane: 1, Until: 1 << 62}}, Limit: 500})
	if claim == relay.ByRows {
		plan = s.claim(relay.ClaimRequest{Limit: 500})
		probes = append(probes, backend.RowIndexes(s.dialect.RowIndexes(s.table)))
	}
	plan.SQL = "EXPLAIN QUERY PLAN " + plan.SQL
	return backend.Findings(ctx, s.db, append(probes, backend.Probe{Name: "plan", Query: plan, Judge: s.judgePlan}))
}

func judgeVersion(answer []string) (wrong, hint string) {
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

func pragma(want, wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if strings.EqualFold(answer[0], want) {
			return "", ""
		}
		return wrong + answer[0], hint
	}
}

func atLeast(least int, wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if value, err := strconv.Atoi(answer[0]); err == nil && value >= least {
			return "", ""
		}
		return wrong + answer[0], hint
	}
}

// judgePlan looks for a scan or sort of the whole table.
func (s *SQLite) judgePlan(answer []string) (wrong, hint string) {
	for _, line := range answer {
		if strings.Contains(line, "TEMP B-TREE FOR ORDER BY") || strings.HasSuffix(line, "SCAN t") || strings.HasSuffix(line, "SCAN "+s.table.Name()) {
			return "the claim reads the whole table: " + line, "see that the table's indexes are there, and run rowrelay migrate up"
		}
	}
	return "", ""
}
