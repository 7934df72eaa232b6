package sqlite

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// byDoneID makes SQLite find done rows t by the index on their ids. For the other tables, see [byID].
func (s *SQLite) byDoneID() string { return " AS t INDEXED BY " + s.table.IndexName("done_id") }

// Delivered implements [backend.Backend]. It reads the rows in the order of the index on ids.
func (s *SQLite) Delivered(ctx context.Context, filter backend.Filter, untilID int64) ([]backend.DeliveredRow, error) {
	where, args := conditions(filter)
	return backend.ReadDelivered(ctx, s.db, query("SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks\nFROM "+s.table.Done+s.byDoneID()+
		"\nWHERE "+where+" AND t.id <= ?\nORDER BY t.id LIMIT ?", append(args, untilID, int64(filter.Limit))...))
}

// LastDelivered implements [backend.Backend].
func (s *SQLite) LastDelivered(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	where, args := conditions(filter)
	return backend.ReadLastDelivered(ctx, s.db, query("SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.attempts, t.created_at, t.finished_at\nFROM "+
		s.table.Done+" AS t INDEXED BY "+s.table.IndexName("done_finished")+"\nWHERE "+where+"\nORDER BY t.finished_at DESC LIMIT ?", append(args, int64(filter.Limit))...))
}

// ChangeReplay implements [backend.Backend].
func (s *SQLite) ChangeReplay(ctx context.Context, change backend.ReplayChange) ([]storage.RowID, error) {
	return backend.WriteReplay(ctx, s.inTx, s.sql, change, func(tx *sql.Tx) ([]storage.RowID, int, error) {
		insert := s.copies(s.table.Done+s.byDoneID(), change.Copies, "")
		insert.SQL += "\nRETURNING lane, id"
		copies, err := backend.ReadPlaces(ctx, tx, insert)
		return copies, len(copies), err
	})
}
