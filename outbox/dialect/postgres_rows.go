package dialect

import "time"

// Claim materializes what it picked, as the planner might pick again for each
// row otherwise, and exceed the limit.
func (postgres) Claim(table Table, claim Claim) Query {
	var a postgresArgs
	return a.query(
		"WITH picked AS MATERIALIZED (",
		"    SELECT lane, id FROM "+table.Hot()+" WHERE claimed_until IS NULL"+postgresTopics(&a, claim)+" AND "+a.planNow(),
		"    ORDER BY "+claimOrder(claim.Pick)+" "+a.limit(claim.Limit)+" FOR NO KEY UPDATE SKIP LOCKED)",
		"UPDATE "+table.Hot()+" AS t",
		"SET claimed_by = "+a.text(claim.Relay)+", claim_token = "+a.text(claim.Token)+", claimed_until = now() + "+a.interval(claim.TTL),
		"FROM picked AS p WHERE t.lane = p.lane AND t.id = p.id",
		"RETURNING "+postgresHot)
}

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

func (postgres) Extend(table Table, token string, ids []int64, ttl time.Duration) Query {
	var a postgresArgs
	return a.query(
		"UPDATE "+table.Hot()+" AS t SET claimed_until = now() + "+a.interval(ttl),
		"WHERE t.claimed_until IS NOT NULL AND t.claim_token = "+a.text(token)+" AND t.id = ANY ("+a.ids(ids)+")",
		"RETURNING t.id")
}

func (postgres) FreeEnded(table Table, limit int) Query {
	var a postgresArgs
	return a.query(
		"WITH ended AS MATERIALIZED (",
		"    SELECT lane, id FROM "+table.Hot()+" WHERE claimed_until < now()",
		"    ORDER BY claimed_until LIMIT "+a.int(limit)+" FOR NO KEY UPDATE SKIP LOCKED)",
		"UPDATE "+table.Hot()+" AS t",
		"SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = t.crashes + 1",
		"FROM ended AS e WHERE t.lane = e.lane AND t.id = e.id AND "+a.planNow())
}

func (postgres) Return(table Table, limit int) []Write {
	const at = "COALESCE(available_at, '0001-01-01 00:00:00+00')"
	var a postgresArgs
	return []Write{{Counts: true, Query: a.query(
		"WITH due AS MATERIALIZED (",
		"    SELECT lane, id FROM "+table.Held()+" WHERE state <> 'error' AND "+at+" <= now()",
		"    ORDER BY "+at+", id LIMIT "+a.int(limit)+" FOR UPDATE SKIP LOCKED),",
		"back AS (DELETE FROM "+table.Held()+" AS t USING due AS d WHERE t.lane = d.lane AND t.id = d.id",
		"    RETURNING "+prefixed(moving, "t.")+")",
		"INSERT INTO "+table.Hot()+" ("+moving+")",
		"SELECT "+moving+" FROM back")}}
}

// moving are the columns that a held row takes back to the hot table, which
// computes the lane again.
const moving = "id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, created_at"
