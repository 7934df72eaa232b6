package dialect

import "strings"

// The columns of a listing's row of the view.
const sqlserverListed = sqlserverPlain + ",\n    " + sqlserverPayload + " + " + sqlserverLater + " + " + sqlserverRetrying +
	", t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')"

func (d sqlserver) List(table Table, filter Filter) Query {
	var a sqlserverArgs
	return d.read(&a,
		"SELECT TOP ("+a.int(filter.Limit)+") "+sqlserverListed,
		"FROM "+table.Messages()+" AS t WHERE "+sqlserverFilter(&a, filter, true)+" ORDER BY t.id")
}

// sqlserverFilter leaves out what is empty, so that an index may serve what is
// there.
func sqlserverFilter(a *sqlserverArgs, filter Filter, states bool) string {
	where := []string{"t.id > " + a.add(filter.AfterID)}
	add := func(wanted bool, condition func() string) {
		if wanted {
			where = append(where, condition())
		}
	}
	add(filter.ByID, func() string {
		return "(t.id IN " + sqlserverIDs(a, filter.IDs) +
			" OR t.message_id IN (SELECT message_id FROM OPENJSON(" + sqlserverList(a, filter.MessageIDs) + ") WITH (message_id uniqueidentifier '$')))"
	})
	add(filter.Topic != "", func() string { return sqlserverSame(a, "t.topic", filter.Topic) })
	add(filter.Key != "", func() string { return sqlserverSame(a, "t.message_key", filter.Key) })
	add(states && filter.State != "", func() string { return "t.state = " + a.add(filter.State) })
	add(!filter.Since.IsZero(), func() string { return "t.created_at >= " + a.time(filter.Since) })
	add(filter.Error != "", func() string { return "CHARINDEX(" + a.add(filter.Error) + ", t.last_error) > 0" })
	return strings.Join(where, " AND ")
}

// sqlserverSame also compares the lengths: blanks at the end don't count for =.
func sqlserverSame(a *sqlserverArgs, column, text string) string {
	place := a.add(text)
	return column + " = " + place + " AND DATALENGTH(" + column + ") = DATALENGTH(" + place + ")"
}

// sqlserverAmong is the same for several texts.
func sqlserverAmong(a *sqlserverArgs, column string, texts []string) string {
	same := make([]string, len(texts))
	for i, text := range texts {
		same[i] = sqlserverSame(a, column, text)
	}
	return "(" + strings.Join(same, " OR ") + ")"
}

func (sqlserver) Requeue(table Table, filter Filter) Steps {
	var a sqlserverArgs
	return alone(a.write(
		sqlserverParked(&a, table, filter),
		"UPDATE parked SET state = N'scheduled', attempts = 0, crashes = 0, available_at = SYSUTCDATETIME()",
		"OUTPUT inserted.id"))
}

func (sqlserver) Discard(table Table, filter Filter) Steps {
	var a sqlserverArgs
	return alone(a.write(
		sqlserverParked(&a, table, filter),
		"DELETE FROM parked",
		"OUTPUT deleted.id"))
}

func sqlserverParked(a *sqlserverArgs, table Table, filter Filter) string {
	return "WITH parked AS (\n    SELECT TOP (" + a.int(filter.Limit) + ") * FROM " + table.Held() + " AS t WITH (INDEX(" + table.IndexName("held_error") + "), UPDLOCK, ROWLOCK)" +
		"\n    WHERE t.state = N'error' AND " + sqlserverFilter(a, filter, false) + " ORDER BY t.id)"
}

// What of the hot and the held rows could be delivered now.
const (
	sqlserverHotNow  = "(available_at IS NULL OR available_at <= SYSUTCDATETIME()) AND (claimed_until IS NULL OR claimed_until <= SYSUTCDATETIME())"
	sqlserverHeldNow = "state = N'scheduled' AND due_at <= SYSUTCDATETIME()"
)

// Counts counts the hot and the held rows, and the done ones up to the limit;
// beyond it goes by the table's own count, which is about right.
func (d sqlserver) Counts(table Table, limit int) Query {
	var a sqlserverArgs
	top := a.int(limit)
	return d.read(&a,
		"SELECT state, COUNT_BIG(*) FROM (",
		"    SELECT CASE WHEN claimed_until > SYSUTCDATETIME() THEN N'claimed' WHEN available_at > SYSUTCDATETIME() THEN N'scheduled' ELSE N'pending' END AS state FROM "+table.Hot(),
		"    UNION ALL SELECT CASE WHEN "+sqlserverHeldNow+" THEN N'pending' ELSE state END FROM "+table.Held(),
		") AS s GROUP BY state",
		"UNION ALL",
		"SELECT N'done', CASE WHEN n < "+top+" THEN n ELSE (SELECT SUM(rows) FROM sys.partitions WHERE object_id = OBJECT_ID("+sqlserverLiteral(table, "_done")+") AND index_id = 1) END",
		"FROM (SELECT COUNT_BIG(*) AS n FROM (SELECT TOP ("+top+") id FROM "+table.Done()+") AS d) AS c")
}

// Oldest counts a row's age from when it could be delivered first.
func (d sqlserver) Oldest(table Table) Query {
	const since = "CASE WHEN available_at > created_at THEN available_at ELSE created_at END"
	return d.read(&sqlserverArgs{},
		"SELECT CASE WHEN MIN(since) < SYSUTCDATETIME() THEN DATEDIFF_BIG(MILLISECOND, MIN(since), SYSUTCDATETIME()) ELSE 0 END FROM (",
		"    SELECT "+since+" AS since FROM "+table.Hot()+" WHERE "+sqlserverHotNow,
		"    UNION ALL SELECT "+since+" FROM "+table.Held()+" WHERE "+sqlserverHeldNow+") AS p")
}

func (d sqlserver) Topics(table Table, limit int) Query {
	var a sqlserverArgs
	return d.read(&a,
		"SELECT topic, COUNT_BIG(*) FROM (SELECT TOP ("+a.int(limit)+") topic FROM (",
		"    SELECT topic FROM "+table.Hot()+" WHERE "+sqlserverHotNow,
		"    UNION ALL SELECT topic FROM "+table.Held()+" WHERE "+sqlserverHeldNow+") AS p) AS t GROUP BY topic")
}

func (d sqlserver) ListRelays(table Table) Query {
	return d.read(&sqlserverArgs{},
		"SELECT r.name, r.host, r.version, r.claim, TODATETIMEOFFSET(r.since, '+00:00'), TODATETIMEOFFSET(r.last_beat, '+00:00'), CONVERT(bit, CASE WHEN r.until >= SYSUTCDATETIME() THEN 1 ELSE 0 END),",
		"    (SELECT COUNT(*) FROM "+table.Lanes()+" AS l WHERE l.owner = r.name AND l.until >= SYSUTCDATETIME())",
		"FROM "+table.Relays()+" AS r ORDER BY r.name")
}

func (d sqlserver) LanesLeased(table Table) Query {
	return d.read(&sqlserverArgs{}, "SELECT COUNT(*) FROM "+table.Lanes()+" WHERE owner IS NOT NULL AND until >= SYSUTCDATETIME()")
}
