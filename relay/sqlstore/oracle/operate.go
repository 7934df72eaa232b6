package oracle

import (
	"context"
	"database/sql"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// List implements [backend.Backend].
func (d *Oracle) List(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var a args
	rows := "SELECT t.* FROM " + d.table.Messages + " t WHERE " + a.filter(filter, true)
	return backend.ReadInfos(ctx, d.db, a.query(
		d.sql.Text("as bytes"),
		"SELECT "+d.sql.Text("listed row"),
		ordered(rows, "t.id", " WHERE ROWNUM <= "+a.Add(int64(filter.Limit)))), filter.MaxBytes)
}

// filter returns the conditions on a row t for the filter's fields that aren't empty. It uses the filter's State only if
// the argument `states` is true.
func (a *args) filter(filter backend.Filter, states bool) string {
	where := "t.id > " + a.Add(filter.AfterID)
	if filter.ByID {
		where += " AND (t.id IN " + list(a, filter.RowIDs) + " OR " + bytes("LOWER(t.message_id)") + " IN " + a.texts(filter.MessageIDs) + ")"
	}
	if filter.Topic != "" {
		where += " AND " + same("t.topic", a.Add(filter.Topic))
	}
	if filter.TopicPrefix != "" {
		where += " AND INSTR(t.topic, " + a.Add(filter.TopicPrefix) + ") = 1"
	}
	if filter.Key != "" {
		where += " AND " + same("t.message_key", a.Add(filter.Key))
	}
	if filter.Sink != "" {
		where += " AND INSTR(',' || t.sinks || ',', " + a.Add(","+filter.Sink+",") + ") > 0"
	}
	if states && filter.State != "" {
		where += " AND t.state = " + a.Add(string(filter.State))
	}
	for _, bound := range filter.Times() {
		where += " AND " + bound.Condition + a.timestamp(bound.At)
	}
	if filter.Holds {
		where += " AND t.holds = 1"
	}
	if filter.Error != "" {
		where += " AND INSTR(t.last_error, " + a.Add(filter.Error) + ") > 0"
	}
	return where
}

// ChangeParked implements [backend.Backend]. It locks the rows, and then changes them by their
// ROWIDs. The limit is in a subquery, because a SELECT FOR UPDATE must not have a limit.
func (d *Oracle) ChangeParked(ctx context.Context, filter backend.Filter, what backend.ParkedChange) (ids []int64, err error) {
	condition := strings.ReplaceAll(what.Condition(d.table.Pending, d.table.Held, now), "o.sinks <> t.sinks", "NVL(o.sinks, ',') <> NVL(t.sinks, ',')")
	if what == backend.RedirectPending {
		return d.redirectPending(ctx, filter, condition)
	}
	change := "UPDATE " + d.table.Held + " t SET " + what.Set(now, "TIMESTAMP '9999-01-01 00:00:00'")
	if what.Deletes() {
		change = "DELETE FROM " + d.table.Held + " t"
	}
	state := string(what.State())
	parkedID := "CASE WHEN t.state = '" + state + "' THEN t.id END" // must match the index on parked rows
	var a args
	parked := a.query(
		"SELECT id, ROWIDTOCHAR(ROWID) FROM "+d.table.Held+" WHERE state = '"+state+"' AND ROWID IN (SELECT place FROM (",
		"    SELECT t.ROWID AS place FROM "+d.table.Held+" t WHERE "+parkedID+" IS NOT NULL"+condition+" AND "+a.filter(filter, false),
		"    ORDER BY "+parkedID+") WHERE ROWNUM <= "+a.Add(int64(filter.Limit))+")",
		"ORDER BY id FOR UPDATE")
	err = backend.InTx(ctx, d.db, nil, nil, func(tx *sql.Tx) error {
		var id int64
		var place string
		var places []string
		err := backend.All(ctx, tx, parked, func() { ids, places = append(ids, id), append(places, place) }, &id, &place)
		if err != nil || len(ids) == 0 {
			return err
		}
		var a args
		if what.Redirects() {
			change += ", t.sinks = " + a.Add(filter.To)
		}
		_, err = backend.Exec(ctx, tx, a.query(change+" WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM "+givenPlaces(&a, places)+")"))
		return err
	})
	return ids, err
}

// redirectPending sets the sink of pending rows to filter.To, and moves the rows to the held table as scheduled rows.
func (d *Oracle) redirectPending(ctx context.Context, filter backend.Filter, condition string) (ids []int64, err error) {
	var a args
	pending := a.query(
		"SELECT id, ROWIDTOCHAR(ROWID) FROM "+d.table.Pending+" WHERE ROWID IN (SELECT place FROM (",
		"    SELECT t.ROWID AS place FROM "+d.table.Pending+" t WHERE 1 = 1"+condition+" AND "+a.filter(filter, false),
		"    ORDER BY t.id) WHERE ROWNUM <= "+a.Add(int64(filter.Limit))+")",
		"ORDER BY id FOR UPDATE")
	err = backend.InTx(ctx, d.db, nil, nil, func(tx *sql.Tx) error {
		var id int64
		var place string
		var places []string
		err := backend.All(ctx, tx, pending, func() { ids, places = append(ids, id), append(places, place) }, &id, &place)
		if err != nil || len(ids) == 0 {
			return err
		}
		var insert, remove args
		const given = " WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM "
		_, err = backend.Exec(ctx, tx,
			insert.query(
				"INSERT INTO "+d.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)",
				"SELECT "+backend.KeptFor(insert.Add(filter.To))+", 0, 0, t.available_at, t.last_error, t.attempt_log, 'scheduled', 0",
				"FROM "+d.table.Pending+" t"+given+givenPlaces(&insert, places)+")"),
			remove.query("DELETE FROM "+d.table.Pending+" t"+given+givenPlaces(&remove, places)+")"))
		return err
	})
	return ids, err
}

// givenPlaces returns a FROM item with the ROWIDs as g.place.
func givenPlaces(a *args, places []string) string {
	return given(a, places, "place VARCHAR2(18) PATH '$'")
}

// Parked implements [backend.Backend].
func (d *Oracle) Parked(ctx context.Context, filter backend.Filter, within int64, each func(storage.Parked)) error {
	var a args
	where := a.filter(filter, false)
	return backend.ReadParked(ctx, d.db, d.table, d.table.Held+" t", "SUBSTR(t.last_error, 1, 200)", "d.headers", where, a.Args, filter, within, each)
}

// Check implements [backend.Backend]. It doesn't check the server's version, which the store has checked.
func (d *Oracle) Check(ctx context.Context, claim storage.Claim) []storage.Finding {
	probes := []backend.Probe{
		{Name: "rights", Query: rights(d.table), Judge: backend.List("this user lacks: ", "have the tables' owner grant these privileges: outbox/dialect/ORACLE.md lists the statements; or migrate as the relay's user")},
		{Name: "read", Query: d.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
		{Name: "transactions", Query: d.sql.Query("unseen views"), Judge: backend.List("this user may not see ", "have SYS grant both privileges (GRANT SELECT ON sys.gv_$transaction TO …; GRANT SELECT ON sys.v_$database TO …): "+
			"without both privileges, relays can't see open transactions, and assume that each transaction ends within longest_transaction")},
		{Name: "trigger", Query: d.sql.Query("disabled trigger"), Judge: backend.List("the trigger is not enabled: ", "have the tables' owner run ALTER TRIGGER … ENABLE: without the trigger, messages may be delivered out of order if a producer's INSERT takes longer than a second")},
	}
	if claim == storage.ByRows {
		probes = append(probes, backend.RowIndexes(d.dialect.RowIndexes(d.table)))
	}
	return backend.Findings(ctx, d.db, probes)
}

// rights returns the query that selects the privileges that a relay needs but the user lacks. The
// owner has all privileges. Other users have a privilege on a table if it was granted to the user,
// to an enabled role or to PUBLIC, or if they have the privilege for all tables (ANY TABLE).
func rights(table dialect.Table) backend.Query {
	var needs []string
	for _, needed := range []struct{ suffix, rights string }{
		{"", "SELECT INSERT UPDATE DELETE"}, {"_held", "SELECT INSERT UPDATE DELETE"}, {"_done", "SELECT INSERT DELETE"}, {"_ids", "SELECT DELETE"}, {"_lanes", "SELECT UPDATE"},
		{"_relays", "SELECT INSERT UPDATE DELETE"}, {"_settings", "SELECT INSERT UPDATE"}, {"_controls", "SELECT INSERT DELETE"}, {"_actions", "SELECT INSERT UPDATE"}, {"_messages", "SELECT"}, {"_locks", "SELECT"},
	} {
		for right := range strings.FieldsSeq(needed.rights) {
			needs = append(needs, "SELECT '"+right+"' AS need, '"+dialect.OracleName(table.Name+needed.suffix)+"' AS name FROM dual")
		}
	}
	return backend.Query{SQL: "SELECT n.need, 'on', n.name FROM (\n    " + strings.Join(needs, "\n    UNION ALL ") + ") n\n" +
		"WHERE " + dialect.OracleOwner(table) + " <> SYS_CONTEXT('USERENV', 'CURRENT_USER')\n" +
		"    AND NOT EXISTS (SELECT 1 FROM all_tab_privs p WHERE p.table_schema = " + dialect.OracleOwner(table) + " AND p.table_name = n.name AND p.privilege = n.need)\n" +
		"    AND NOT EXISTS (SELECT 1 FROM session_privs s WHERE s.privilege = n.need || ' ANY TABLE')"}
}
