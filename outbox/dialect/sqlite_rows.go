package dialect

import (
	"strings"
	"time"
)

// sqliteReturned is a row in RETURNING, which knows no alias.
var sqliteReturned = strings.ReplaceAll(sqliteHot, "t.", "")

func (sqlite) Claim(table Table, claim Claim) Steps {
	args := []any{claim.Relay, claim.Token, sqliteSeconds(claim.TTL)}
	where := sqliteByRows(table) + " AND claimed_until IS NULL"
	if len(claim.Topics) > 0 {
		where, args = where+" AND topic IN (SELECT value FROM json_each(?))", append(args, sqliteJSON(claim.Topics))
	}
	if len(claim.Except) > 0 {
		where, args = where+" AND topic NOT IN (SELECT value FROM json_each(?))", append(args, sqliteJSON(claim.Except))
	}
	return alone(sqliteQuery(`
UPDATE `+table.Hot()+` SET claimed_by = ?, claim_token = ?, claimed_until = `+sqliteIn+`
WHERE id IN (
    WITH picked AS (SELECT id, priority, `+sqliteSize+` AS size FROM `+table.Hot()+` WHERE `+where+` ORDER BY `+claimOrder(claim.Pick)+` LIMIT ?),
    `+claimFitting("")+`
    SELECT id FROM fitting WHERE bytes_before < ?)
RETURNING `+sqliteReturned, append(args, int64(claim.Limit), int64(claim.mostBytes()))...))
}

// sqliteByRows needs no lock: who writes is alone.
func sqliteByRows(table Table) string {
	return "EXISTS (SELECT 1 FROM " + table.Settings() + " WHERE name = 'claim' AND value = 'rows')"
}

const sqliteSize = "coalesce(length(payload), length(CAST(payload_text AS BLOB)), 0)"

// PeekFree implements [ClaimPeeking]: a claim waits for the one that writes.
func (sqlite) PeekFree(table Table) Query {
	return sqliteQuery(freeRow(table, ""))
}

// PeekEnded implements [ClaimPeeking].
func (sqlite) PeekEnded(table Table) Query {
	return sqliteQuery(ended(
		"SELECT id FROM "+table.Hot()+" WHERE claimed_until < "+sqliteNow+" ORDER BY claimed_until",
		"SELECT t.id FROM "+table.Held()+" AS t WHERE t.state <> 'error' AND "+sqliteAt+" <= "+sqliteNow+" ORDER BY "+sqliteAt+", t.id"))
}

func (sqlite) Extend(table Table, token string, ids []int64, ttl time.Duration) Steps {
	return alone(sqliteQuery("UPDATE "+table.Hot()+" SET claimed_until = "+sqliteIn+
		" WHERE "+sqliteByRows(table)+" AND claim_token = ? AND id IN (SELECT value FROM json_each(?)) RETURNING id", sqliteSeconds(ttl), token, sqliteJSON(ids)))
}

func (sqlite) FreeEnded(table Table, limit int) []Write {
	return []Write{{Counts: true, Query: sqliteQuery("UPDATE "+table.Hot()+` SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = crashes + 1
WHERE id IN (SELECT id FROM `+table.Hot()+" WHERE "+sqliteByRows(table)+" AND claimed_until < "+sqliteNow+" ORDER BY claimed_until LIMIT ?)", int64(limit))}}
}

// Return inserts and then deletes what has come: an id may have other rows.
func (sqlite) Return(table Table, limit int) []Write {
	const due, order = "t.state <> 'error' AND " + sqliteAt + " <= " + sqliteNow, " ORDER BY " + sqliteAt + ", t.id LIMIT ?"
	const sooner = "o.state <> 'error' AND coalesce(o.available_at, '0001-01-01 00:00:00.000') <= " + sqliteNow
	return []Write{
		{Counts: true, Query: sqliteQuery("INSERT INTO "+table.Hot()+" ("+moving+")\nSELECT "+prefixed(moving, "t.")+
			" FROM "+table.Held()+" AS t WHERE "+sqliteByRows(table)+" AND "+due+"\n    AND "+idIsFree(table)+" AND "+firstOfID(table, sooner)+order, int64(limit))},
		{Query: sqliteQuery("DELETE FROM "+table.Held()+" WHERE (id, message_id) IN (\n    SELECT t.id, t.message_id FROM "+table.Held()+" AS t WHERE "+due+
			" AND EXISTS (SELECT 1 FROM "+table.Hot()+" AS h WHERE h.id = t.id AND h.message_id = t.message_id)"+order+")", int64(limit))},
	}
}
