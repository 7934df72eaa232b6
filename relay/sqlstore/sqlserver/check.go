package sqlserver

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Check implements [backend.Backend]. Plans aren't looked at: showing one takes a right
// that a relay has no other use for.
func (d *SQLServer) Check(ctx context.Context, claim relay.Claim) []backend.Finding {
	probes := []backend.Probe{
		{Name: "database", Query: database(), Judge: backend.List("this does not fit: ", "use the primary server's database, one that can be written to")},
		{Name: "locks", Query: locks(d.table), Judge: backend.List("whole pages or tables may be locked: ", "have the tables' owner set ALLOW_PAGE_LOCKS = OFF and LOCK_ESCALATION = DISABLE again, as the migration does")},
		{Name: "rights", Query: rights(d.table, claim), Judge: backend.List("this user lacks: ", "have the tables' owner run GRANT, as the documentation of the dialect says")},
		{Name: "columns", Query: d.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
	}
	if claim == relay.ByRows {
		probes = append(probes, backend.RowIndexes(d.dialect.RowIndexes(d.table)))
	}
	return backend.Findings(ctx, d.db, probes)
}

func database() backend.Query {
	return query(
		"SELECT N'the database is', N'read-only' WHERE DATABASEPROPERTYEX(DB_NAME(), N'Updateability') <> N'READ_WRITE'",
		"UNION ALL SELECT N'QUOTED_IDENTIFIER is', N'off' WHERE SESSIONPROPERTY(N'QUOTED_IDENTIFIER') = 0",
		"UNION ALL SELECT N'ANSI_WARNINGS is', N'off' WHERE SESSIONPROPERTY(N'ANSI_WARNINGS') = 0")
}

func locks(table dialect.Table) backend.Query {
	objects := "IN (OBJECT_ID(" + literal(table, "") + "), OBJECT_ID(" + literal(table, "_held") + "), OBJECT_ID(" + literal(table, "_lanes") + "))"
	return query(
		"SELECT N'pages of', name FROM sys.indexes WHERE object_id "+objects+" AND allow_page_locks = 1",
		"UNION ALL SELECT N'all of', name FROM sys.tables WHERE object_id "+objects+" AND lock_escalation_desc <> N'DISABLE'")
}

// rights tries each right that a relay needs. To see a sequence's last
// value takes any right to it.
func rights(table dialect.Table, claim relay.Claim) backend.Query {
	hot := "SELECT UPDATE DELETE"
	if claim == relay.ByRows {
		hot += " INSERT"
	}
	var needs []string
	for _, needed := range []struct{ suffix, rights string }{
		{"", hot}, {"_held", "SELECT INSERT UPDATE DELETE"}, {"_done", "SELECT INSERT UPDATE DELETE"}, {"_lanes", "SELECT UPDATE"},
		{"_relays", "SELECT INSERT UPDATE DELETE"}, {"_settings", "SELECT INSERT UPDATE"}, {"_messages", "SELECT"}, {"_id", "VIEW DEFINITION"},
	} {
		rights := strings.Fields(needed.rights)
		if needed.suffix == "_id" {
			rights = []string{needed.rights}
		}
		for _, right := range rights {
			needs = append(needs, "(N'"+right+"', "+literal(table, needed.suffix)+")")
		}
	}
	return query(
		"SELECT need, N'on', name FROM (VALUES "+strings.Join(needs, ",\n    ")+") AS n (need, name)",
		"WHERE COALESCE(HAS_PERMS_BY_NAME(name, N'OBJECT', need), 0) = 0")
}
