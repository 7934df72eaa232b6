package sqlserver

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// List implements [backend.Backend].
func (d *SQLServer) List(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var a args
	return backend.ReadInfos(ctx, d.db, a.query(
		d.sql.Text("at one moment"),
		"SELECT TOP ("+a.add(int64(filter.Limit))+") "+d.sql.Text("listed row"),
		"FROM "+d.table.Messages+" AS t WHERE "+conditions(&a, filter, true)+" ORDER BY t.id;",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED"), filter.MaxBytes)
}

// conditions returns the conditions on a row t for the filter's fields that aren't empty. It omits conditions for
// empty fields, so that the server can use an index. It uses the filter's State only if the argument `states` is true.
func conditions(a *args, filter backend.Filter, states bool) string {
	where := "t.id > " + a.add(filter.AfterID)
	if filter.ByID {
		where += " AND (t.id IN (SELECT id FROM OPENJSON(" + a.add(dialect.SQLServerList(filter.RowIDs)) + ") WITH (id bigint '$'))" +
			" OR t.message_id IN (SELECT message_id FROM OPENJSON(" + a.add(dialect.SQLServerList(filter.MessageIDs)) + ") WITH (message_id uniqueidentifier '$')))"
	}
	if filter.Topic != "" {
		where += " AND " + sameText(a, "t.topic", filter.Topic)
	}
	if filter.TopicPrefix != "" {
		where += " AND CHARINDEX(" + a.add(filter.TopicPrefix) + ", t.topic) = 1"
	}
	if filter.Key != "" {
		where += " AND " + sameText(a, "t.message_key", filter.Key)
	}
	if filter.Sink != "" {
		where += " AND CHARINDEX(" + a.add(","+filter.Sink+",") + ", CONCAT(N',', t.sinks, N',')) > 0"
	}
	if states && filter.State != "" {
		where += " AND t.state = " + a.add(string(filter.State))
	}
	for _, bound := range filter.Times() {
		where += " AND " + bound.Condition + "CONVERT(datetime2(7), " + a.add(timestamp(bound.At)) + ", 126)"
	}
	if filter.Holds {
		where += " AND t.holds = 1"
	}
	if filter.Error != "" {
		where += " AND CHARINDEX(" + a.add(filter.Error) + ", t.last_error) > 0"
	}
	return where
}

// sameText returns the condition that a column equals the text. It also compares the lengths, because = ignores spaces at the
// end.
func sameText(a *args, column, text string) string {
	place := a.add(text)
	return column + " = " + place + " AND DATALENGTH(" + column + ") = DATALENGTH(" + place + ")"
}

// among returns the condition that a column equals one of the texts.
func among(a *args, column string, texts []string) string {
	same := make([]string, len(texts))
	for i, text := range texts {
		same[i] = sameText(a, column, text)
	}
	return "(" + strings.Join(same, " OR ") + ")"
}

// ChangeParked implements [backend.Backend].
func (d *SQLServer) ChangeParked(ctx context.Context, filter backend.Filter, what backend.ParkedChange) ([]int64, error) {
	var a args
	condition := what.Condition(d.table.Pending, d.table.Held, "SYSUTCDATETIME()")
	if what == backend.RedirectPending {
		return backend.IDs(ctx, d.db, a.query(
			d.sql.Text("read committed"),
			"WITH pending AS (\n    SELECT TOP ("+a.add(int64(filter.Limit))+") * FROM "+d.table.Pending+" AS t WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)"+
				"\n    WHERE 1 = 1"+condition+" AND "+conditions(&a, filter, false)+" ORDER BY t.id)",
			"DELETE FROM pending",
			"OUTPUT "+strings.ReplaceAll(backend.KeptFor(a.add(filter.To)), "t.", "deleted.")+", 0, 0, deleted.available_at, deleted.last_error, deleted.attempt_log, N'scheduled', 0",
			"INTO "+d.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)",
			"OUTPUT deleted.id"))
	}
	sets := what.Set("SYSUTCDATETIME()", "CONVERT(datetime2(7), '9999-01-01T00:00:00', 126)")
	if what.Redirects() {
		sets += ", sinks = " + a.add(filter.To)
	}
	change := "UPDATE parked SET " + sets + "\nOUTPUT inserted.id"
	if what.Deletes() {
		change = "DELETE FROM parked\nOUTPUT deleted.id"
	}
	index := "" // the index held_error has only the parked rows
	if what.State() == storage.StateError {
		index = "INDEX(" + d.table.IndexName("held_error") + "), "
	}
	return backend.IDs(ctx, d.db, a.query(
		d.sql.Text("read committed"),
		"WITH parked AS (\n    SELECT TOP ("+a.add(int64(filter.Limit))+") * FROM "+d.table.Held+" AS t WITH ("+index+"UPDLOCK, ROWLOCK)"+
			"\n    WHERE t.state = N'"+string(what.State())+"'"+condition+" AND "+conditions(&a, filter, false)+" ORDER BY t.id)",
		change))
}

// Parked implements [backend.Backend].
func (d *SQLServer) Parked(ctx context.Context, filter backend.Filter, within int64, each func(storage.Parked)) error {
	var a args
	where := conditions(&a, filter, false)
	return backend.ReadParked(ctx, d.db, d.table, d.table.Held+" t", "LEFT(t.last_error, 200)", "d.headers", where, a, filter, within, each)
}

// Check implements [backend.Backend]. It doesn't examine plans, because a user needs an additional privilege to see plans.
func (d *SQLServer) Check(ctx context.Context, claim storage.Claim) []storage.Finding {
	probes := []backend.Probe{
		{Name: "database", Query: d.sql.Query("unfit settings"), Judge: backend.List("a relay can't run, because ", "connect to a database on the primary server that can be written to, and don't let the connection turn off ANSI settings that drivers turn on by default")},
		{Name: "locks", Query: d.sql.Query("large locks"), Judge: backend.List("the server may lock whole pages or tables: ", "have the tables' owner set ALLOW_PAGE_LOCKS = OFF and LOCK_ESCALATION = DISABLE again, as the migration does")},
		{Name: "rights", Query: rights(d.table), Judge: backend.List("this user lacks: ", "have the tables' owner grant these privileges: outbox/dialect/SQLSERVER.md lists the statements")},
		{Name: "read", Query: d.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
	}
	if claim == storage.ByRows {
		probes = append(probes, backend.RowIndexes(d.dialect.RowIndexes(d.table)))
	}
	return backend.Findings(ctx, d.db, probes)
}

// rights returns the query that selects the privileges that a relay needs but the user lacks. Any
// privilege on a sequence is enough to see its last value.
func rights(table dialect.Table) backend.Query {
	var needs []string
	for _, needed := range []struct{ suffix, rights string }{
		{"", "SELECT INSERT UPDATE DELETE"}, {"_held", "SELECT INSERT UPDATE DELETE"}, {"_done", "SELECT INSERT UPDATE DELETE"}, {"_ids", "SELECT DELETE"}, {"_lanes", "SELECT UPDATE"},
		{"_relays", "SELECT INSERT UPDATE DELETE"}, {"_settings", "SELECT INSERT UPDATE"}, {"_controls", "SELECT INSERT DELETE"}, {"_actions", "SELECT INSERT UPDATE"}, {"_messages", "SELECT"}, {"_id", "VIEW DEFINITION"},
	} {
		rights := strings.Fields(needed.rights)
		if needed.suffix == "_id" {
			rights = []string{needed.rights}
		}
		for _, right := range rights {
			needs = append(needs, "(N'"+right+"', "+dialect.SQLServerObject(table, needed.suffix)+")")
		}
	}
	return backend.Query{SQL: "SELECT need, N'on', name FROM (VALUES " + strings.Join(needs, ",\n    ") + ") AS n (need, name)" +
		"\nWHERE COALESCE(HAS_PERMS_BY_NAME(name, N'OBJECT', need), 0) = 0"}
}
