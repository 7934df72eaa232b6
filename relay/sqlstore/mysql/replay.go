package mysql

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend]. It reads the rows in the order of the primary key.
func (m *MySQL) Delivered(ctx context.Context, filter backend.Filter, untilID int64) ([]backend.DeliveredRow, error) {
	return backend.ReadDelivered(ctx, m.db, join("SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks\nFROM "+m.table.Done+" AS t FORCE INDEX (PRIMARY)\nWHERE TRUE",
		conditions(filter), " AND t.id <= "+number(untilID)+"\nORDER BY t.id LIMIT "+number(filter.Limit)).query())
}

// LastDelivered implements [backend.Backend].
func (m *MySQL) LastDelivered(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	return backend.ReadLastDelivered(ctx, m.db, join("SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.attempts, CAST(t.created_at AS CHAR), CAST(t.finished_at AS CHAR)\nFROM "+
		m.table.Done+" AS t FORCE INDEX (done_finished)\nWHERE TRUE", conditions(filter), "\nORDER BY t.finished_at DESC LIMIT "+number(filter.Limit)).query())
}

// ChangeReplay implements [backend.Backend]. The server returns the id of the first copy. ChangeReplay finds
// the copies by their message ids, among the rows from this id on, because other messages may have ids in between.
func (m *MySQL) ChangeReplay(ctx context.Context, change backend.ReplayChange) ([]storage.RowID, error) {
	return backend.WriteReplay(ctx, m.inTx, m.sql, change, func(tx *sql.Tx) (copies []storage.RowID, _ int, err error) {
		insert := m.copies(m.table.Done, change.Copies, text{})
		result, err := tx.ExecContext(ctx, insert.SQL, insert.Args...)
		if err != nil {
			return nil, 0, err
		}
		written, err := result.RowsAffected()
		if err != nil || written == 0 { // if all rows have been purged, there is no first id
			return nil, 0, err
		}
		first, err := result.LastInsertId()
		if err != nil {
			return nil, 0, err
		}
		messages := backend.Column(change.Copies, func(s *storage.Settlement) string { return s.DeadLetter.MessageID })
		copies, err = backend.ReadPlaces(ctx, tx, join("SELECT t.lane, t.id FROM "+m.table.Pending+" AS t FORCE INDEX (id) WHERE t.id >= "+number(first)+" AND t.message_id IN ",
			text{arguments(len(messages)), texts(messages)}).query())
		return copies, int(written), err
	})
}
