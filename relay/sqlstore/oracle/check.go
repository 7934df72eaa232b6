package oracle

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Check implements [backend.Backend]. The version is looked at when the table is opened.
func (d *Oracle) Check(ctx context.Context, claim relay.Claim) []backend.Finding {
	probes := []backend.Probe{
		{Name: "rights", Query: rights(d.table, claim), Judge: backend.List("this user lacks: ", "have the tables' owner run GRANT, as "+d.table.Hot+"'s documentation says, or migrate as the user who relays")},
		{Name: "columns", Query: d.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
		{Name: "transactions", Query: seen(), Judge: backend.List("this user may not see ", "GRANT SELECT ON sys.gv_$transaction and ON sys.v_$database TO it, "+
			"so that ids count as final as soon as they are; without, they do when the longest transaction that is configured has passed")},
		{Name: "trigger", Query: trigger(d.table), Judge: backend.List("the trigger is not enabled: ", "have the tables' owner run ALTER TRIGGER … ENABLE: without it the order of messages isn't kept where a producer's statement waits for a second")},
	}
	if claim == relay.ByRows {
		probes = append(probes, backend.RowIndexes(d.dialect.RowIndexes(d.table)))
	}
	return backend.Findings(ctx, d.db, probes)
}

// rights looks for each right that a relay needs: as the owner, by a grant
// to the user, to a role that is enabled or to everybody, or on any table.
func rights(table dialect.Table, claim relay.Claim) backend.Query {
	hot := "SELECT UPDATE DELETE"
	if claim == relay.ByRows {
		hot += " INSERT"
	}
	var needs []string
	for _, needed := range []struct{ suffix, rights string }{
		{"", hot}, {"_held", "SELECT INSERT UPDATE DELETE"}, {"_done", "SELECT INSERT DELETE"}, {"_lanes", "SELECT UPDATE"},
		{"_relays", "SELECT INSERT UPDATE DELETE"}, {"_settings", "SELECT INSERT UPDATE"}, {"_messages", "SELECT"}, {"_locks", "SELECT"},
	} {
		for right := range strings.FieldsSeq(needed.rights) {
			needs = append(needs, "SELECT '"+right+"' AS need, '"+name(table.Name+needed.suffix)+"' AS name FROM dual")
		}
	}
	return backend.Query{SQL: "SELECT n.need, 'on', n.name FROM (\n    " + strings.Join(needs, "\n    UNION ALL ") + ") n\n" +
		"WHERE " + owner(table) + " <> SYS_CONTEXT('USERENV', 'CURRENT_USER')\n" +
		"    AND NOT EXISTS (SELECT 1 FROM all_tab_privs p WHERE p.table_schema = " + owner(table) + " AND p.table_name = n.name AND p.privilege = n.need)\n" +
		"    AND NOT EXISTS (SELECT 1 FROM session_privs s WHERE s.privilege = n.need || ' ANY TABLE')"}
}

// seen selects the views of the server's that the user can't see.
func seen() backend.Query {
	return backend.Query{SQL: "SELECT n.name FROM (SELECT 'GV_$TRANSACTION' AS name FROM dual UNION ALL SELECT 'V_$DATABASE' FROM dual) n\n" +
		"WHERE NOT EXISTS (SELECT 1 FROM all_objects o WHERE o.owner = 'SYS' AND o.object_name = n.name)"}
}

func trigger(table dialect.Table) backend.Query {
	return backend.Query{SQL: "SELECT trigger_name, status FROM all_triggers WHERE owner = " + owner(table) +
		" AND trigger_name = '" + name(table.Name+"_begin") + "' AND status <> 'ENABLED'"}
}
