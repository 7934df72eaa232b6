package sqlserver

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend]. It walks along the key.
func (d *SQLServer) Delivered(ctx context.Context, filter backend.Delivered) ([]backend.DeliveredRow, error) {
	var a args
	top := a.add(int64(filter.Limit))
	where := conditions(&a, filter.Filter, false) + " AND t.id <= " + a.add(filter.UntilID)
	if !filter.Since.IsZero() {
		where += " AND t.finished_at >= CONVERT(datetime2(7), " + a.add(timestamp(filter.Since)) + ", 126)"
	}
	if !filter.Until.IsZero() {
		where += " AND t.finished_at < CONVERT(datetime2(7), " + a.add(timestamp(filter.Until)) + ", 126)"
	}
	return backend.ReadDelivered(ctx, d.db, a.query(
		"SELECT TOP ("+top+") t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, t.headers, t.sinks",
		"FROM "+d.table.Done+" AS t WHERE "+where+" ORDER BY t.id"))
}

// ChangeReplay implements [backend.Backend]. ORDER BY makes sure that ids are given in the rows'
// order. The copies are found by the highest id that was given out before.
func (d *SQLServer) ChangeReplay(ctx context.Context, change backend.ReplayChange) (copies []storage.RowID, err error) {
	items := backend.Column(change.Copies, func(s *storage.Settlement) []any {
		return []any{s.ID, s.MessageID, s.Sinks, s.DeadLetter.MessageID, s.DeadLetter.Topic, backend.Nullable(s.DeadLetter.Headers), s.DeadLetter.Sinks}
	})
	err = backend.InTx(ctx, d.db, d.Traits().Tx, nil, func(tx *sql.Tx) error {
		if len(items) > 0 {
			var before int64
			if err := backend.One(ctx, tx, d.sql.Query("last id"), &before); err != nil {
				return err
			}
			var insert, find args
			given := func(a *args) string {
				return "OPENJSON(" + a.add(bind.SQLServerList(items)) + ") WITH (id bigint '$[0]', message_id uniqueidentifier '$[1]', sinks nvarchar(400) '$[2]'," +
					" copy_id uniqueidentifier '$[3]', copy_topic nvarchar(255) '$[4]', copy_headers nvarchar(max) '$[5]', copy_sinks nvarchar(400) '$[6]') AS g"
			}
			if _, err := backend.Exec(ctx, tx, insert.query(
				"INSERT INTO "+d.table.Hot+" ("+backend.CopyInto+")",
				"SELECT "+backend.CopyFrom,
				"FROM "+given(&insert),
				"INNER JOIN "+d.table.Done+" AS t WITH (FORCESEEK, ROWLOCK) ON t.id = g.id AND t.message_id = g.message_id AND t.sinks = g.sinks "+binary,
				"ORDER BY t.id",
				"OPTION (FORCE ORDER, LOOP JOIN)")); err != nil {
				return err
			}
			if copies, err = backend.ReadPlaces(ctx, tx, find.query(
				"SELECT t.lane, t.id FROM "+d.table.Hot+" AS t WHERE t.id > "+find.add(before),
				"    AND t.message_id IN (SELECT g.copy_id FROM "+given(&find)+")")); err != nil {
				return err
			}
		}
		return backend.SetReplay(ctx, tx, d.sql, change, len(copies))
	})
	return copies, err
}

// CountPending implements [backend.Backend].
func (d *SQLServer) CountPending(ctx context.Context, rows []storage.RowID) (count int, err error) {
	return count, backend.One(ctx, d.db, backend.PendingAmong(d.table.Hot, rows), &count)
}
