package sqlserver

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered implements [backend.Backend]. It reads the rows in the order of the clustered index.
func (d *SQLServer) Delivered(ctx context.Context, filter backend.Filter, untilID int64) ([]backend.DeliveredRow, error) {
	var a args
	return backend.ReadDelivered(ctx, d.db, a.query(
		"SELECT TOP ("+a.add(int64(filter.Limit))+") t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, t.headers, t.sinks",
		"FROM "+d.table.Done+" AS t WHERE "+conditions(&a, filter, false)+" AND t.id <= "+a.add(untilID)+" ORDER BY t.id"))
}

// LastDelivered implements [backend.Backend].
func (d *SQLServer) LastDelivered(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var a args
	return backend.ReadLastDelivered(ctx, d.db, a.query(
		"SELECT TOP ("+a.add(int64(filter.Limit))+") t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, t.message_key, t.sinks, t.attempts,"+
			" TODATETIMEOFFSET(t.created_at, '+00:00'), TODATETIMEOFFSET(t.finished_at, '+00:00')",
		"FROM "+d.table.Done+" AS t WITH (INDEX("+d.table.IndexName("done_finished")+")) WHERE "+conditions(&a, filter, false)+" ORDER BY t.finished_at DESC"))
}

// ChangeReplay implements [backend.Backend]. ORDER BY makes the server assign ids in the order of
// the rows. ChangeReplay finds the copies by their message ids, among the rows with ids above the
// last id that existed before the INSERT.
func (d *SQLServer) ChangeReplay(ctx context.Context, change backend.ReplayChange) ([]storage.RowID, error) {
	items := backend.Column(change.Copies, func(s *storage.Settlement) []any {
		return []any{s.ID, s.MessageID, s.Sinks, s.DeadLetter.MessageID, s.DeadLetter.Topic, bind.Nullable(s.DeadLetter.Headers), s.DeadLetter.Sinks}
	})
	given := func(a *args) string {
		return "OPENJSON(" + a.add(dialect.SQLServerList(items)) + ") WITH (id bigint '$[0]', message_id uniqueidentifier '$[1]', sinks nvarchar(400) '$[2]'," +
			" copy_id uniqueidentifier '$[3]', copy_topic nvarchar(255) '$[4]', copy_headers nvarchar(max) '$[5]', copy_sinks nvarchar(400) '$[6]') AS g"
	}
	return backend.WriteReplay(ctx, d.inTx, d.sql, change, func(tx *sql.Tx) (copies []storage.RowID, written int, err error) {
		var before int64
		if err := backend.One(ctx, tx, d.sql.Query("last id"), &before); err != nil {
			return nil, 0, err
		}
		var insert, find args
		written, err = backend.Exec(ctx, tx, insert.query(
			"INSERT INTO "+d.table.Pending+" ("+backend.CopyInto+")",
			"SELECT "+backend.CopyFrom("SYSUTCDATETIME()"),
			"FROM "+given(&insert),
			"INNER JOIN "+d.table.Done+" AS t WITH (FORCESEEK, ROWLOCK) ON t.id = g.id AND t.message_id = g.message_id AND t.sinks = g.sinks "+binary,
			"ORDER BY t.id",
			"OPTION (FORCE ORDER, LOOP JOIN)"))
		if err != nil {
			return nil, 0, err
		}
		copies, err = backend.ReadPlaces(ctx, tx, find.query(
			"SELECT t.lane, t.id FROM "+d.table.Pending+" AS t WHERE t.id > "+find.add(before),
			"    AND t.message_id IN (SELECT g.copy_id FROM "+given(&find)+")"))
		return copies, written, err
	})
}
