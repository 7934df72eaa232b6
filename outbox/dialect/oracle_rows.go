package dialect

import "time"

// oraclePick is a block that locks the first rows that a query finds free of
// locks, no more than it takes, and then changes these, up to a bound of bytes: rows
// are locked as they are fetched, and the block, not the driver, says how many. It
// begins with a lock that is its session's own, of those which a change of the way of
// claiming waits for: what the query then sees of that way is so until all is
// committed.
func oraclePick(a *oracleArgs, table Table, query string, limit, bytes string, change string) Query {
	return a.query(
		"DECLARE",
		oracleStamp,
		"    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;",
		"    ids numbers;",
		"    sizes numbers;",
		"    fitting PLS_INTEGER := 0;",
		"    bytes_left NUMBER;",
		"    CURSOR free_rows IS "+query+" FOR UPDATE SKIP LOCKED;",
		"BEGIN",
		"    FOR locked IN (SELECT lock_id FROM "+oracleLocks(table)+" WHERE lock_id = MOD(SYS_CONTEXT('USERENV', 'SID'), 64 * "+oracleLaneSlots+") FOR UPDATE) LOOP NULL; END LOOP;",
		"    OPEN free_rows;",
		"    FETCH free_rows BULK COLLECT INTO ids, sizes LIMIT "+limit+";",
		"    CLOSE free_rows;",
		"    bytes_left := "+bytes+";",
		"    WHILE fitting < ids.COUNT AND bytes_left > 0 LOOP",
		"        fitting := fitting + 1;",
		"        bytes_left := bytes_left - sizes(fitting);",
		"    END LOOP;",
		"    FORALL i IN 1 .. fitting",
		"        "+change+";",
		"END;")
}

// oracleByRows is true while the table is claimed by rows.
func oracleByRows(table Table) string {
	return "(SELECT value FROM " + table.Settings() + " WHERE name = 'claim') = 'rows'"
}

// Claim looks at the condition again when it has a row's lock. What it has
// claimed bears its transaction's number.
func (oracle) Claim(table Table, claim Claim) Steps {
	free, order := oracleFreeID, oracleFreeID
	index := "claim_id"
	switch claim.Pick {
	case "newest":
		order += " DESC"
	case "priority":
		free, order, index = oracleFreePriority, oracleFreePriority+", "+oracleFreeID, "claim_priority"
	}
	var a oracleArgs
	query := "SELECT /*+ INDEX(t " + table.IndexName(index) + ") */ id, " + oracleSize + " FROM " + table.Hot() + " t WHERE " + oracleByRows(table) + " AND " + free + " IS NOT NULL" + a.topics(claim) +
		"\n        ORDER BY " + order
	limit, bytes := a.int(claim.Limit), a.int(claim.mostBytes())
	return Steps{
		Do: []Query{oraclePick(&a, table, query, limit, bytes, "UPDATE "+table.Hot()+" SET claimed_by = "+a.add(claim.Relay)+", claim_token = "+a.add(claim.Token)+
			", claimed_until = "+a.in(claim.TTL)+", claim_stamp = this_transaction"+
			"\n        WHERE id = ids(i) AND claimed_until IS NULL")},
		Ask: Query{SQL: oracleAsBytes + "\nSELECT /*+ INDEX(t " + table.IndexName("claim_until") + ") */ " + oracleHot +
			"\nFROM " + table.Hot() + " t WHERE t.claimed_until IS NOT NULL AND t.claim_stamp = " + oracleStamped},
	}
}

func (a *oracleArgs) topics(claim Claim) string {
	where := ""
	if len(claim.Topics) > 0 {
		where += "\n        AND " + oracleBytes("topic") + " IN " + a.texts(claim.Topics)
	}
	if len(claim.Except) > 0 {
		where += "\n        AND " + oracleBytes("topic") + " NOT IN " + a.texts(claim.Except)
	}
	return where
}

// Extend passes over rows that are being settled or handled: nobody else gets
// these meanwhile.
func (oracle) Extend(table Table, token string, ids []int64, ttl time.Duration) Steps {
	var a, ask oracleArgs
	query := "SELECT id, 0 FROM " + table.Hot() + " WHERE " + oracleByRows(table) + " AND id IN " + a.ids(ids) + " AND claim_token = " + a.add(token)
	return Steps{
		Do:  []Query{oraclePick(&a, table, query, a.int(len(ids)), "1", "UPDATE "+table.Hot()+" SET claimed_until = "+a.in(ttl)+" WHERE id = ids(i) AND claim_token = "+a.add(token))},
		Ask: ask.query("SELECT id FROM " + table.Hot() + " WHERE id IN " + ask.ids(ids) + " AND claim_token = " + ask.add(token)),
	}
}

// FreeEnded passes over rows that are being settled or handled. It comes after
// Begin, whose lock a change of the way of claiming takes, too. Among the first
// that have ended, that is: where rows are locked there may be no limit beside.
func (oracle) FreeEnded(table Table, limit int) []Write {
	const ended = "claimed_until < " + oracleNow
	var a oracleArgs
	return []Write{{
		Counts: true,
		Query: a.query(
			"SELECT id FROM "+table.Hot()+" WHERE "+oracleByRows(table)+" AND "+ended+" AND id IN (SELECT id FROM (",
			"    SELECT id FROM "+table.Hot()+" WHERE "+ended,
			"    ORDER BY claimed_until) WHERE ROWNUM <= "+a.int(limit)+") FOR UPDATE SKIP LOCKED"),
		After: func(ids []int64) []Query {
			var a oracleArgs
			return []Query{a.query(
				"UPDATE "+table.Hot()+" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL, crashes = crashes + 1",
				"WHERE "+ended+" AND id IN "+a.ids(ids))}
		},
	}}
}

// Return inserts rows with this transaction's number, and deletes those that bear
// it: no other does so at the same time, as all begin with the same lock.
func (oracle) Return(table Table, limit int) []Write {
	var a oracleArgs
	return []Write{
		{Counts: true, Query: a.query(
			"INSERT INTO "+table.Hot()+" ("+moving+", claim_stamp)",
			"SELECT "+prefixed(moving, "t.")+", "+oracleStamped,
			"FROM (SELECT t.* FROM "+table.Held()+" t WHERE "+oracleByRows(table)+" AND "+oracleDueAt+" <= "+oracleNow,
			"    AND "+idIsFree(table)+" AND "+firstOfID(table, "o.state <> 'error' AND NVL(o.available_at, TIMESTAMP '0001-01-01 00:00:00') <= "+oracleNow),
			"    ORDER BY "+oracleDueAt+", "+oracleDueID+") t WHERE ROWNUM <= "+a.int(limit))},
		{Query: Query{SQL: "DELETE FROM " + table.Held() + " WHERE (id, message_id) IN (SELECT /*+ INDEX(h " + table.IndexName("claim_until") + ") */ h.id, h.message_id FROM " + table.Hot() + " h" +
			"\n    WHERE h.claimed_until IS NULL AND h.claim_stamp = " + oracleStamped + ")"}},
	}
}
