package mysql

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend]. It walks along the key.
func (m *MySQL) Delivered(ctx context.Context, filter backend.Delivered) ([]backend.DeliveredRow, error) {
	parts := []any{"SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks\nFROM " + m.table.Done + " AS t FORCE INDEX (PRIMARY)\nWHERE TRUE",
		conditions(filter.Filter), " AND t.id <= " + number(filter.UntilID)}
	if !filter.Since.IsZero() {
		parts = append(parts, " AND t.finished_at >= ", arg(timestamp(filter.Since)))
	}
	if !filter.Until.IsZero() {
		parts = append(parts, " AND t.finished_at < ", arg(timestamp(filter.Until)))
	}
	return backend.ReadDelivered(ctx, m.db, join(append(parts, "\nORDER BY t.id LIMIT "+number(filter.Limit))...).query())
}

// ChangeReplay implements [backend.Backend]. The copies are found by the first id that the server
// says it gave them: others may have got ids in between.
func (m *MySQL) ChangeReplay(ctx context.Context, change backend.ReplayChange) (copies []storage.RowID, err error) {
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		if len(change.Copies) > 0 {
			insert := m.copies(m.table.Done, change.Copies, text{})
			result, err := tx.ExecContext(ctx, insert.SQL, insert.Args...)
			if err != nil {
				return err
			}
			first, err := result.LastInsertId()
			if err != nil {
				return err
			}
			written, err := result.RowsAffected()
			if err != nil {
				return err
			}
			if written == 0 { // all have been purged, and there is no first id
				return backend.SetReplay(ctx, tx, m.sql, change, 0)
			}
			messages := backend.Column(change.Copies, func(s *storage.Settlement) string { return s.DeadLetter.MessageID })
			if copies, err = backend.ReadPlaces(ctx, tx, join("SELECT t.lane, t.id FROM "+m.table.Hot+" AS t FORCE INDEX (id) WHERE t.id >= "+number(first)+" AND t.message_id IN ",
				text{arguments(len(messages)), texts(messages)}).query()); err != nil {
				return err
			}
		}
		return backend.SetReplay(ctx, tx, m.sql, change, len(copies))
	})
	return copies, err
}

// CountPending implements [backend.Backend].
func (m *MySQL) CountPending(ctx context.Context, rows []storage.RowID) (count int, err error) {
	return count, backend.One(ctx, m.db, backend.PendingAmong(m.table.Hot, rows), &count)
}
