package sqlserver

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// The columns of a listing's row of the view.
const listed = plain + ",\n    " + payload + " + " + later + " + " + retrying +
	", t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')"

// List implements [backend.Operating].
func (d *SQLServer) List(ctx context.Context, filter backend.Filter) ([]relay.Info, error) {
	var a args
	return backend.ReadInfos(ctx, d.db, d.read(&a,
		"SELECT TOP ("+a.int(filter.Limit)+") "+listed,
		"FROM "+d.table.Messages+" AS t WHERE "+conditions(&a, filter, true)+" ORDER BY t.id"))
}

// conditions leave out what is empty, so that an index may serve what is
// there.
func conditions(a *args, filter backend.Filter, states bool) string {
	where := []string{"t.id > " + a.add(filter.AfterID)}
	add := func(wanted bool, condition func() string) {
		if wanted {
			where = append(where, condition())
		}
	}
	add(filter.ByID, func() string {
		return "(t.id IN " + iDs(a, filter.RowIDs) +
			" OR t.message_id IN (SELECT message_id FROM OPENJSON(" + list(a, filter.MessageIDs) + ") WITH (message_id uniqueidentifier '$')))"
	})
	add(filter.Topic != "", func() string { return sameText(a, "t.topic", filter.Topic) })
	add(filter.Key != "", func() string { return sameText(a, "t.message_key", filter.Key) })
	add(states && filter.State != "", func() string { return "t.state = " + a.add(string(filter.State)) })
	add(!filter.Since.IsZero(), func() string { return "t.created_at >= " + a.time(filter.Since) })
	add(filter.Error != "", func() string { return "CHARINDEX(" + a.add(filter.Error) + ", t.last_error) > 0" })
	return strings.Join(where, " AND ")
}

// sameText also compares the lengths: blanks at the end don't count for =.
func sameText(a *args, column, text string) string {
	place := a.add(text)
	return column + " = " + place + " AND DATALENGTH(" + column + ") = DATALENGTH(" + place + ")"
}

// among is the same for several texts.
func among(a *args, column string, texts []string) string {
	same := make([]string, len(texts))
	for i, text := range texts {
		same[i] = sameText(a, column, text)
	}
	return "(" + strings.Join(same, " OR ") + ")"
}

// ChangeParked implements [backend.Backend].
func (d *SQLServer) ChangeParked(ctx context.Context, filter backend.Filter, discard bool) ([]int64, error) {
	var a args
	change := "UPDATE parked SET state = N'scheduled', attempts = 0, crashes = 0, available_at = SYSUTCDATETIME()\nOUTPUT inserted.id"
	if discard {
		change = "DELETE FROM parked\nOUTPUT deleted.id"
	}
	return backend.IDs(ctx, d.db, a.write(
		"WITH parked AS (\n    SELECT TOP ("+a.int(filter.Limit)+") * FROM "+d.table.Held+" AS t WITH (INDEX("+d.table.IndexName("held_error")+"), UPDLOCK, ROWLOCK)"+
			"\n    WHERE t.state = N'error' AND "+conditions(&a, filter, false)+" ORDER BY t.id)",
		change))
}

// What of the hot and the held rows could be delivered now.
const (
	hotNow  = "(available_at IS NULL OR available_at <= SYSUTCDATETIME()) AND (claimed_until IS NULL OR claimed_until <= SYSUTCDATETIME())"
	heldNow = "state = N'scheduled' AND due_at <= SYSUTCDATETIME()"
)

// counts counts the hot and the held rows, and the done ones up to the limit;
// beyond it goes by the table's own count, which is about right.
func (d *SQLServer) counts(limit int) backend.Query {
	var a args
	top := a.int(limit)
	return d.read(&a,
		"SELECT state, COUNT_BIG(*) FROM (",
		"    SELECT CASE WHEN claimed_until > SYSUTCDATETIME() THEN N'claimed' WHEN available_at > SYSUTCDATETIME() THEN N'scheduled' ELSE N'pending' END AS state FROM "+d.table.Hot,
		"    UNION ALL SELECT CASE WHEN "+heldNow+" THEN N'pending' ELSE state END FROM "+d.table.Held,
		") AS s GROUP BY state",
		"UNION ALL",
		"SELECT N'done', CASE WHEN n < "+top+" THEN n ELSE (SELECT SUM(rows) FROM sys.partitions WHERE object_id = OBJECT_ID("+literal(d.table, "_done")+") AND index_id = 1) END",
		"FROM (SELECT COUNT_BIG(*) AS n FROM (SELECT TOP ("+top+") id FROM "+d.table.Done+") AS d) AS c")
}

// oldest counts a row's age from when it could be delivered first.
func (d *SQLServer) oldest() backend.Query {
	const since = "CASE WHEN available_at > created_at THEN available_at ELSE created_at END"
	return d.read(&args{},
		"SELECT CASE WHEN MIN(since) < SYSUTCDATETIME() THEN DATEDIFF_BIG(MILLISECOND, MIN(since), SYSUTCDATETIME()) ELSE 0 END FROM (",
		"    SELECT "+since+" AS since FROM "+d.table.Hot+" WHERE "+hotNow,
		"    UNION ALL SELECT "+since+" FROM "+d.table.Held+" WHERE "+heldNow+") AS p")
}

func (d *SQLServer) topics(limit int) backend.Query {
	var a args
	return d.read(&a,
		"SELECT topic, COUNT_BIG(*) FROM (SELECT TOP ("+a.int(limit)+") topic FROM (",
		"    SELECT topic FROM "+d.table.Hot+" WHERE "+hotNow,
		"    UNION ALL SELECT topic FROM "+d.table.Held+" WHERE "+heldNow+") AS p) AS t GROUP BY topic")
}

func (d *SQLServer) listRelays() backend.Query {
	return d.read(&args{},
		"SELECT r.name, r.host, r.version, r.claim, TODATETIMEOFFSET(r.since, '+00:00'), TODATETIMEOFFSET(r.last_beat, '+00:00'), CONVERT(bit, CASE WHEN r.until >= SYSUTCDATETIME() THEN 1 ELSE 0 END),",
		"    (SELECT COUNT(*) FROM "+d.table.Lanes+" AS l WHERE l.owner = r.name AND l.until >= SYSUTCDATETIME())",
		"FROM "+d.table.Relays+" AS r ORDER BY r.name")
}

func (d *SQLServer) leased() backend.Query {
	return d.read(&args{}, "SELECT COUNT(*) FROM "+d.table.Lanes+" WHERE owner IS NOT NULL AND until >= SYSUTCDATETIME()")
}
