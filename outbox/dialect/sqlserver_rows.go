package dialect

import (
	"strings"
	"time"
)

// Claim names its index, as all do that lock what they find: in another order
// than the index's the rows would be sorted, and all be locked before the first
// is taken.
func (sqlserver) Claim(table Table, claim Claim) Steps {
	index := "claim_id"
	if claim.Pick == "priority" {
		index = "claim_priority"
	}
	var a sqlserverArgs
	where := sqlserverByRows(table) + " AND claimed_until IS NULL"
	limit := a.int(claim.Limit)
	if len(claim.Topics) > 0 {
		where += " AND " + sqlserverAmong(&a, "topic", claim.Topics)
	}
	if len(claim.Except) > 0 {
		where += " AND NOT (" + sqlserverAmong(&a, "topic", claim.Except) + ")"
	}
	return alone(a.write(
		"WITH picked AS (",
		"    SELECT TOP ("+limit+") t.*, "+sqlserverSize+" AS size FROM "+table.Hot()+" AS t WITH (INDEX("+table.IndexName(index)+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE "+where+" ORDER BY "+claimOrder(claim.Pick)+"),",
		claimFitting("ORDER BY "+claimOrder(claim.Pick)+" "),
		"UPDATE fitting SET claimed_by = "+a.add(claim.Relay)+", claim_token = "+a.add(claim.Token)+", claimed_until = "+a.in(claim.TTL),
		"OUTPUT "+strings.ReplaceAll(sqlserverHot, "t.", "inserted."),
		"WHERE bytes_before < "+a.int(claim.mostBytes())))
}

// sqlserverByRows locks the way of claiming until the end of the transaction, for
// statements that do nothing unless it is by rows: who changes it at the same time
// either sees what they do, or they see the change.
func sqlserverByRows(table Table) string {
	return "EXISTS (SELECT 1 FROM " + table.Settings() + " WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows')"
}

// Extend goes through all claims, of which there are as many as relays have in
// hand. A row that is locked is being settled or handled, and nobody else gets
// it meanwhile: it isn't extended, and is still claimed.
func (d sqlserver) Extend(table Table, token string, ids []int64, ttl time.Duration) Steps {
	var a sqlserverArgs
	index := "INDEX(" + table.IndexName("claim_until") + ")"
	claimed := "t.claimed_until IS NOT NULL AND t.claim_token = " + a.add(token) + " AND t.id IN " + sqlserverIDs(&a, ids)
	return alone(d.after("SET NOCOUNT ON;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"+
		"UPDATE t SET claimed_until = "+a.in(ttl)+
		"\nFROM "+table.Hot()+" AS t WITH ("+index+", UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)\nWHERE "+sqlserverByRows(table)+" AND "+claimed+";\n", d.read(&a,
		"SELECT t.id FROM "+table.Hot()+" AS t WITH ("+index+")",
		"WHERE "+claimed)))
}

func (sqlserver) FreeEnded(table Table, limit int) []Write {
	var a sqlserverArgs
	return []Write{{Counts: true, Query: a.write(
		"WITH ended AS (",
		"    SELECT TOP ("+a.int(limit)+") * FROM "+table.Hot()+" WITH (INDEX("+table.IndexName("claim_until")+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE "+sqlserverByRows(table)+" AND claimed_until IS NOT NULL AND claimed_until < SYSUTCDATETIME() ORDER BY claimed_until)",
		"UPDATE ended SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = crashes + 1")}}
}

// Return is one statement: what it deletes is what it inserts.
func (sqlserver) Return(table Table, limit int) []Write {
	var a sqlserverArgs
	return []Write{{Counts: true, Query: a.write(
		"INSERT INTO "+table.Hot()+" ("+moving+")",
		"SELECT "+moving+" FROM (",
		"    DELETE due",
		"    OUTPUT "+prefixed(moving, "deleted."),
		"    FROM (SELECT TOP ("+a.int(limit)+") * FROM "+table.Held()+" AS t WITH (INDEX("+table.IndexName("held_due")+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"        WHERE "+sqlserverByRows(table)+" AND state <> N'error' AND due_at <= SYSUTCDATETIME()",
		"            AND "+idIsFree(table)+" AND "+firstOfID(table, "o.state <> N'error' AND o.due_at <= SYSUTCDATETIME()"),
		"        ORDER BY due_at, id) AS due",
		") AS back")}}
}
