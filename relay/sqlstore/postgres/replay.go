package postgres

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend]. It reads the rows in the order of the primary key.
func (p *Postgres) Delivered(ctx context.Context, filter backend.Filter, untilID int64) ([]backend.DeliveredRow, error) {
	var a args
	query := "SELECT t.id, t.lane, t.message_id::text, t.topic, t.headers::text, t.sinks\nFROM " + p.table.Done + " AS t\nWHERE " + a.filter(filter) + " AND t.id <= " + a.add(untilID, "bigint") +
		"\nORDER BY t.id LIMIT " + a.add(int64(filter.Limit), "bigint")
	return backend.ReadDelivered(ctx, p.db, backend.Query{SQL: query, Args: a})
}

// LastDelivered implements [backend.Backend].
func (p *Postgres) LastDelivered(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var a args
	query := "SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, t.sinks, t.attempts, t.created_at, t.finished_at\nFROM " + p.table.Done + " AS t\nWHERE " + a.filter(filter) +
		"\nORDER BY t.finished_at DESC LIMIT " + a.add(int64(filter.Limit), "bigint")
	return backend.ReadLastDelivered(ctx, p.db, backend.Query{SQL: query, Args: a})
}

// ChangeReplay implements [backend.Backend].
func (p *Postgres) ChangeReplay(ctx context.Context, change backend.ReplayChange) ([]storage.RowID, error) {
	return backend.WriteReplay(ctx, p.inTx, p.sql, change, func(tx *sql.Tx) ([]storage.RowID, int, error) {
		insert := p.copies(&statement{}, p.table.Done, "", " AND t.sinks = g.sinks", change.Copies)
		insert.SQL += "\nRETURNING lane, id"
		copies, err := backend.ReadPlaces(ctx, tx, insert)
		return copies, len(copies), err
	})
}
