package dialect

import "strings"

// Probes are what an operator would look at. The version is looked at when the
// table is opened.
func (o oracle) Probes(table Table, claim string) []Probe {
	probes := []Probe{
		{"rights", oracleRights(table, claim), listOf("this user lacks: ", "have the tables' owner run GRANT, as "+table.Hot()+"'s documentation says, or migrate as the user who relays")},
		{"columns", o.Read(table, Read{Limit: 1}), nothingWrong},
		{"transactions", oracleSeen(), listOf("this user may not see ", "GRANT SELECT ON sys.gv_$transaction and ON sys.v_$database TO it, "+
			"so that ids count as final as soon as they are; without, they do when the longest transaction that is configured has passed")},
		{"trigger", oracleTrigger(table), listOf("the trigger is not enabled: ", "have the tables' owner run ALTER TRIGGER … ENABLE: without it the order of messages isn't kept where a producer's statement waits for a second")},
	}
	if claim == "rows" {
		probes = append(probes, indexProbe(o.RowIndexes(table)))
	}
	return probes
}

// oracleRights looks for each right that a relay needs: as the owner, by a grant
// to the user, to a role that is enabled or to everybody, or on any table.
func oracleRights(table Table, claim string) Query {
	hot := "SELECT UPDATE DELETE"
	if claim == "rows" {
		hot += " INSERT"
	}
	var needs []string
	for _, needed := range []struct{ suffix, rights string }{
		{"", hot}, {"_held", "SELECT INSERT UPDATE DELETE"}, {"_done", "SELECT INSERT DELETE"}, {"_lanes", "SELECT UPDATE"},
		{"_relays", "SELECT INSERT UPDATE DELETE"}, {"_settings", "SELECT INSERT UPDATE"}, {"_messages", "SELECT"}, {"_locks", "SELECT"},
	} {
		for right := range strings.FieldsSeq(needed.rights) {
			needs = append(needs, "SELECT '"+right+"' AS need, '"+oracleName(table.Name()+needed.suffix)+"' AS name FROM dual")
		}
	}
	return Query{SQL: "SELECT n.need, 'on', n.name FROM (\n    " + strings.Join(needs, "\n    UNION ALL ") + ") n\n" +
		"WHERE " + oracleOwner(table) + " <> SYS_CONTEXT('USERENV', 'CURRENT_USER')\n" +
		"    AND NOT EXISTS (SELECT 1 FROM all_tab_privs p WHERE p.table_schema = " + oracleOwner(table) + " AND p.table_name = n.name AND p.privilege = n.need)\n" +
		"    AND NOT EXISTS (SELECT 1 FROM session_privs s WHERE s.privilege = n.need || ' ANY TABLE')"}
}

// oracleSeen selects the views of the server's that the user can't see.
func oracleSeen() Query {
	return Query{SQL: "SELECT n.name FROM (SELECT 'GV_$TRANSACTION' AS name FROM dual UNION ALL SELECT 'V_$DATABASE' FROM dual) n\n" +
		"WHERE NOT EXISTS (SELECT 1 FROM all_objects o WHERE o.owner = 'SYS' AND o.object_name = n.name)"}
}

func oracleTrigger(table Table) Query {
	return Query{SQL: "SELECT trigger_name, status FROM all_triggers WHERE owner = " + oracleOwner(table) +
		" AND trigger_name = '" + oracleName(table.Name()+"_begin") + "' AND status <> 'ENABLED'"}
}
