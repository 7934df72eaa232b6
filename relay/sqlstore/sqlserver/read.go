package sqlserver

import (
	"context"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// BeginLanes implements [backend.Backend].
func (d *SQLServer) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	return d.Read(ctx, backend.Read{}, nil)
}

// Read implements [backend.Backend].
func (d *SQLServer) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, d.db, nil, d.page(page), take)
	return line, err
}

// page says in its order what it relies on: without ORDER BY a join may return
// rows as their pages come from the disk. It cuts off what comes after the row that crosses
// the bound of bytes.
func (d *SQLServer) page(read backend.Read) backend.Query {
	share := read.Limit
	if read.Share > 0 {
		share = min(share, read.Share)
	}
	a := args{positionList(read.Positions)}
	rows := "(" + d.ranges(&a, read.Positions, "*", share, read.Limit) + ") AS t"
	if read.MaxBytes > 0 {
		size := d.sql.Text("size")
		rows = "(SELECT t.*, SUM(" + size + ") OVER (ORDER BY t.n, t.id ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
			"\nFROM " + rows + ") AS t WHERE t.bytes_before < " + a.add(int64(read.MaxBytes))
	}
	return a.query(
		d.sql.Text("positions"),
		d.sql.Text("first line"),
		d.sql.Text("at one moment"),
		"SELECT line, id, lane, message_id, topic, message_key, payload, headers, available_at, priority, attempts, crashes, created_at, flags FROM (",
		"SELECT @first AS line, -1 AS n, "+d.sql.Text("no row"),
		"UNION ALL",
		"SELECT NULL, t.n, "+d.sql.Text("hot row"),
		"FROM "+rows,
		") AS page ORDER BY n, id;",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
}

// positionList is the argument of "positions".
func positionList(positions []storage.Position) string {
	items := make([][]any, len(positions))
	for i, p := range positions {
		items[i] = []any{i, p.Lane, p.After, p.Until, backend.Nullable(p.Key)}
	}
	return bind.SQLServerList(items)
}

// ranges selects rows from one range of the key after the other. Blanks
// at the end of a key don't count for =. A seek is forced but beside a condition on
// the key, from which the lane is computed: there the optimizer may write the lane out,
// simplify it, and find no such plan any more (error 8622).
func (d *SQLServer) ranges(a *args, positions []storage.Position, columns string, share, limit int) string {
	hint, key := "FORCESEEK", ""
	if len(positions) > 0 && positions[0].Key != "" {
		hint, key = "INDEX(1)", " AND h.message_key = p.message_key AND DATALENGTH(h.message_key) = DATALENGTH(p.message_key)"
	}
	return "SELECT TOP (" + a.add(int64(limit)) + ") p.n, h.* FROM @positions AS p" +
		"\nCROSS APPLY (SELECT TOP (" + a.add(int64(share)) + ") " + columns + " FROM " + d.table.Hot + " AS h WITH (" + hint + ")" +
		"\n    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until" + key + " ORDER BY h.id) AS h ORDER BY p.n, h.id"
}

// Candidates implements [backend.Backend].
func (d *SQLServer) Candidates(ctx context.Context, positions []storage.Position, _ []string, limit int, take func(storage.Candidate) (bool, error)) error {
	a := args{positionList(positions)}
	columns := "h.id, h.lane, h.topic, h.message_key, COALESCE(DATALENGTH(h.payload), DATALENGTH(h.payload_text), 0) AS bytes"
	return backend.ReadCandidates(ctx, d.db, a.query(
		d.sql.Text("positions"),
		d.sql.Text("at one moment"),
		"SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, N''), t.bytes",
		"FROM ("+d.ranges(&a, positions, columns, limit, limit)+") AS t ORDER BY t.n, t.id;",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED"), take)
}

// Pick implements [backend.Backend].
func (d *SQLServer) Pick(ctx context.Context, rows []storage.RowID, held bool) ([]storage.Row, error) {
	name := "pick"
	if held {
		name = "pick held"
	}
	places := bind.SQLServerList(backend.Column(rows, func(row *storage.RowID) [2]int64 { return [2]int64{int64(row.Lane), row.ID} }))
	return backend.ReadRows(ctx, d.db, d.sql.Query(name, places))
}

// Due implements [backend.Backend].
func (d *SQLServer) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, error) {
	query := d.sql.Query("due", timestamp(after.At), int64(limit), bind.SQLServerList(lanes), after.ID, int64(max(1, maxBytes)))
	return backend.ReadHeld(ctx, d.db, query, maxBytes)
}

// BlockedKeys implements [backend.Backend].
func (d *SQLServer) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	return backend.BlockedKeys(ctx, d.db, d.sql.Query("held keys", int64(limit), bind.SQLServerList(lanes)))
}

// BlockedAmong implements [backend.Backend].
func (d *SQLServer) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	items := make([][]any, len(keys))
	for i, key := range keys {
		items[i] = []any{i, key.Lane, key.Key}
	}
	return backend.BlockedKeys(ctx, d.db, d.sql.Query("held among", bind.SQLServerList(items)))
}
