package dialect

import "time"

// kinRow finds the row t that g names by its key.
const kinRow = "t.lane = g.lane AND t.id = g.id"

// kinMessage is the same with the row's message.
const kinMessage = kinRow + " AND t.message_id = g.message_id"

// Claim asks for what is in the index of its order only, and takes that order. With a plan that sorts, CockroachDB would lock all that it sorts.
func (kin) Claim(table Table, claim Claim) Steps {
	var a postgresArgs
	return alone(a.query(
		postgresIfByRows(table),
		"picked AS MATERIALIZED (",
		"    SELECT t.lane, t.id, t.priority, "+postgresSize+" AS size FROM "+table.Hot()+" AS t WHERE "+postgresByRows+" AND claimed_until IS NULL"+postgresTopics(&a, claim),
		"    ORDER BY "+claimOrder(claim.Pick)+" LIMIT "+a.int(claim.Limit)+" FOR UPDATE OF t SKIP LOCKED),",
		claimFitting(""),
		"UPDATE "+table.Hot()+" AS t",
		"SET claimed_by = "+a.text(claim.Relay)+", claim_token = "+a.text(claim.Token)+", claimed_until = now() + "+a.interval(claim.TTL),
		"FROM fitting AS g WHERE g.bytes_before < "+a.int(claim.mostBytes())+" AND "+kinRow+" AND t.claimed_until IS NULL",
		"RETURNING "+postgresHot))
}

// PeekFree implements [ClaimPeeking].
func (kin) PeekFree(table Table) Query { return Query{SQL: freeRow(table, "")} }

// PeekEnded implements [ClaimPeeking].
func (kin) PeekEnded(table Table) Query {
	return Query{SQL: ended(
		"SELECT id FROM "+table.Hot()+" WHERE claimed_until IS NOT NULL AND claimed_until < now() ORDER BY claimed_until",
		"SELECT id FROM "+table.Held()+" WHERE state <> 'error' AND available_at <= now() ORDER BY available_at, id")}
}

// Extend passes over a row that is locked: it is being settled or handled, and
// nobody else gets it meanwhile.
func (kin) Extend(table Table, token string, ids []int64, ttl time.Duration) Steps {
	var a postgresArgs
	return alone(a.query(
		postgresIfByRows(table),
		"given AS MATERIALIZED (",
		"    SELECT lane, id FROM "+table.Hot()+" WHERE "+postgresByRows+" AND claimed_until IS NOT NULL AND claim_token = "+a.text(token)+" AND id = ANY ("+a.ids(ids)+")),",
		"found AS MATERIALIZED (",
		"    SELECT t.lane, t.id FROM given AS g JOIN "+table.Hot()+" AS t ON "+kinRow,
		"    WHERE t.claim_token = "+a.text(token)+" FOR UPDATE OF t SKIP LOCKED),",
		"extended AS (UPDATE "+table.Hot()+" AS t SET claimed_until = now() + "+a.interval(ttl),
		"    FROM found AS g WHERE "+kinRow+" AND t.claim_token = "+a.text(token)+" RETURNING t.id)",
		"SELECT id FROM extended UNION ALL SELECT id FROM given WHERE id NOT IN (SELECT id FROM found)"))
}

func (kin) FreeEnded(table Table, limit int) []Write {
	var a postgresArgs
	return []Write{{Counts: true, Query: a.query(
		postgresIfByRows(table),
		"ended AS MATERIALIZED (",
		"    SELECT lane, id FROM "+table.Hot()+" WHERE "+postgresByRows+" AND claimed_until IS NOT NULL AND claimed_until < now()",
		"    ORDER BY claimed_until LIMIT "+a.int(limit)+" FOR UPDATE SKIP LOCKED)",
		"UPDATE "+table.Hot()+" AS t",
		"SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = t.crashes + 1",
		"FROM ended AS g WHERE "+kinRow+" AND t.claimed_until < now()")}}
}

// Return brings back what is due: a held row that isn't parked always has a
// time, as kinMoves sees to it.
func (kin) Return(table Table, limit int) []Write {
	var a postgresArgs
	return []Write{{Counts: true, Query: a.query(
		postgresIfByRows(table),
		"due AS MATERIALIZED (",
		"    SELECT t.lane, t.id, t.message_id FROM "+table.Held()+" AS t WHERE "+postgresByRows+" AND t.state <> 'error' AND t.available_at <= now()",
		"        AND "+idIsFree(table)+" AND "+firstOfID(table, "o.state <> 'error' AND o.available_at <= now()"),
		"    ORDER BY t.available_at, t.id LIMIT "+a.int(limit)+" FOR UPDATE OF t SKIP LOCKED),",
		"back AS (DELETE FROM "+table.Held()+" AS t USING due AS g WHERE "+kinMessage,
		"    RETURNING "+prefixed(moving, "t.")+")",
		"INSERT INTO "+table.Hot()+" ("+moving+")",
		"SELECT "+moving+" FROM back")}}
}
