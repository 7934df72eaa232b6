package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Claim implements [backend.Backend].
func (s *SQLite) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	return backend.ReadRows(ctx, s.db, s.claim(request))
}

func (s *SQLite) claim(request storage.ClaimRequest) backend.Query {
	args := []any{request.Relay, request.Token, seconds(request.TTL)}
	where := s.sql.Text("by rows") + " AND claimed_until IS NULL"
	if len(request.Topics) > 0 {
		where, args = where+" AND topic IN (SELECT value FROM json_each(?))", append(args, bind.JSON(request.Topics))
	}
	if len(request.Except) > 0 {
		where, args = where+" AND topic NOT IN (SELECT value FROM json_each(?))", append(args, bind.JSON(request.Except))
	}
	return query(`UPDATE `+s.table.Hot+` SET claimed_by = ?, claim_token = ?, claimed_until = `+s.sql.Text("from now")+`
WHERE id IN (
    WITH picked AS (SELECT id, priority, coalesce(length(payload), length(CAST(payload_text AS BLOB)), 0) AS size FROM `+s.table.Hot+` WHERE `+where+` ORDER BY `+backend.ClaimOrder(request.Pick)+` LIMIT ?),
    fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
    SELECT id FROM fitting WHERE bytes_before < ?)
RETURNING `+strings.ReplaceAll(s.sql.Text("hot row"), "t.", ""), // which knows no alias
		append(args, int64(request.Limit), backend.MostBytes(request))...)
}

// Extend implements [backend.Backend].
func (s *SQLite) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return backend.IDs(ctx, s.db, s.sql.Query("extend", seconds(ttl), token, bind.JSON(ids)))
}

// Reclaim implements [backend.Backend].
func (s *SQLite) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		freed, err = backend.Exec(ctx, tx, s.sql.Query("free expired", int64(limit)))
		return err
	})
	if err != nil {
		return 0, err
	}
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		back, err := backend.Exec(ctx, tx, s.sql.Query("bring back", int64(limit)))
		if err != nil {
			return err
		}
		freed += back
		_, err = backend.Exec(ctx, tx, s.sql.Query("remove what is back", int64(limit)))
		return err
	})
	return freed, err
}
