package sqlserver

import (
	"context"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// claim names its index, as all do that lock what they find: in another order
// than the index's the rows would be sorted, and all be locked before the first
// is taken.
func (d *SQLServer) claim(claim relay.ClaimRequest) backend.Query {
	index := "claim_id"
	if claim.Pick == relay.Priority {
		index = "claim_priority"
	}
	var a args
	where := byRows(d.table) + " AND claimed_until IS NULL"
	limit := a.int(claim.Limit)
	if len(claim.Topics) > 0 {
		where += " AND " + among(&a, "topic", claim.Topics)
	}
	if len(claim.Except) > 0 {
		where += " AND NOT (" + among(&a, "topic", claim.Except) + ")"
	}
	return a.write(
		"WITH picked AS (",
		"    SELECT TOP ("+limit+") t.*, "+size+" AS size FROM "+d.table.Hot+" AS t WITH (INDEX("+d.table.IndexName(index)+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE "+where+" ORDER BY "+backend.ClaimOrder(claim.Pick)+"),",
		"fitting AS (SELECT *, sum(size) OVER (ORDER BY "+backend.ClaimOrder(claim.Pick)+" ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)",
		"UPDATE fitting SET claimed_by = "+a.add(claim.Relay)+", claim_token = "+a.add(claim.Token)+", claimed_until = "+a.in(claim.TTL),
		"OUTPUT "+strings.ReplaceAll(hot, "t.", "inserted."),
		"WHERE bytes_before < "+a.add(backend.MostBytes(claim)))
}

// byRows locks the way of claiming until the end of the transaction, for
// statements that do nothing unless it is by rows: who changes it at the same time
// either sees what they do, or they see the change.
func byRows(table dialect.Table) string {
	return "EXISTS (SELECT 1 FROM " + table.Settings + " WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows')"
}

// Extend implements [backend.Rows]. It goes through all claims, of which there are as
// many as relays have in hand. A row that is locked is being settled or handled, and
// nobody else gets it meanwhile: it isn't extended, and is still claimed.
func (d *SQLServer) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	var a args
	index := "INDEX(" + d.table.IndexName("claim_until") + ")"
	claimed := "t.claimed_until IS NOT NULL AND t.claim_token = " + a.add(token) + " AND t.id IN " + iDs(&a, ids)
	return backend.IDs(ctx, d.db, d.after("SET NOCOUNT ON;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"+
		"UPDATE t SET claimed_until = "+a.in(ttl)+
		"\nFROM "+d.table.Hot+" AS t WITH ("+index+", UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)\nWHERE "+byRows(d.table)+" AND "+claimed+";\n", d.read(&a,
		"SELECT t.id FROM "+d.table.Hot+" AS t WITH ("+index+")",
		"WHERE "+claimed)))
}

func (d *SQLServer) freeExpired(limit int) backend.Query {
	var a args
	return a.write(
		"WITH ended AS (",
		"    SELECT TOP ("+a.int(limit)+") * FROM "+d.table.Hot+" WITH (INDEX("+d.table.IndexName("claim_until")+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE "+byRows(d.table)+" AND claimed_until IS NOT NULL AND claimed_until < SYSUTCDATETIME() ORDER BY claimed_until)",
		"UPDATE ended SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = crashes + 1")
}

// bringBack is one statement: what it deletes is what it inserts.
func (d *SQLServer) bringBack(limit int) backend.Query {
	var a args
	return a.write(
		"INSERT INTO "+d.table.Hot+" ("+backend.Returning+")",
		"SELECT "+backend.Returning+" FROM (",
		"    DELETE due",
		"    OUTPUT "+backend.Of("deleted", backend.Returning),
		"    FROM (SELECT TOP ("+a.int(limit)+") * FROM "+d.table.Held+" AS t WITH (INDEX("+d.table.IndexName("held_due")+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"        WHERE "+byRows(d.table)+" AND state <> N'error' AND due_at <= SYSUTCDATETIME()",
		"            AND "+backend.IDIsFree(d.table)+" AND "+backend.FirstOfID(d.table, "o.state <> N'error' AND o.due_at <= SYSUTCDATETIME()"),
		"        ORDER BY due_at, id) AS due",
		") AS back")
}
