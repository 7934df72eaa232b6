package dialect

import "strings"

// Probes are what an operator would look at. Plans aren't among them: showing
// one takes a right that a relay has no other use for.
func (d sqlserver) Probes(table Table, claim string) []Probe {
	probes := []Probe{
		{"database", sqlserverDatabase(), listOf("this does not fit: ", "use the primary server's database, one that can be written to")},
		{"locks", sqlserverLocks(table), listOf("whole pages or tables may be locked: ", "have the tables' owner set ALLOW_PAGE_LOCKS = OFF and LOCK_ESCALATION = DISABLE again, as the migration does")},
		{"rights", sqlserverRights(table, claim), listOf("this user lacks: ", "have the tables' owner run GRANT, as the documentation of the dialect says")},
		{"columns", d.Read(table, Read{Limit: 1}), nothingWrong},
	}
	if claim == "rows" {
		probes = append(probes, indexProbe(d.RowIndexes(table)))
	}
	return probes
}

func sqlserverDatabase() Query {
	return sqlserverQuery(
		"SELECT N'the database is', N'read-only' WHERE DATABASEPROPERTYEX(DB_NAME(), N'Updateability') <> N'READ_WRITE'",
		"UNION ALL SELECT N'QUOTED_IDENTIFIER is', N'off' WHERE SESSIONPROPERTY(N'QUOTED_IDENTIFIER') = 0",
		"UNION ALL SELECT N'ANSI_WARNINGS is', N'off' WHERE SESSIONPROPERTY(N'ANSI_WARNINGS') = 0")
}

func sqlserverLocks(table Table) Query {
	objects := "IN (OBJECT_ID(" + sqlserverLiteral(table, "") + "), OBJECT_ID(" + sqlserverLiteral(table, "_held") + "), OBJECT_ID(" + sqlserverLiteral(table, "_lanes") + "))"
	return sqlserverQuery(
		"SELECT N'pages of', name FROM sys.indexes WHERE object_id "+objects+" AND allow_page_locks = 1",
		"UNION ALL SELECT N'all of', name FROM sys.tables WHERE object_id "+objects+" AND lock_escalation_desc <> N'DISABLE'")
}

// sqlserverRights tries each right that a relay needs. To see a sequence's last
// value takes any right to it.
func sqlserverRights(table Table, claim string) Query {
	hot := "SELECT UPDATE DELETE"
	if claim == "rows" {
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
			needs = append(needs, "(N'"+right+"', "+sqlserverLiteral(table, needed.suffix)+")")
		}
	}
	return sqlserverQuery(
		"SELECT need, N'on', name FROM (VALUES "+strings.Join(needs, ",\n    ")+") AS n (need, name)",
		"WHERE COALESCE(HAS_PERMS_BY_NAME(name, N'OBJECT', need), 0) = 0")
}
