package dialect

import (
	"strconv"
	"strings"
)

// mysqlState is a row's state as the view has it, for a row of either table.
const (
	mysqlHotState  = "CASE WHEN t.claimed_until > " + mysqlNow + " THEN 'claimed' WHEN t.available_at > " + mysqlNow + " THEN 'scheduled' ELSE 'pending' END"
	mysqlHeldState = "CASE WHEN t.state = 'scheduled' AND t.due_at <= " + mysqlNow + " THEN 'pending' ELSE t.state END"

	mysqlWaiting     = "coalesce(t.available_at <= " + mysqlNow + ", 1) AND coalesce(t.claimed_until <= " + mysqlNow + ", 1)"
	mysqlHeldWaiting = "t.state = 'scheduled' AND t.due_at <= " + mysqlNow
)

// List asks each table by itself, in the order of one of its indexes and with the
// limit: the view would be made as a whole first.
func (mysql) List(table Table, filter Filter) Query {
	table = table.Backquoted()
	list := &mysqlText{}
	part := func(from, state, flags, more, where string) {
		if list.sql.Len() > 0 {
			list.add("\nUNION ALL ")
		}
		list.add("(SELECT " + mysqlPlain + ",\n    " + mysqlHasPayload + " + " + flags + ", " + state + " AS state, coalesce(t.last_error, ''), " + more +
			"\nFROM " + from + " WHERE " + where)
		mysqlFilter(list, filter, state)
		list.add("\nORDER BY t.id LIMIT " + strconv.Itoa(filter.Limit) + ")")
	}
	part(table.Hot()+" AS t FORCE INDEX (id)", mysqlHotState, mysqlLater, "'', coalesce(t.claimed_by, ''), NULL", "TRUE")
	for _, state := range []string{"scheduled", "retry", "error"} {
		part(table.Held()+" AS t FORCE INDEX (held_id)", mysqlHeldState, mysqlLater+" + 4 * (t.state = 'retry')", "'', '', NULL", "t.state = '"+state+"'")
	}
	part(table.Done()+" AS t FORCE INDEX (PRIMARY)", "'done'", mysqlLater, "coalesce(t.receipt, ''), '', CAST(t.finished_at AS CHAR)", "TRUE")
	return list.add("\nORDER BY id LIMIT " + strconv.Itoa(filter.Limit)).query()
}

// mysqlFilter leaves out what is empty. Texts compare as bytes.
func mysqlFilter(to *mysqlText, filter Filter, state string) {
	add := func(wanted bool, condition string, values ...any) {
		if wanted {
			to.add(" AND "+condition, values...)
		}
	}
	to.add(" AND t.id > " + strconv.FormatInt(filter.AfterID, 10))
	add(filter.ByID, "(t.id IN "+mysqlList(filter.IDs)+" OR t.message_id IN "+mysqlArguments(len(filter.MessageIDs))+")", mysqlTexts(filter.MessageIDs)...)
	add(filter.Topic != "", "CAST(t.topic AS BINARY) = ?", filter.Topic)
	add(filter.Key != "", "CAST(t.message_key AS BINARY) = ?", filter.Key)
	add(state != "" && filter.State != "", state+" = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin", filter.State)
	add(!filter.Since.IsZero(), "t.created_at >= ?", mysqlTime(filter.Since))
	add(filter.Error != "", "locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0", filter.Error)
}

// Requeue asks for the filter once more: an id may have several rows.
func (mysql) Requeue(table Table, filter Filter) Steps {
	table = table.Backquoted()
	return Steps{Ask: mysqlParked(table, filter), After: func(ids []int64) []Query {
		update := (&mysqlText{}).add("UPDATE " + table.Held() + " AS t FORCE INDEX (held_id)" +
			" SET t.state = 'scheduled', t.attempts = 0, t.crashes = 0, t.available_at = " + mysqlNow +
			" WHERE t.state = 'error' AND t.id IN " + mysqlList(ids))
		mysqlFilter(update, filter, "")
		return []Query{update.query()}
	}}
}

func (d mysql) Discard(table Table, filter Filter) Steps {
	table = table.Backquoted()
	return Steps{Ask: mysqlParked(table, filter), After: func(ids []int64) []Query {
		return d.deleteByID(table.Held(), "held_id", ids, func(where *mysqlText) {
			mysqlFilter(where.add("t.state = 'error'"), filter, "")
		})
	}}
}

func mysqlParked(table Table, filter Filter) Query {
	parked := (&mysqlText{}).add("SELECT t.id FROM " + table.Held() + " AS t FORCE INDEX (held_id) WHERE t.state = 'error'")
	mysqlFilter(parked, filter, "")
	return parked.add(" ORDER BY t.id LIMIT " + strconv.Itoa(filter.Limit) + " FOR UPDATE").query()
}

// Counts estimates the done rows beyond the limit by their ids, whose gaps it
// counts as rows.
func (mysql) Counts(table Table, limit int) Query {
	table = table.Backquoted()
	most := strconv.Itoa(limit)
	return mysqlQuery(`
SELECT state, count(*) FROM (
    SELECT ` + mysqlHotState + ` AS state FROM ` + table.Hot() + ` AS t
    UNION ALL SELECT ` + mysqlHeldState + ` FROM ` + table.Held() + ` AS t
) AS s GROUP BY state
UNION ALL
SELECT 'done', CASE WHEN n < ` + most + ` THEN n ELSE (SELECT max(id) - min(id) + 1 FROM ` + table.Done() + `) END
FROM (SELECT count(*) AS n FROM (SELECT 1 FROM ` + table.Done() + ` LIMIT ` + most + `) AS d) AS c`)
}

// Oldest counts a row's age from when it could be delivered first.
func (mysql) Oldest(table Table) Query {
	table = table.Backquoted()
	const since = "greatest(t.created_at, coalesce(t.available_at, t.created_at))"
	return mysqlQuery(`
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(since), ` + mysqlNow + `) DIV 1000, 0)) FROM (
    SELECT ` + since + ` AS since FROM ` + table.Hot() + ` AS t WHERE ` + mysqlWaiting + `
    UNION ALL SELECT ` + since + ` FROM ` + table.Held() + ` AS t WHERE ` + mysqlHeldWaiting + `
) AS p`)
}

func (mysql) Topics(table Table, limit int) Query {
	table = table.Backquoted()
	most := " LIMIT " + strconv.Itoa(limit)
	return mysqlQuery(`
SELECT topic, count(*) FROM (
    (SELECT t.topic FROM ` + table.Hot() + ` AS t WHERE ` + mysqlWaiting + most + `)
    UNION ALL (SELECT t.topic FROM ` + table.Held() + ` AS t WHERE ` + mysqlHeldWaiting + most + `)` + most + `
) AS p GROUP BY topic`)
}

func (mysql) ListRelays(table Table) Query {
	table = table.Backquoted()
	return mysqlQuery(strings.Join([]string{
		"SELECT r.name, r.host, r.version, r.claim, CAST(r.since AS CHAR), CAST(r.last_beat AS CHAR), r.until >= " + mysqlNow + ",",
		"    (SELECT count(*) FROM " + table.Lanes() + " AS l WHERE l.owner = r.name AND l.until >= " + mysqlNow + ")",
		"FROM " + table.Relays() + " AS r ORDER BY r.name"}, "\n"))
}

func (mysql) LanesLeased(table Table) Query {
	return mysqlQuery("SELECT count(*) FROM " + table.Backquoted().Lanes() + " WHERE owner IS NOT NULL AND `until` >= " + mysqlNow)
}
