package dialect

import "strings"

// The columns of a listing's row of the view.
const postgresListed = postgresPlain + ",\n    " + postgresHasPayload + " + " + postgresLater + " + " + postgresRetrying +
	", t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at"

func (postgres) List(table Table, filter Filter) Query {
	var a postgresArgs
	return a.query(
		"SELECT "+postgresListed,
		"FROM "+table.Messages()+" AS t WHERE "+postgresFilter(&a, filter, true),
		"ORDER BY t.id LIMIT "+a.int(filter.Limit))
}

// postgresFilter leaves out what is empty, so that an index may serve what is
// there.
func postgresFilter(a *postgresArgs, filter Filter, states bool) string {
	where := []string{"t.id > " + a.add(filter.AfterID, "bigint")}
	add := func(wanted bool, condition func() string) {
		if wanted {
			where = append(where, condition())
		}
	}
	add(filter.ByID, func() string {
		return "(t.id = ANY (" + a.ids(filter.IDs) + ") OR t.message_id = ANY (" + a.add(postgresArray(filter.MessageIDs, quotedItem), "uuid[]") + "))"
	})
	add(filter.Topic != "", func() string { return "t.topic = " + a.text(filter.Topic) })
	add(filter.Key != "", func() string { return "t.message_key = " + a.text(filter.Key) })
	add(states && filter.State != "", func() string { return "t.state = " + a.text(filter.State) })
	add(!filter.Since.IsZero(), func() string { return "t.created_at >= " + a.timestamp(filter.Since) })
	add(filter.Error != "", func() string { return "strpos(t.last_error, " + a.text(filter.Error) + ") > 0" })
	return strings.Join(where, " AND ")
}

func (postgres) Requeue(table Table, filter Filter) Steps {
	var a postgresArgs
	return alone(a.query(
		postgresParked(&a, table, filter),
		"UPDATE "+table.Held()+" AS t SET state = 'scheduled', attempts = 0, crashes = 0, available_at = now()",
		"FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id",
		"RETURNING t.id"))
}

func (postgres) Discard(table Table, filter Filter) Steps {
	var a postgresArgs
	return alone(a.query(
		postgresParked(&a, table, filter),
		"DELETE FROM "+table.Held()+" AS t USING parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id",
		"RETURNING t.id"))
}

func postgresParked(a *postgresArgs, table Table, filter Filter) string {
	return "WITH parked AS MATERIALIZED (\n    SELECT lane, id, message_id FROM " + table.Held() + " AS t WHERE t.state = 'error' AND " + postgresFilter(a, filter, false) +
		"\n    ORDER BY id LIMIT " + a.int(filter.Limit) + " FOR UPDATE)"
}

// Counts counts the hot and the held rows, and the done ones up to the limit;
// beyond it goes by the statistics, which are at least that.
func (postgres) Counts(table Table, limit int) Query {
	var a postgresArgs
	return a.query(
		postgresStates(table),
		"UNION ALL",
		"SELECT 'done', CASE WHEN n < "+a.int(limit)+" THEN n ELSE GREATEST(n, (SELECT reltuples::bigint FROM pg_class WHERE oid = '"+table.Done()+"'::regclass)) END",
		"FROM (SELECT count(*) AS n FROM (SELECT FROM "+table.Done()+" LIMIT "+a.int(limit)+") AS d) AS c")
}

func postgresStates(table Table) string {
	return "SELECT state, count(*) FROM (" +
		"\n    SELECT CASE WHEN claimed_until > now() THEN 'claimed' WHEN available_at > now() THEN 'scheduled' ELSE 'pending' END AS state FROM " + table.Hot() +
		"\n    UNION ALL SELECT CASE WHEN state = 'scheduled' AND COALESCE(available_at <= now(), true) THEN 'pending' ELSE state END FROM " + table.Held() +
		"\n) AS s GROUP BY state"
}

// Oldest counts a row's age from when it could be delivered first.
func (postgres) Oldest(table Table) Query {
	return Query{SQL: "SELECT GREATEST(0, COALESCE(extract(epoch FROM now() - min(since)) * 1000, 0))::bigint FROM (" +
		"\n    SELECT GREATEST(created_at, available_at) AS since FROM " + table.Hot() + " WHERE COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true)" +
		"\n    UNION ALL SELECT GREATEST(created_at, available_at) FROM " + table.Held() + " WHERE state = 'scheduled' AND COALESCE(available_at <= now(), true)) AS p"}
}

func (postgres) Topics(table Table, limit int) Query {
	var a postgresArgs
	return a.query(
		"SELECT topic, count(*) FROM (",
		"    SELECT topic FROM "+table.Hot()+" WHERE COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true)",
		"    UNION ALL SELECT topic FROM "+table.Held()+" WHERE state = 'scheduled' AND COALESCE(available_at <= now(), true)",
		"    LIMIT "+a.int(limit)+") AS t GROUP BY topic")
}

func (postgres) ListRelays(table Table) Query {
	return Query{SQL: "SELECT r.name, r.host, r.version, r.claim, r.since, r.last_beat, r.until >= now()," +
		"\n    (SELECT count(*) FROM " + table.Lanes() + " AS l WHERE l.owner = r.name AND l.until >= now())" +
		"\nFROM " + table.Relays() + " AS r ORDER BY r.name"}
}

func (postgres) LanesLeased(table Table) Query {
	return Query{SQL: "SELECT count(*) FROM " + table.Lanes() + " WHERE owner IS NOT NULL AND until >= now()"}
}
