package oracle

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend].
func (d *Oracle) Delivered(ctx context.Context, filter backend.Delivered) ([]backend.DeliveredRow, error) {
	var a args
	where := a.filter(filter.Filter, false) + " AND t.id <= " + a.Add(filter.UntilID)
	if !filter.Since.IsZero() {
		where += " AND t.finished_at >= " + a.timestamp(filter.Since)
	}
	if !filter.Until.IsZero() {
		where += " AND t.finished_at < " + a.timestamp(filter.Until)
	}
	return backend.ReadDelivered(ctx, d.db, a.query(
		"SELECT * FROM (",
		"    SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks FROM "+d.table.Done+" t",
		"    WHERE "+where,
		"    ORDER BY t.id) WHERE ROWNUM <= "+a.Add(int64(filter.Limit))))
}

// ChangeReplay implements [backend.Backend]. Each copy has a statement of its own, as a dead
// letter has: a list has no place for headers of any size. They are found by the highest id
// that was given out before.
func (d *Oracle) ChangeReplay(ctx context.Context, change backend.ReplayChange) (copies []storage.RowID, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		if len(change.Copies) > 0 {
			var before int64
			if err := backend.One(ctx, tx, d.sql.Query("last id"), &before); err != nil {
				return err
			}
			for i := range change.Copies {
				s := &change.Copies[i]
				var a args
				values := a.Add(s.DeadLetter.MessageID) + ", " + a.Add(s.DeadLetter.Topic) + ", t.message_key, t.payload, t.payload_text, " + a.Add(backend.Nullable(s.DeadLetter.Headers)) + ", t.priority, " + a.Add(backend.Nullable(s.DeadLetter.Sinks))
				if _, err := backend.Exec(ctx, tx, a.query(
					"INSERT INTO "+d.table.Hot+" ("+backend.CopyInto+")",
					"SELECT "+values+" FROM "+d.table.Done+" t",
					"WHERE t.id = "+a.Add(s.ID)+" AND t.message_id = "+a.Add(s.MessageID)+" AND "+same("NVL(t.sinks, ',')", a.Add(cmp.Or(s.Sinks, ","))))); err != nil {
					return err
				}
			}
			var a args
			if copies, err = backend.ReadPlaces(ctx, tx, a.query("SELECT t.lane, t.id FROM "+d.table.Hot+" t WHERE t.id > "+a.Add(before)+
				" AND t.message_id IN "+a.texts(backend.Column(change.Copies, func(s *storage.Settlement) string { return s.DeadLetter.MessageID })))); err != nil {
				return err
			}
		}
		return backend.SetReplay(ctx, tx, d.sql, change, len(copies))
	})
	return copies, err
}

// CountPending implements [backend.Backend].
func (d *Oracle) CountPending(ctx context.Context, rows []storage.RowID) (count int, err error) {
	return count, backend.One(ctx, d.db, backend.PendingAmong(d.table.Hot, rows), &count)
}
