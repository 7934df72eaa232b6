package dialect

// The columns of a row, as Reading has them, of a table or subquery t; and what
// stands in their place where there is no row. A NULL in the place of what nearly
// all rows have is a quarter of what the row's other columns cost, for the server
// and for the driver.
const (
	postgresPlain = `t.id, t.lane, t.message_id::text, t.topic, t.message_key,
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at`
	postgresHasPayload = `CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END`
	postgresLater      = `CASE WHEN t.available_at > now() THEN 2 ELSE 0 END`
	postgresRetrying   = `CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END`
	postgresHot        = postgresPlain + ",\n    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN " + postgresHasPayload + " + " + postgresLater + " END"
	postgresHeld       = postgresPlain + ",\n    " + postgresHasPayload + " + " + postgresRetrying
	postgresNone       = `0::bigint, 0::smallint, '', '', '', NULL::bytea, '', NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0`

	postgresSize = `COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0)`
)

// postgresGiven asks for the identity's sequence, whatever its name; null until
// the first id.
func postgresGiven(table Table) string {
	return "COALESCE(pg_sequence_last_value(pg_get_serial_sequence('" + table.Hot() + "', 'id')::regclass), 0)"
}

func (postgres) Given(table Table) Query {
	return Query{SQL: "SELECT " + postgresGiven(table)}
}

// postgresFirst is the text of a first line.
func postgresFirst(table Table, xid string) string {
	return "concat_ws(' ', " + postgresGiven(table) + ", 0, " + xid + ", pg_current_snapshot(), " + postgresEpoch(table) + ")"
}

// postgresEpoch reads a table that isn't logged: the server empties it whenever it
// recovers from a crash or becomes the primary, and so whenever it may have lost what
// it had committed. A clean restart leaves it. A standby can't read it.
func postgresEpoch(table Table) string {
	return "COALESCE((SELECT epoch::text FROM " + table.Epoch() + "), '" + NoEpoch + "')"
}

// BeginEpoch implements [Epochs].
func (postgres) BeginEpoch(table Table) Query {
	return Query{SQL: "INSERT INTO " + table.Epoch() + " DEFAULT VALUES ON CONFLICT DO NOTHING"}
}

// Peek implements [Peeking].
func (postgres) Peek(table Table) Query { return Query{SQL: "SELECT " + postgresFirst(table, "0")} }

// Read begins with a line about its snapshot and the server's epoch. The rows come from one range of
// the key's index after the other; a comparison of whole keys, rather than of a
// lane and of an id, makes the planner expect many rows, so that it takes the
// order from the index; see boundBy.
func (postgres) Read(table Table, read Read) Query {
	var a postgresArgs
	share := read.Limit
	if read.Share > 0 {
		share = min(share, read.Share)
	}
	xid := "0"
	if read.Number {
		xid = "pg_current_xact_id()"
	}
	return a.query(
		"SELECT "+postgresFirst(table, xid)+",",
		"    "+postgresNone,
		"UNION ALL",
		"SELECT NULL, "+postgresHot,
		postgresPage(&a, "SELECT t.* "+postgresRanges(&a, table, read.Positions, "*", "", share)+" "+a.limit(read.Limit), read.MaxBytes)+" AND "+a.planNow())
}

// postgresPage cuts off what comes after the row that crosses the bound.
func postgresPage(a *postgresArgs, rows string, maxBytes int) string {
	if maxBytes <= 0 {
		return "FROM (" + rows + ") AS t WHERE true"
	}
	return "FROM (SELECT t.*, sum(" + postgresSize + ") OVER (ROWS UNBOUNDED PRECEDING) - (" + postgresSize + ") AS bytes_before" +
		"\nFROM (" + rows + ") AS t) AS t WHERE bytes_before < " + a.int(maxBytes)
}

// postgresRanges is a FROM of one range of the index, as t, after the other.
func postgresRanges(a *postgresArgs, table Table, positions []Position, columns, where string, limit int) string {
	if keyed(positions) {
		where += " AND h.message_key = p.key"
	}
	return "FROM " + postgresPositions(a, positions) +
		"\nCROSS JOIN LATERAL (SELECT " + columns + " FROM " + table.Hot() + " AS h" +
		"\n    WHERE (h.lane, h.id) > (p.lane, " + boundBy("p.after", "p.lane::text") + ") AND (h.lane, h.id) <= (p.lane, p.until)" + where +
		"\n    ORDER BY h.lane, h.id " + a.limit(limit) + ") AS t"
}

func postgresPositions(a *postgresArgs, positions []Position) string {
	columns, names := "", "lane, after, until"
	columns += a.lanes(column(positions, func(p Position) int { return p.Lane }))
	columns += ", " + a.ids(column(positions, func(p Position) int64 { return p.After }))
	columns += ", " + a.ids(column(positions, func(p Position) int64 { return p.Until }))
	if keyed(positions) {
		columns += ", " + a.texts(column(positions, func(p Position) string { return p.Key }))
		names += ", key"
	}
	return "unnest(" + columns + ") AS p (" + names + ")"
}

func keyed(positions []Position) bool {
	return len(positions) > 0 && positions[0].Key != ""
}

func (postgres) Candidates(table Table, positions []Position, except []string, limit int) Query {
	var a postgresArgs
	columns := "h.id, h.lane, h.topic, h.message_key, COALESCE(octet_length(h.payload), octet_length(h.payload_text), 0) AS bytes"
	return a.query("SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, ''), t.bytes",
		postgresRanges(&a, table, positions, columns, postgresOtherThan(&a, except), limit),
		"WHERE "+a.planNow()+" "+a.limit(limit))
}

func postgresOtherThan(a *postgresArgs, except []string) string {
	if len(except) == 0 {
		return ""
	}
	return " AND h.topic <> ALL (" + a.texts(except) + ")"
}

func (postgres) Pick(table Table, lanes []int, ids []int64) Query {
	return postgresPick(postgresHot, table.Hot(), "", lanes, ids)
}

func (postgres) PickHeld(table Table, lanes []int, ids []int64) Query {
	return postgresPick(postgresHeld, table.Held(), " AND t.state <> 'error'", lanes, ids)
}

func postgresPick(columns, from, condition string, lanes []int, ids []int64) Query {
	var a postgresArgs
	return a.query(
		"SELECT "+columns+" FROM unnest("+a.lanes(lanes)+", "+a.ids(ids)+") AS g (lane, id)",
		"CROSS JOIN LATERAL (SELECT * FROM "+from+" AS h WHERE h.lane = g.lane AND h.id = g.id LIMIT 1) AS t",
		"WHERE "+a.planNow()+condition)
}

// Due compares a row without a time as one of the first of days. Its bound is dear
// for what boundBy says.
func (postgres) Due(table Table, lanes []int, after After, limit, maxBytes int) Query {
	const at = "COALESCE(t.available_at, '0001-01-01 00:00:00+00')"
	var a postgresArgs
	return a.query(
		"SELECT "+postgresHeld,
		postgresPage(&a, "SELECT t.* FROM "+table.Held()+" AS t"+
			"\n    WHERE t.state <> 'error' AND "+at+" <= now() AND t.lane = ANY ("+a.lanes(lanes)+")"+
			"\n        AND ("+at+", t.id) > ("+timeBoundBy("(SELECT "+a.timestamp(after.At)+")", "(SELECT now()::text)")+", "+a.add(after.ID, "bigint")+")"+
			"\n    ORDER BY "+at+", t.id "+a.limit(limit), maxBytes)+" AND "+a.planNow())
}

// HeldKeys goes from lane to lane, and so stops at the limit, however many there are.
func (postgres) HeldKeys(table Table, lanes []int, limit int) Query {
	var a postgresArgs
	return a.query(
		"SELECT t.lane, t.message_key, t.topic, t.id FROM unnest("+a.lanes(lanes)+") AS l (lane)",
		"CROSS JOIN LATERAL (SELECT * FROM "+table.Held()+" AS h WHERE h.state = 'retry' AND h.lane + 0 = l.lane AND h.message_key <> '' "+a.limit(limit)+") AS t",
		"WHERE "+a.planNow()+" "+a.limit(limit))
}

// HeldAmong looks for each key by itself, so that no plan reads all that is held.
func (postgres) HeldAmong(table Table, lanes []int, keys []string) Query {
	var a postgresArgs
	return a.query(
		"SELECT k.lane, k.key, t.topic, t.id FROM unnest("+a.lanes(lanes)+", "+a.texts(keys)+") AS k (lane, key)",
		"CROSS JOIN LATERAL (SELECT DISTINCT ON (h.topic) h.topic, h.id FROM "+table.Held()+" AS h",
		"    WHERE h.state = 'retry' AND h.lane + 0 = k.lane AND h.message_key = k.key ORDER BY h.topic, h.id) AS t",
		"WHERE "+a.planNow())
}
