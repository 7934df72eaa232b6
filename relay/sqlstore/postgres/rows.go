package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Claim implements [backend.Backend].
func (p *Postgres) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	return backend.ReadRows(ctx, p.db, p.claim(request))
}

// claim materializes what it picked, as the planner might pick again for each row
// otherwise, and exceed the limit. The order is that of one of the indexes for
// claiming by rows.
func (p *Postgres) claim(request storage.ClaimRequest) backend.Query {
	var a args
	all := p.sql.Text("every id")
	if request.Pick == storage.Priority {
		all = p.sql.Text("every priority")
	}
	topics := ""
	if len(request.Topics) > 0 {
		topics += " AND topic = ANY (" + a.add(bind.PostgresArray(request.Topics), "text[]") + ")"
	}
	if len(request.Except) > 0 {
		topics += " AND topic <> ALL (" + a.add(bind.PostgresArray(request.Except), "text[]") + ")"
	}
	return a.query(p.sql.Text("with claim") + "," +
		"\npicked AS MATERIALIZED (" +
		"\n    SELECT " + p.sql.Text("place") + ", t.priority, " + p.sql.Text("size") + " AS size FROM " + p.table.Hot + " AS t" +
		"\n    WHERE " + p.sql.Text("by rows") + " AND claimed_until IS NULL AND " + all + topics + " AND " + p.planNow(&a) +
		"\n    ORDER BY " + backend.ClaimOrder(request.Pick) + " LIMIT " + a.add(int64(request.Limit), "bigint") + " FOR NO KEY UPDATE OF t SKIP LOCKED)," +
		"\nfitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)" +
		"\nUPDATE " + p.table.Hot + " AS t" +
		"\nSET claimed_by = " + a.add(request.Relay, "text") + ", claim_token = " + a.add(request.Token, "text") +
		", claimed_until = now() + (" + a.add(request.TTL.Microseconds(), "bigint") + " * interval '1 microsecond')" +
		"\nFROM fitting AS g WHERE g.bytes_before < " + a.add(backend.MostBytes(request), "bigint") + " AND " + p.sql.Text("is at place") +
		"\nRETURNING " + p.sql.Text("hot row"))
}

// Extend implements [backend.Backend].
func (p *Postgres) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return backend.IDs(ctx, p.db, p.sql.Query("extend", token, bind.PostgresArray(ids), ttl.Microseconds(), true))
}

// Reclaim implements [backend.Backend].
func (p *Postgres) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	for _, name := range []string{"free expired", "bring back"} {
		err := p.inTx(ctx, func(tx *sql.Tx) error {
			changed, err := backend.Exec(ctx, tx, p.sql.Query(name, int64(limit), true))
			freed += changed
			return err
		})
		if err != nil {
			return freed, err
		}
	}
	return freed, nil
}
