package oracle

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend].
func (d *Oracle) Delivered(ctx context.Context, filter backend.Filter, untilID int64) ([]backend.DeliveredRow, error) {
	var a args
	return backend.ReadDelivered(ctx, d.db, a.query(
		"SELECT * FROM (",
		"    SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks FROM "+d.table.Done+" t",
		"    WHERE "+a.filter(filter, false)+" AND t.id <= "+a.Add(untilID),
		"    ORDER BY t.id) WHERE ROWNUM <= "+a.Add(int64(filter.Limit))))
}

// LastDelivered implements [backend.Backend].
func (d *Oracle) LastDelivered(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var a args
	return backend.ReadLastDelivered(ctx, d.db, a.query(
		"SELECT * FROM (",
		"    SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.attempts, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')",
		"    FROM "+d.table.Done+" t WHERE "+a.filter(filter, false),
		"    ORDER BY t.finished_at DESC) WHERE ROWNUM <= "+a.Add(int64(filter.Limit))))
}

// ChangeReplay implements [backend.Backend]. Like a dead letter, each copy has a separate INSERT.
// ChangeReplay finds the copies by their message ids, among the rows with ids above the last id
// that existed before the INSERTs.
func (d *Oracle) ChangeReplay(ctx context.Context, change backend.ReplayChange) ([]storage.RowID, error) {
	return backend.WriteReplay(ctx, d.inTx, d.sql, change, func(tx *sql.Tx) (copies []storage.RowID, written int, err error) {
		var before int64
		if err := backend.One(ctx, tx, d.sql.Query("last id"), &before); err != nil {
			return nil, 0, err
		}
		for i := range change.Copies {
			s := &change.Copies[i]
			var a args
			n, err := backend.Exec(ctx, tx, a.query(
				"INSERT INTO "+d.table.Pending+" ("+backend.CopyInto+")",
				"SELECT "+copyOf(&a, s.DeadLetter)+" FROM "+d.table.Done+" t",
				"WHERE t.id = "+a.Add(s.ID)+" AND t.message_id = "+a.Add(s.MessageID)+" AND "+same("NVL(t.sinks, ',')", a.Add(cmp.Or(s.Sinks, ",")))))
			if err != nil {
				return nil, 0, err
			}
			written += n
		}
		var a args
		copies, err = backend.ReadPlaces(ctx, tx, a.query("SELECT t.lane, t.id FROM "+d.table.Pending+" t WHERE t.id > "+a.Add(before)+
			" AND t.message_id IN "+a.texts(backend.Column(change.Copies, func(s *storage.Settlement) string { return s.DeadLetter.MessageID }))))
		return copies, written, err
	})
}
