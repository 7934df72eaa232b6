package sqlite

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// byDoneID has rows found by their ids, as byID does in the other tables.
func (s *SQLite) byDoneID() string { return " AS t INDEXED BY " + s.table.IndexName("done_id") }

// Delivered implements [backend.Backend]. It walks along the index of ids.
func (s *SQLite) Delivered(ctx context.Context, filter backend.Delivered) ([]backend.DeliveredRow, error) {
	where, args := conditions(filter.Filter)
	where, args = where+" AND t.id <= ?", append(args, filter.UntilID)
	if !filter.Since.IsZero() {
		where, args = where+" AND t.finished_at >= ?", append(args, filter.Since.UTC().Format(timeFormat))
	}
	if !filter.Until.IsZero() {
		where, args = where+" AND t.finished_at < ?", append(args, filter.Until.UTC().Format(timeFormat))
	}
	return backend.ReadDelivered(ctx, s.db, query("SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks\nFROM "+s.table.Done+s.byDoneID()+
		"\nWHERE "+where+"\nORDER BY t.id LIMIT ?", append(args, int64(filter.Limit))...))
}

// ChangeReplay implements [backend.Backend].
func (s *SQLite) ChangeReplay(ctx context.Context, change backend.ReplayChange) (copies []storage.RowID, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		if len(change.Copies) > 0 {
			insert := s.copies(s.table.Done+s.byDoneID(), change.Copies, "")
			insert.SQL += "\nRETURNING lane, id"
			if copies, err = backend.ReadPlaces(ctx, tx, insert); err != nil {
				return err
			}
		}
		return backend.SetReplay(ctx, tx, s.sql, change, len(copies))
	})
	return copies, err
}

// CountPending implements [backend.Backend].
func (s *SQLite) CountPending(ctx context.Context, rows []storage.RowID) (count int, err error) {
	return count, backend.One(ctx, s.db, backend.PendingAmong(s.table.Hot, rows), &count)
}
