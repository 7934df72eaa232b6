package oracle

import (
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// pick is a block that locks the first rows that a query finds free of
// locks, no more than it takes, and then changes these, up to a bound of bytes: rows
// are locked as they are fetched, and the block, not the driver, says how many. It
// begins with a lock that is its session's own, of those which a change of the way of
// claiming waits for: what the query then sees of that way is so until all is
// committed.
func pick(a *args, table dialect.Table, query string, limit, bytes string, change string) backend.Query {
	return a.query(
		"DECLARE",
		stamp,
		"    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;",
		"    ids numbers;",
		"    sizes numbers;",
		"    fitting PLS_INTEGER := 0;",
		"    bytes_left NUMBER;",
		"    CURSOR free_rows IS "+query+" FOR UPDATE SKIP LOCKED;",
		"BEGIN",
		"    FOR locked IN (SELECT lock_id FROM "+locks(table)+" WHERE lock_id = MOD(SYS_CONTEXT('USERENV', 'SID'), 64 * "+laneSlots+") FOR UPDATE) LOOP NULL; END LOOP;",
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

// byRows is true while the table is claimed by rows.
func byRows(table dialect.Table) string {
	return "(SELECT value FROM " + table.Settings + " WHERE name = 'claim') = 'rows'"
}

// The columns of the indexes of free rows, which the dialect makes.
const (
	freeID       = "CASE WHEN claimed_until IS NULL THEN id END"
	freePriority = "CASE WHEN claimed_until IS NULL THEN -priority END"
)

// claim looks at the condition again when it has a row's lock. What it has
// claimed bears its transaction's number.
func (d *Oracle) claim(claim relay.ClaimRequest) steps {
	free, order := freeID, freeID
	index := "claim_id"
	switch claim.Pick {
	case relay.Newest:
		order += " DESC"
	case relay.Priority:
		free, order, index = freePriority, freePriority+", "+freeID, "claim_priority"
	}
	var a args
	query := "SELECT /*+ INDEX(t " + d.table.IndexName(index) + ") */ id, " + size + " FROM " + d.table.Hot + " t WHERE " + byRows(d.table) + " AND " + free + " IS NOT NULL" + a.topics(claim) +
		"\n        ORDER BY " + order
	limit, bytes := a.int(claim.Limit), a.add(backend.MostBytes(claim))
	return steps{
		do: []backend.Query{pick(&a, d.table, query, limit, bytes, "UPDATE "+d.table.Hot+" SET claimed_by = "+a.add(claim.Relay)+", claim_token = "+a.add(claim.Token)+
			", claimed_until = "+a.in(claim.TTL)+", claim_stamp = this_transaction"+
			"\n        WHERE id = ids(i) AND claimed_until IS NULL")},
		ask: backend.Query{SQL: asBytes + "\nSELECT /*+ INDEX(t " + d.table.IndexName("claim_until") + ") */ " + hot +
			"\nFROM " + d.table.Hot + " t WHERE t.claimed_until IS NOT NULL AND t.claim_stamp = " + stamped},
	}
}

func (a *args) topics(claim relay.ClaimRequest) string {
	where := ""
	if len(claim.Topics) > 0 {
		where += "\n        AND " + bytes("topic") + " IN " + a.texts(claim.Topics)
	}
	if len(claim.Except) > 0 {
		where += "\n        AND " + bytes("topic") + " NOT IN " + a.texts(claim.Except)
	}
	return where
}

// extend passes over rows that are being settled or handled: nobody else gets
// these meanwhile.
func (d *Oracle) extend(token string, ids []int64, ttl time.Duration) steps {
	var a, ask args
	query := "SELECT id, 0 FROM " + d.table.Hot + " WHERE " + byRows(d.table) + " AND id IN " + a.ids(ids) + " AND claim_token = " + a.add(token)
	return steps{
		do:  []backend.Query{pick(&a, d.table, query, a.int(len(ids)), "1", "UPDATE "+d.table.Hot+" SET claimed_until = "+a.in(ttl)+" WHERE id = ids(i) AND claim_token = "+a.add(token))},
		ask: ask.query("SELECT id FROM " + d.table.Hot + " WHERE id IN " + ask.ids(ids) + " AND claim_token = " + ask.add(token)),
	}
}

// expired locks claims that have ended, and passes over rows that are being settled or
// handled. It comes after the lock of a change, which a change of the way of claiming
// takes, too. Among the first that have ended, that is: where rows are locked there may be
// no limit beside.
func (d *Oracle) expired(limit int) backend.Query {
	var a args
	return a.query(
		"SELECT id FROM "+d.table.Hot+" WHERE "+byRows(d.table)+" AND "+ended+" AND id IN (SELECT id FROM (",
		"    SELECT id FROM "+d.table.Hot+" WHERE "+ended,
		"    ORDER BY claimed_until) WHERE ROWNUM <= "+a.int(limit)+") FOR UPDATE SKIP LOCKED")
}

const ended = "claimed_until < " + now

func (d *Oracle) freeExpired(ids []int64) backend.Query {
	var a args
	return a.query(
		"UPDATE "+d.table.Hot+" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL, crashes = crashes + 1",
		"WHERE "+ended+" AND id IN "+a.ids(ids))
}

// bringBack inserts rows with this transaction's number, and deletes those that bear
// it: no other does so at the same time, as all begin with the same lock.
func (d *Oracle) bringBack(limit int) []write {
	var a args
	return []write{
		{counts: true, Query: a.query(
			"INSERT INTO "+d.table.Hot+" ("+backend.Returning+", claim_stamp)",
			"SELECT "+backend.Of("t", backend.Returning)+", "+stamped,
			"FROM (SELECT t.* FROM "+d.table.Held+" t WHERE "+byRows(d.table)+" AND "+dueAt+" <= "+now,
			"    AND "+backend.IDIsFree(d.table)+" AND "+backend.FirstOfID(d.table, "o.state <> 'error' AND NVL(o.available_at, TIMESTAMP '0001-01-01 00:00:00') <= "+now),
			"    ORDER BY "+dueAt+", "+dueID+") t WHERE ROWNUM <= "+a.int(limit))},
		{Query: backend.Query{SQL: "DELETE FROM " + d.table.Held + " WHERE (id, message_id) IN (SELECT /*+ INDEX(h " + d.table.IndexName("claim_until") + ") */ h.id, h.message_id FROM " + d.table.Hot + " h" +
			"\n    WHERE h.claimed_until IS NULL AND h.claim_stamp = " + stamped + ")"}},
	}
}
