package dialect

import "strings"

// The columns of a listing's row of the view.
const sqliteListed = sqlitePlain + ",\n    " + sqliteHasPayload + " + " + sqliteLater + " + 4 * (t.state = 'retry')" +
	", t.state, coalesce(t.last_error, ''), coalesce(t.receipt, ''), coalesce(t.claimed_by, ''), t.finished_at"

func (sqlite) List(table Table, filter Filter) Query {
	where, args := sqliteFilter(filter, true)
	return sqliteQuery("SELECT "+sqliteListed+"\nFROM "+table.Messages()+" AS t WHERE "+where+" ORDER BY t.id LIMIT ?", append(args, int64(filter.Limit))...)
}

// sqliteFilter leaves out what is empty.
func sqliteFilter(filter Filter, states bool) (string, []any) {
	where, args := []string{"t.id > ?"}, []any{filter.AfterID}
	add := func(wanted bool, condition string, values ...any) {
		if wanted {
			where, args = append(where, condition), append(args, values...)
		}
	}
	add(filter.ByID, "(t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?)))",
		sqliteJSON(filter.IDs), sqliteJSON(filter.MessageIDs))
	add(filter.Topic != "", "t.topic = ?", filter.Topic)
	add(filter.Key != "", "t.message_key = ?", filter.Key)
	add(states && filter.State != "", "t.state = ?", filter.State)
	add(!filter.Since.IsZero(), "t.created_at >= ?", filter.Since.UTC().Format(sqliteTimeFormat))
	add(filter.Error != "", "instr(t.last_error, ?) > 0", filter.Error)
	return strings.Join(where, " AND "), args
}

func (sqlite) Requeue(table Table, filter Filter) Steps {
	parked, args := sqliteParked(table, filter)
	return alone(sqliteQuery("UPDATE "+table.Held()+" SET state = 'scheduled', attempts = 0, crashes = 0, available_at = "+sqliteNow+
		"\nWHERE (id, message_id) IN ("+parked+") RETURNING id", args...))
}

func (sqlite) Discard(table Table, filter Filter) Steps {
	parked, args := sqliteParked(table, filter)
	return alone(sqliteQuery("DELETE FROM "+table.Held()+" WHERE (id, message_id) IN ("+parked+") RETURNING id", args...))
}

func sqliteParked(table Table, filter Filter) (string, []any) {
	where, args := sqliteFilter(filter, false)
	return "SELECT t.id, t.message_id FROM " + table.Held() + " AS t WHERE t.state = 'error' AND " + where + " ORDER BY t.id LIMIT ?", append(args, int64(filter.Limit))
}

// Counts estimates the done rows beyond the limit by their ids, whose gaps it
// counts as rows.
func (sqlite) Counts(table Table, limit int) Query {
	return sqliteQuery(`
SELECT state, count(*) FROM (
    SELECT CASE WHEN claimed_until > `+sqliteNow+` THEN 'claimed' WHEN available_at > `+sqliteNow+` THEN 'scheduled' ELSE 'pending' END AS state FROM `+table.Hot()+`
    UNION ALL SELECT CASE WHEN state = 'scheduled' AND coalesce(available_at <= `+sqliteNow+`, 1) THEN 'pending' ELSE state END FROM `+table.Held()+`
) GROUP BY state
UNION ALL
SELECT 'done', CASE WHEN n < ? THEN n ELSE (SELECT max(id) - min(id) + 1 FROM `+table.Done()+`) END
FROM (SELECT count(*) AS n FROM (SELECT 1 FROM `+table.Done()+` LIMIT ?))`,
		int64(limit), int64(limit))
}

// Oldest counts a row's age from when it could be delivered first.
func (sqlite) Oldest(table Table) Query {
	return sqliteQuery(`
SELECT max(0, CAST(round(coalesce((julianday('now') - julianday(min(since))) * 86400000, 0)) AS INTEGER)) FROM (
    SELECT max(created_at, coalesce(available_at, created_at)) AS since FROM ` + table.Hot() + `
    WHERE coalesce(available_at <= ` + sqliteNow + `, 1) AND coalesce(claimed_until <= ` + sqliteNow + `, 1)
    UNION ALL SELECT max(created_at, coalesce(available_at, created_at)) FROM ` + table.Held() + `
    WHERE state = 'scheduled' AND coalesce(available_at <= ` + sqliteNow + `, 1))`)
}

func (sqlite) Topics(table Table, limit int) Query {
	return sqliteQuery(`
SELECT topic, count(*) FROM (
    SELECT topic FROM `+table.Hot()+` WHERE coalesce(available_at <= `+sqliteNow+`, 1) AND coalesce(claimed_until <= `+sqliteNow+`, 1)
    UNION ALL SELECT topic FROM `+table.Held()+` WHERE state = 'scheduled' AND coalesce(available_at <= `+sqliteNow+`, 1)
    LIMIT ?) GROUP BY topic`, int64(limit))
}

func (sqlite) ListRelays(table Table) Query {
	return sqliteQuery(`
SELECT r.name, r.host, r.version, r.claim, r.since, r.last_beat, r.until >= ` + sqliteNow + `,
    (SELECT count(*) FROM ` + table.Lanes() + ` AS l WHERE l.owner = r.name AND l.until >= ` + sqliteNow + `)
FROM ` + table.Relays() + ` AS r ORDER BY r.name`)
}

func (sqlite) LanesLeased(table Table) Query {
	return sqliteQuery("SELECT count(*) FROM " + table.Lanes() + " WHERE owner IS NOT NULL AND until >= " + sqliteNow)
}
