package sqlserver

import (
	"context"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Claim implements [backend.Backend]. It names its index, as all do that lock what they find:
// in another order than the index's the rows would be sorted, and all be locked before the
// first is taken.
func (d *SQLServer) Claim(ctx context.Context, claim storage.ClaimRequest) ([]storage.Row, error) {
	index := "claim_id"
	if claim.Pick == storage.Priority {
		index = "claim_priority"
	}
	var a args
	where := d.sql.Text("by rows") + " AND claimed_until IS NULL"
	limit, order, size := a.add(int64(claim.Limit)), backend.ClaimOrder(claim.Pick), d.sql.Text("size")
	if len(claim.Topics) > 0 {
		where += " AND " + among(&a, "topic", claim.Topics)
	}
	if len(claim.Except) > 0 {
		where += " AND NOT (" + among(&a, "topic", claim.Except) + ")"
	}
	relay, token, ttl := a.add(claim.Relay), a.add(claim.Token), a.add(millis(claim.TTL))
	return backend.ReadRows(ctx, d.db, a.query(
		d.sql.Text("read committed"),
		"WITH picked AS (",
		"    SELECT TOP ("+limit+") t.*, "+size+" AS size FROM "+d.table.Hot+" AS t WITH (INDEX("+d.table.IndexName(index)+"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE "+where+" ORDER BY "+order+"),",
		"fitting AS (SELECT *, sum(size) OVER (ORDER BY "+order+" ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)",
		"UPDATE fitting SET claimed_by = "+relay+", claim_token = "+token+", claimed_until = DATEADD(MILLISECOND, "+ttl+" % 1000, DATEADD(SECOND, "+ttl+" / 1000, SYSUTCDATETIME()))",
		"OUTPUT "+strings.ReplaceAll(d.sql.Text("hot row"), "t.", "inserted."),
		"WHERE bytes_before < "+a.add(backend.MostBytes(claim))))
}

// Extend implements [backend.Backend].
func (d *SQLServer) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return backend.IDs(ctx, d.db, d.sql.Query("extend", token, bind.SQLServerList(ids), millis(ttl)))
}

// Reclaim implements [backend.Backend].
func (d *SQLServer) Reclaim(ctx context.Context, limit int) (int, error) {
	freed, err := d.change(ctx, d.sql.Query("free expired", int64(limit)))
	if err != nil {
		return 0, err
	}
	back, err := d.change(ctx, d.sql.Query("bring back", int64(limit)))
	return freed + back, err
}
