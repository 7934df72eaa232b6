package oracle

import (
	"context"
	"database/sql"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// lockFirst is a block that locks the first rows that a query finds free of
// locks, no more than the limit, and then changes these, up to a bound of bytes: rows
// are locked as they are fetched, and the block, not the driver, says how many. It
// begins with a lock that is its session's own, of those which a change of the way of
// claiming waits for: what the query then sees of that way is so until all is
// committed.
func (d *Oracle) lockFirst(query, limit, bytes, change string) string {
	return `DECLARE
    ` + d.sql.Text("stamp") + `
    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;
    ids numbers;
    sizes numbers;
    fitting PLS_INTEGER := 0;
    bytes_left NUMBER;
    CURSOR free_rows IS ` + query + ` FOR UPDATE SKIP LOCKED;
BEGIN
    FOR locked IN (SELECT lock_id FROM ` + d.table.Index("locks") + ` WHERE lock_id = MOD(SYS_CONTEXT('USERENV', 'SID'), 64 * 8) FOR UPDATE) LOOP NULL; END LOOP;
    OPEN free_rows;
    FETCH free_rows BULK COLLECT INTO ids, sizes LIMIT ` + limit + `;
    CLOSE free_rows;
    bytes_left := ` + bytes + `;
    WHILE fitting < ids.COUNT AND bytes_left > 0 LOOP
        fitting := fitting + 1;
        bytes_left := bytes_left - sizes(fitting);
    END LOOP;
    FORALL i IN 1 .. fitting
        ` + change + `;
END;`
}

// Claim implements [backend.Backend]. It looks at the condition again when it has a row's
// lock. What it has claimed bears its transaction's number.
func (d *Oracle) Claim(ctx context.Context, claim storage.ClaimRequest) (claimed []storage.Row, err error) {
	free, index := d.sql.Text("free id"), "claim_id"
	order := free
	switch claim.Pick {
	case storage.Newest:
		order += " DESC"
	case storage.Priority:
		free, index = d.sql.Text("free priority"), "claim_priority"
		order = free + ", " + order
	}
	var a args
	query := "SELECT /*+ INDEX(t " + d.table.IndexName(index) + ") */ id, " + d.sql.Text("size") + " FROM " + d.table.Hot + " t WHERE " + d.sql.Text("by rows") + " AND " + free + " IS NOT NULL"
	if len(claim.Topics) > 0 {
		query += "\n        AND " + bytes("topic") + " IN " + a.texts(claim.Topics)
	}
	if len(claim.Except) > 0 {
		query += "\n        AND " + bytes("topic") + " NOT IN " + a.texts(claim.Except)
	}
	block := d.lockFirst(query+"\n        ORDER BY "+order, a.Add(int64(claim.Limit)), a.Add(backend.MostBytes(claim)),
		"UPDATE "+d.table.Hot+" SET claimed_by = "+a.Add(claim.Relay)+", claim_token = "+a.Add(claim.Token)+
			", claimed_until = "+a.in(claim.TTL)+", claim_stamp = this_transaction\n        WHERE id = ids(i) AND claimed_until IS NULL")
	err = d.answer(ctx, []backend.Query{a.query(block)}, func(tx *sql.Tx) error {
		claimed, err = backend.ReadRows(ctx, tx, d.sql.Query("claimed rows"))
		return err
	})
	return claimed, err
}

// Extend implements [backend.Backend]. It passes over rows that are being settled or handled:
// nobody else gets these meanwhile.
func (d *Oracle) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	var a, ask args
	query := "SELECT id, 0 FROM " + d.table.Hot + " WHERE " + d.sql.Text("by rows") + " AND id IN " + list(&a, ids) + " AND claim_token = " + a.Add(token)
	block := d.lockFirst(query, a.Add(int64(len(ids))), "1",
		"UPDATE "+d.table.Hot+" SET claimed_until = "+a.in(ttl)+" WHERE id = ids(i) AND claim_token = "+a.Add(token))
	err = d.answer(ctx, []backend.Query{a.query(block)}, func(tx *sql.Tx) error {
		still, err = backend.IDs(ctx, tx, ask.query("SELECT id FROM "+d.table.Hot+" WHERE id IN "+list(&ask, ids)+" AND claim_token = "+ask.Add(token)))
		return err
	})
	return still, err
}

// Reclaim implements [backend.Backend].
func (d *Oracle) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, d.sql.Query("expired claims", int64(limit)))
		if err != nil || len(ids) == 0 {
			return err
		}
		freed = len(ids)
		var a args
		_, err = backend.Exec(ctx, tx, a.query(
			"UPDATE "+d.table.Hot+" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL, crashes = crashes + 1",
			"WHERE claimed_until < "+now+" AND id IN "+list(&a, ids)))
		return err
	})
	if err != nil {
		return 0, err
	}
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		back, err := backend.Exec(ctx, tx, d.sql.Query("bring back", int64(limit)))
		if err != nil {
			return err
		}
		freed += back
		_, err = backend.Exec(ctx, tx, d.sql.Query("remove what is back"))
		return err
	})
	return freed, err
}
