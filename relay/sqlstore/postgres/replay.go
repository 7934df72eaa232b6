package postgres

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend]. It walks along the key.
func (p *Postgres) Delivered(ctx context.Context, filter backend.Delivered) ([]backend.DeliveredRow, error) {
	var a args
	where := a.filter(filter.Filter) + " AND t.id <= " + a.add(filter.UntilID, "bigint")
	if !filter.Since.IsZero() {
		where += " AND t.finished_at >= " + a.add(filter.Since.UTC().Format(timestamp), "timestamptz")
	}
	if !filter.Until.IsZero() {
		where += " AND t.finished_at < " + a.add(filter.Until.UTC().Format(timestamp), "timestamptz")
	}
	query := "SELECT t.id, t.lane, t.message_id::text, t.topic, t.headers::text, t.sinks\nFROM " + p.table.Done + " AS t\nWHERE " + where +
		"\nORDER BY t.id LIMIT " + a.add(int64(filter.Limit), "bigint")
	return backend.ReadDelivered(ctx, p.db, backend.Query{SQL: query, Args: a})
}

// ChangeReplay implements [backend.Backend].
func (p *Postgres) ChangeReplay(ctx context.Context, change backend.ReplayChange) (copies []storage.RowID, err error) {
	err = backend.InTx(ctx, p.db, readCommitted, p.bounded, func(tx *sql.Tx) error {
		if len(change.Copies) > 0 {
			insert := p.copies(&statement{}, p.table.Done, "", " AND t.sinks = g.sinks", change.Copies)
			insert.SQL += "\nRETURNING lane, id"
			if copies, err = backend.ReadPlaces(ctx, tx, insert); err != nil {
				return err
			}
		}
		return backend.SetReplay(ctx, tx, p.sql, change, len(copies))
	})
	return copies, err
}

// CountPending implements [backend.Backend].
func (p *Postgres) CountPending(ctx context.Context, rows []storage.RowID) (count int, err error) {
	return count, backend.One(ctx, p.db, backend.PendingAmong(p.table.Hot, rows), &count)
}
