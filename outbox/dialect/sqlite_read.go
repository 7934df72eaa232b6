package dialect

// The columns of a row, as Reading has them, of a table or subquery t; and what
// stands in their place where there is no row.
const (
	sqlitePlain = `t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''),
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.priority, t.attempts, t.crashes, t.created_at`
	sqliteHasPayload = `(t.payload IS NOT NULL OR t.payload_text IS NOT NULL)`
	sqliteLater      = `CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > ` + sqliteNow + `) END` // asks for no time in vain
	sqliteHot        = sqlitePlain + ",\n    " + sqliteHasPayload + " + " + sqliteLater
	sqliteHeld       = sqlitePlain + ",\n    " + sqliteHasPayload + " + 4 * (t.state = 'retry')"
	sqliteNone       = `0, 0, '', '', '', NULL, '', NULL, 0, 0, 0, NULL, 0`
)

func sqliteGiven(table Table) string {
	sequences := "sqlite_sequence"
	if table.Schema() != "" {
		sequences = quoted(table.Schema()) + "." + sequences
	}
	return "coalesce((SELECT seq FROM " + sequences + " WHERE name = '" + table.Name() + "'), 0)"
}

func (sqlite) Given(table Table) Query {
	return sqliteQuery("SELECT " + sqliteGiven(table))
}

// Walk implements [Walking]. The table lies in the order of ids, and the rows of one
// lane are far from each other: reading lane after lane would touch, and settling
// would write, a page for every row.
func (sqlite) Walk() Walk { return WalkByID }

// Read leaves the bytes to its caller, who stops taking rows: each is made when
// it is asked for.
func (sqlite) Read(table Table, read Read) Query {
	first := "SELECT " + sqliteGiven(table) + " || ' 0', " + sqliteNone
	if len(read.Positions) == 0 {
		return sqliteQuery(first)
	}
	walk, args := sqliteWalk(table, read.Positions)
	return sqliteQuery(first+"\nUNION ALL\nSELECT * FROM (SELECT NULL, "+sqliteHot+"\n"+walk+" LIMIT ?)", append(args, int64(read.Limit))...)
}

func (sqlite) Candidates(table Table, positions []Position, except []string, limit int) Query {
	if len(positions) == 0 {
		return sqliteQuery("SELECT 0, 0, '', '', 0 WHERE FALSE")
	}
	walk, args := sqliteWalk(table, positions, except...)
	return sqliteQuery("SELECT t.id, t.lane, t.topic, coalesce(t.message_key, ''), coalesce(length(t.payload), octet_length(t.payload_text), 0)\n"+walk+" LIMIT ?", append(args, int64(limit))...)
}

// sqliteWalk is a FROM of the rows at positions, as t: along the ids, or, of keys,
// which are rare, along one range of the index after the other.
func sqliteWalk(table Table, positions []Position, except ...string) (from string, args []any) {
	if keyed(positions) {
		return sqliteRanges(table, positions), []any{sqlitePositions(positions)}
	}
	whole := wholeOf(positions)
	where, args := "t.id > ? AND t.id <= ? AND "+idsWithin(whole, positions), []any{whole.After, whole.Until}
	if len(except) > 0 {
		where, args = where+" AND t.topic NOT IN (SELECT value FROM json_each(?))", append(args, sqliteJSON(except))
	}
	return "FROM " + table.Hot() + sqliteByID + "\nWHERE " + where + "\nORDER BY t.id", args
}

// sqliteRanges is a FROM of one key's range of the index, as t, after the other;
// CROSS JOIN keeps the order of the positions.
func sqliteRanges(table Table, positions []Position) string {
	return "FROM json_each(?) AS j CROSS JOIN " + table.Hot() + " AS t INDEXED BY " + table.IndexName("lane_id") +
		"\nWHERE t.lane = " + sqliteItem(0) + " AND t.id > " + sqliteItem(1) + " AND t.id <= " + sqliteItem(2) + " AND t.message_key = " + sqliteItem(3)
}

func sqlitePositions(positions []Position) string {
	return sqliteJSON(column(positions, func(p Position) []any { return []any{p.Lane, p.After, p.Until, p.Key} }))
}

func (sqlite) Pick(table Table, lanes []int, ids []int64) Query {
	return sqlitePick(sqliteHot, table.Hot(), "", lanes, ids)
}

func (sqlite) PickHeld(table Table, lanes []int, ids []int64) Query {
	return sqlitePick(sqliteHeld, table.Held(), " AND t.state <> 'error'", lanes, ids)
}

func sqlitePick(columns, from, condition string, lanes []int, ids []int64) Query {
	items := make([][2]int64, len(ids))
	for i, id := range ids {
		items[i] = [2]int64{int64(lanes[i]), id}
	}
	return sqliteQuery("SELECT "+columns+"\nFROM json_each(?) AS j CROSS JOIN "+from+sqliteByID+
		" ON t.id = "+sqliteItem(1)+" AND t.lane = "+sqliteItem(0)+condition, sqliteJSON(items))
}

// sqliteAt is the time of a held row as it is compared: none is the first.
const sqliteAt = "coalesce(t.available_at, '0001-01-01 00:00:00.000')"

func (sqlite) Due(table Table, lanes []int, after After, limit, _ int) Query {
	return sqliteQuery(`
SELECT `+sqliteHeld+` FROM `+table.Held()+` AS t
WHERE t.state <> 'error' AND `+sqliteAt+` <= `+sqliteNow+` AND t.lane IN (SELECT value FROM json_each(?))
    AND (`+sqliteAt+`, t.id) > (?, ?)
ORDER BY `+sqliteAt+`, t.id LIMIT ?`,
		sqliteJSON(lanes), after.At.UTC().Format(sqliteTimeFormat), after.ID, int64(limit))
}

func (sqlite) HeldKeys(table Table, lanes []int, limit int) Query {
	return sqliteQuery(`
SELECT lane, message_key, topic, id FROM `+table.Held()+`
WHERE state = 'retry' AND message_key <> '' AND lane IN (SELECT value FROM json_each(?))
LIMIT ?`,
		sqliteJSON(lanes), int64(limit))
}

func (sqlite) HeldAmong(table Table, lanes []int, keys []string) Query {
	items := make([][]any, len(keys))
	for i, key := range keys {
		items[i] = []any{lanes[i], key}
	}
	return sqliteQuery(`
SELECT t.lane, t.message_key, t.topic, min(t.id)
FROM json_each(?) AS j CROSS JOIN `+table.Held()+` AS t INDEXED BY `+table.IndexName("held_retry")+`
WHERE t.state = 'retry' AND t.lane = `+sqliteItem(0)+` AND t.message_key = `+sqliteItem(1)+`
GROUP BY t.lane, t.message_key, t.topic`,
		sqliteJSON(items))
}
