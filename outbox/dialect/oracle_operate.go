package dialect

import "strings"

// The columns of a listing's row of the view.
const oracleListed = oraclePlain + ",\n    " + oracleHasPayload + " + " + oracleLater + " + " + oracleRetrying +
	", t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')"

func (oracle) List(table Table, filter Filter) Query {
	var a oracleArgs
	rows := "SELECT t.* FROM " + table.Messages() + " t WHERE " + a.filter(filter, true)
	return a.query(
		oracleAsBytes,
		"SELECT "+oracleListed,
		oracleOrdered(rows, "t.id", " WHERE ROWNUM <= "+a.int(filter.Limit)))
}

// filter leaves out what is empty.
func (a *oracleArgs) filter(filter Filter, states bool) string {
	where := []string{"t.id > " + a.add(filter.AfterID)}
	add := func(wanted bool, condition func() string) {
		if wanted {
			where = append(where, condition())
		}
	}
	add(filter.ByID, func() string {
		return "(t.id IN " + a.ids(filter.IDs) + " OR " + oracleBytes("LOWER(t.message_id)") + " IN " + a.texts(filter.MessageIDs) + ")"
	})
	add(filter.Topic != "", func() string { return oracleSame("t.topic", a.add(filter.Topic)) })
	add(filter.Key != "", func() string { return oracleSame("t.message_key", a.add(filter.Key)) })
	add(states && filter.State != "", func() string { return "t.state = " + a.add(filter.State) })
	add(!filter.Since.IsZero(), func() string { return "t.created_at >= " + a.timestamp(filter.Since) })
	add(filter.Error != "", func() string { return "INSTR(t.last_error, " + a.add(filter.Error) + ") > 0" })
	return strings.Join(where, " AND ")
}

func (oracle) Requeue(table Table, filter Filter) Steps {
	return oracleParked(table, filter, "UPDATE "+table.Held()+" t SET state = 'scheduled', attempts = 0, crashes = 0, available_at = "+oracleNow)
}

func (oracle) Discard(table Table, filter Filter) Steps {
	return oracleParked(table, filter, "DELETE FROM "+table.Held()+" t")
}

// oracleParked asks for the filter twice, as an id may have several rows. It locks the rows, which are counted below: where rows are locked
// there may be no limit beside.
func oracleParked(table Table, filter Filter, change string) Steps {
	var a oracleArgs
	return Steps{
		Ask: a.query(
			"SELECT id FROM "+table.Held()+" WHERE state = 'error' AND (id, message_id) IN (SELECT id, message_id FROM (",
			"    SELECT t.id, t.message_id FROM "+table.Held()+" t WHERE "+oracleErrorID+" IS NOT NULL AND "+a.filter(filter, false),
			"    ORDER BY "+oracleErrorID+") WHERE ROWNUM <= "+a.int(filter.Limit)+")",
			"ORDER BY id FOR UPDATE"),
		After: func(ids []int64) []Query {
			var a oracleArgs
			return []Query{a.query(change + " WHERE t.state = 'error' AND t.id IN " + a.ids(ids) + " AND " + a.filter(filter, false))}
		},
	}
}

// Counts estimates the done rows beyond the limit by their ids, whose gaps it
// counts as rows.
func (oracle) Counts(table Table, limit int) Query {
	var a oracleArgs
	return a.query(
		"SELECT state, COUNT(*) FROM (",
		"    SELECT CASE WHEN claimed_until > "+oracleNow+" THEN 'claimed' WHEN available_at > "+oracleNow+" THEN 'scheduled' ELSE 'pending' END AS state FROM "+table.Hot(),
		"    UNION ALL SELECT CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= "+oracleNow+") THEN 'pending' ELSE state END FROM "+table.Held(),
		") GROUP BY state",
		"UNION ALL",
		"SELECT 'done', CASE WHEN n < "+a.int(limit)+" THEN n ELSE (SELECT MAX(id) - MIN(id) + 1 FROM "+table.Done()+") END",
		"FROM (SELECT COUNT(*) AS n FROM "+table.Done()+" WHERE ROWNUM <= "+a.int(limit)+")")
}

// oracleReady is where a row that is pending, or scheduled for now, can be found.
func oracleReady(table Table, columns string) string {
	const due = "(available_at IS NULL OR available_at <= " + oracleNow + ")"
	return "    SELECT " + columns + " FROM " + table.Hot() + " WHERE " + due + " AND (claimed_until IS NULL OR claimed_until <= " + oracleNow + ")" +
		"\n    UNION ALL SELECT " + columns + " FROM " + table.Held() + " WHERE state = 'scheduled' AND " + due
}

// Oldest counts a row's age from when it could be delivered first.
func (oracle) Oldest(table Table) Query {
	return Query{SQL: "SELECT GREATEST(0, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000" +
		" + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0)) FROM (" +
		"\n    SELECT " + oracleNow + " - MIN(since) AS age FROM (" +
		"\n" + oracleReady(table, "GREATEST(created_at, NVL(available_at, created_at)) AS since") + "))"}
}

func (oracle) Topics(table Table, limit int) Query {
	var a oracleArgs
	return a.query("SELECT topic, COUNT(*) FROM (SELECT topic FROM (", oracleReady(table, "topic"), ") WHERE ROWNUM <= "+a.int(limit)+") GROUP BY topic")
}

func (oracle) ListRelays(table Table) Query {
	return Query{SQL: "SELECT r.name, r.host, r.version, r.claim, " + oracleTime("r.since") + ", " + oracleTime("r.last_beat") + ",\n" +
		"    CASE WHEN r.until >= " + oracleNow + " THEN 1 ELSE 0 END,\n" +
		"    (SELECT COUNT(*) FROM " + table.Lanes() + " l WHERE l.owner = r.name AND l.until >= " + oracleNow + ")\n" +
		"FROM " + table.Relays() + " r ORDER BY r.name"}
}

func (oracle) LanesLeased(table Table) Query {
	return Query{SQL: "SELECT COUNT(*) FROM " + table.Lanes() + " WHERE owner IS NOT NULL AND until >= " + oracleNow}
}
