package dialect

import (
	"strings"
	"time"
)

// Claim materializes what it picked, as the planner might pick again for each
// row otherwise, and exceed the limit. The size of a payload is known without
// reading it, wherever it is kept.
func (postgres) Claim(table Table, claim Claim) Steps {
	var a postgresArgs
	return alone(a.query(
		postgresIfByRows(table),
		"picked AS MATERIALIZED (",
		"    SELECT "+postgresPicked+", t.priority, "+postgresSize+" AS size FROM "+table.Hot()+" AS t WHERE "+postgresByRows+" AND claimed_until IS NULL AND "+claimBound(claim.Pick)+postgresTopics(&a, claim)+" AND "+a.planNow(),
		"    ORDER BY "+claimOrder(claim.Pick)+" LIMIT "+a.int(claim.Limit)+" FOR NO KEY UPDATE OF t SKIP LOCKED),",
		claimFitting(""),
		"UPDATE "+table.Hot()+" AS t",
		"SET claimed_by = "+a.text(claim.Relay)+", claim_token = "+a.text(claim.Token)+", claimed_until = now() + "+a.interval(claim.TTL),
		"FROM fitting AS g WHERE g.bytes_before < "+a.int(claim.mostBytes())+" AND "+postgresPickedRow,
		"RETURNING "+postgresHot))
}

// postgresIfByRows locks the way of claiming, for statements that do nothing unless
// it is postgresByRows: who changes it at the same time either sees what they do, or
// they see the change.
func postgresIfByRows(table Table) string {
	return "WITH claim AS MATERIALIZED (\n    SELECT value FROM " + table.Settings() + " WHERE name = 'claim' FOR SHARE),"
}

const postgresByRows = "EXISTS (SELECT 1 FROM claim WHERE value = 'rows')"

// claimFitting says of each row that was picked how many bytes come before it: in an
// order, or as they were picked.
func claimFitting(order string) string {
	return "fitting AS (SELECT *, sum(size) OVER (" + order + "ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)"
}

// PeekFree implements [ClaimPeeking].
func (postgres) PeekFree(table Table) Query {
	var a postgresArgs
	return a.query(freeRow(table, " AND "+claimBound("oldest")+" AND "+a.planNow()))
}

// PeekEnded implements [ClaimPeeking].
func (postgres) PeekEnded(table Table) Query {
	var a postgresArgs
	return a.query(ended(
		"SELECT id FROM "+table.Hot()+" WHERE claimed_until < now() AND "+a.planNow()+" ORDER BY claimed_until",
		"SELECT id FROM "+table.Held()+" WHERE "+postgresDue()+" AND "+a.planNow()+" ORDER BY "+postgresDueAt+", id"))
}

const postgresDueAt = "COALESCE(available_at, '0001-01-01 00:00:00+00')"

// postgresDue is true for the held rows that are due. Its bound is dear for what
// boundBy says.
func postgresDue() string {
	return "state <> 'error' AND " + postgresDueAt + " <= now() AND " +
		postgresDueAt + " >= " + timeBoundBy("(SELECT '-infinity'::timestamptz)", "(SELECT now()::text)")
}

// Rows that were locked are changed by their place, as in postgresFound. What is
// always true of g tells the planner that they are few.
const (
	postgresPicked    = "ctid AS place, id, id + 0 AS same_id, lane, lane + 0 AS same_lane"
	postgresPickedRow = postgresPlace + " AND g.id = g.same_id AND g.lane = g.same_lane"
)

func postgresTopics(a *postgresArgs, claim Claim) string {
	where := ""
	if len(claim.Topics) > 0 {
		where += " AND topic = ANY (" + a.texts(claim.Topics) + ")"
	}
	if len(claim.Except) > 0 {
		where += " AND topic <> ALL (" + a.texts(claim.Except) + ")"
	}
	return where
}

// claimOrder is that of one of the indexes for claiming by rows.
func claimOrder(pick string) string {
	switch pick {
	case "newest":
		return "id DESC"
	case "priority":
		return "priority DESC, id"
	default:
		return "id"
	}
}

// postgresClaimed are the columns by which a found row is known again.
const postgresClaimed = "h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token"

// claimBound is true for all rows, and a condition of the index of the order: see
// boundBy. As its bounds are not known beforehand, and are many, the planner
// expects few rows, and so no reading of the whole index; which is what it gets,
// as there is a limit.
func claimBound(pick string) string {
	column, low, high := "id", "(SELECT -9223372036854775807)", "(SELECT 9223372036854775807)"
	switch pick {
	case "ended":
		column, low, high = "claimed_until", "(SELECT '-infinity'::timestamptz)", "(SELECT 'infinity'::timestamptz)"
	case "priority":
		column, low, high = "priority", "(SELECT -32768)", "(SELECT 32767)"
	}
	dear := boundBy(low, "(SELECT now()::text)")
	if pick == "ended" {
		dear = timeBoundBy(low, "(SELECT now()::text)")
	}
	return column + " >= " + dear + " AND " + column + " <= " + high +
		strings.Repeat(" AND ("+column+", "+column+") >= ("+low+", "+low+")", 6)
}

// Extend goes through all claims, of which there are as many as relays have in
// hand: there is no index by id, and a row's lane isn't known. A row that is
// locked is being settled or handled, and nobody else gets it meanwhile.
func (postgres) Extend(table Table, token string, ids []int64, ttl time.Duration) Steps {
	var a postgresArgs
	return alone(a.query(
		postgresIfByRows(table),
		"given AS MATERIALIZED (",
		"    SELECT lane, id FROM (SELECT lane, id, claim_token FROM "+table.Hot()+" WHERE "+postgresByRows+" AND "+claimBound("ended"),
		"        ORDER BY claimed_until OFFSET 0) AS h",
		"    WHERE claim_token = "+a.text(token)+" AND id = ANY ("+a.ids(ids)+") AND "+a.planNow()+"),",
		"found AS MATERIALIZED (SELECT g.*, x.* "+postgresFound(table.Hot(), postgresClaimed, "", " FOR NO KEY UPDATE SKIP LOCKED")+"),",
		"extended AS (UPDATE "+table.Hot()+" AS t SET claimed_until = now() + "+a.interval(ttl),
		"    FROM found AS g WHERE "+postgresPlace+" AND g.claim_token = "+a.text(token)+" AND g.found_lane = g.lane AND g.found_id = g.id",
		"    RETURNING t.id)",
		"SELECT id FROM extended UNION ALL SELECT id FROM given WHERE id NOT IN (SELECT found_id FROM found)"))
}

func (postgres) FreeEnded(table Table, limit int) []Write {
	var a postgresArgs
	return []Write{{Counts: true, Query: a.query(
		postgresIfByRows(table),
		"ended AS MATERIALIZED (",
		"    SELECT "+postgresPicked+" FROM "+table.Hot()+" WHERE "+postgresByRows+" AND claimed_until < now()",
		"    ORDER BY claimed_until LIMIT "+a.int(limit)+" FOR NO KEY UPDATE SKIP LOCKED)",
		"UPDATE "+table.Hot()+" AS t",
		"SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = t.crashes + 1",
		"FROM ended AS g WHERE "+postgresPickedRow+" AND "+a.planNow())}}
}

func (postgres) Return(table Table, limit int) []Write {
	var a postgresArgs
	return []Write{{Counts: true, Query: a.query(
		postgresIfByRows(table),
		"due AS MATERIALIZED (",
		"    SELECT "+postgresPicked+" FROM "+table.Held()+" AS t WHERE "+postgresByRows+" AND "+postgresDue()+" AND "+idIsFree(table)+" AND "+firstOfID(table, postgresSooner)+" AND "+a.planNow(),
		"    ORDER BY "+postgresDueAt+", id LIMIT "+a.int(limit)+" FOR UPDATE SKIP LOCKED),",
		"back AS (DELETE FROM "+table.Held()+" AS t USING due AS g WHERE "+postgresPickedRow,
		"    RETURNING "+prefixed(moving, "t.")+")",
		"INSERT INTO "+table.Hot()+" ("+moving+")",
		"SELECT "+moving+" FROM back")}}
}

const postgresSooner = "o.state <> 'error' AND COALESCE(o.available_at, '0001-01-01 00:00:00+00') <= now()"

// moving are the columns that a held row takes back to the hot table, which
// computes the lane again.
const moving = "id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, created_at"
