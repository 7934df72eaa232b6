package oracle

import (
	"context"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// BeginLanes implements [backend.Backend].
func (d *Oracle) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	return d.Read(ctx, backend.Read{}, nil)
}

// Read implements [backend.Backend].
func (d *Oracle) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, d.db, nil, d.page(page), take)
	return line, err
}

// page puts everything in order once it has chosen the rows, of which there are
// few then.
func (d *Oracle) page(read backend.Read) backend.Query {
	share := read.Limit
	if read.Share > 0 {
		share = min(share, read.Share)
	}
	var a args
	rows := d.upTo(&a, "SELECT t.*, p.place FROM ("+d.ranges(&a, read.Positions, read.Limit, share)+") p\n    JOIN "+d.table.Hot+" t ON t.ROWID = p.rid",
		"t.place, t.id", read.MaxBytes)
	const columns = "id, lane, message_id, topic, message_key, payload, payload_text, headers, available_at, priority, attempts, crashes, created_at"
	return a.query(
		d.sql.Text("as bytes"),
		"SELECT t.line, "+d.sql.Text("hot row"),
		ordered("SELECT -1 AS place, "+d.sql.Text("given")+" || ' 0 0 0 ' || "+d.sql.Text("server")+" AS line,"+
			"\n    "+d.sql.Text("no row")+" FROM dual"+
			"\nUNION ALL"+
			"\nSELECT t.place, NULL, "+backend.Of("t", columns)+"\n"+rows,
			"place, id", ""))
}

// ordered is a FROM of rows, as t, that are in order before what is selected
// of them is computed: the count of rows keeps the two apart. What as_bytes
// returns shall not wait in a sort.
func ordered(rows, order, where string) string {
	return "FROM (SELECT r.*, ROWNUM AS n FROM (\n" + rows + "\nORDER BY " + order + ") r" + where + ") t"
}

// ranges selects the place and rowid of one range of the index after the other.
// Each is cut off where it has its share, and all where they have the limit: a
// count of rows stops what is under it.
func (d *Oracle) ranges(a *args, positions []storage.Position, limit, share int) string {
	if len(positions) == 0 {
		return "SELECT 0 AS place, h.ROWID AS rid FROM " + d.table.Hot + " h WHERE 1 = 0"
	}
	parts := make([]string, len(positions))
	for i, p := range positions {
		parts[i] = "SELECT " + strconv.Itoa(i) + " AS place, rid FROM (SELECT /*+ INDEX_ASC(h " + d.table.IndexName("lane_id") + ") */ h.ROWID AS rid FROM " + d.table.Hot + " h" +
			" WHERE h.lane = " + a.Add(int64(p.Lane)) + " AND h.id > " + a.Add(p.After) + " AND h.id <= " + a.Add(p.Until)
		if p.Key != "" {
			parts[i] += " AND " + same("h.message_key", a.Add(p.Key))
		}
		parts[i] += " ORDER BY h.id) WHERE ROWNUM <= " + a.Add(int64(share))
	}
	return "\n    SELECT place, rid FROM (\n    " + strings.Join(parts, "\n    UNION ALL\n    ") + "\n    ) WHERE ROWNUM <= " + a.Add(int64(limit))
}

// upTo cuts off what comes after the row that crosses the bound.
func (d *Oracle) upTo(a *args, rows, order string, maxBytes int) string {
	if maxBytes <= 0 {
		return "FROM (" + rows + ") t"
	}
	size := d.sql.Text("size")
	return "FROM (SELECT t.*, SUM(" + size + ") OVER (ORDER BY " + order + " ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
		"\nFROM (" + rows + ") t) t WHERE t.bytes_before < " + a.Add(int64(maxBytes))
}

// Candidates implements [backend.Backend].
func (d *Oracle) Candidates(ctx context.Context, positions []storage.Position, _ []string, limit int, take func(storage.Candidate) (bool, error)) error {
	var a args
	return backend.ReadCandidates(ctx, d.db, a.query("SELECT t.id, t.lane, t.topic, t.message_key, "+d.sql.Text("size"),
		"FROM ("+d.ranges(&a, positions, limit, limit)+") p",
		"JOIN "+d.table.Hot+" t ON t.ROWID = p.rid ORDER BY p.place, t.id"), take)
}

// Pick implements [backend.Backend].
func (d *Oracle) Pick(ctx context.Context, rows []storage.RowID, held bool) ([]storage.Row, error) {
	columns, from := d.sql.Text("hot row"), d.table.Hot+" t ON t.id = g.id AND t.lane = g.lane"
	if held {
		columns, from = d.sql.Text("held row"), d.table.Held+" t ON t.id = g.id AND t.lane = g.lane AND t.state <> 'error'"
	}
	var a args
	places := backend.Column(rows, func(row *storage.RowID) []int64 { return []int64{int64(row.Lane), row.ID} })
	return backend.ReadRows(ctx, d.db, a.query(
		d.sql.Text("as bytes"),
		"SELECT "+columns,
		"FROM "+given(&a, places, "lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]'"),
		"JOIN "+from))
}

// Due implements [backend.Backend].
func (d *Oracle) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, error) {
	var a args
	dueAt, dueID := d.sql.Text("due at"), d.sql.Text("due id")
	rows := "SELECT * FROM (SELECT t.* FROM " + d.table.Held + " t" +
		"\n    WHERE " + dueAt + " <= " + now + " AND t.lane IN " + list(&a, lanes) +
		"\n        AND " + dueAt + " >= " + a.timestamp(after.At) + " AND (" + dueAt + " > " + a.timestamp(after.At) + " OR " + dueID + " > " + a.Add(after.ID) + ")" +
		"\n    ORDER BY " + dueAt + ", " + dueID + ") WHERE ROWNUM <= " + a.Add(int64(limit))
	return backend.ReadHeld(ctx, d.db, a.query(
		d.sql.Text("as bytes"),
		"SELECT "+d.sql.Text("held row"),
		ordered("SELECT t.* "+d.upTo(&a, rows, dueAt+", "+dueID, maxBytes), dueAt+", "+dueID, "")), maxBytes)
}

// BlockedKeys implements [backend.Backend]. It finds the rows by the index's own columns.
func (d *Oracle) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	var a args
	return backend.BlockedKeys(ctx, d.db, a.query(
		"SELECT t.lane, t.message_key, t.topic, t.id FROM "+d.table.Held+" t",
		"WHERE CASE WHEN t.state = 'retry' THEN t.lane END IN "+list(&a, lanes)+" AND t.message_key IS NOT NULL AND ROWNUM <= "+a.Add(int64(limit))))
}

// BlockedAmong implements [backend.Backend].
func (d *Oracle) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	var a args
	items := backend.Column(keys, func(key *storage.LaneKey) []any { return []any{key.Lane, key.Key} })
	return backend.BlockedKeys(ctx, d.db, a.query(
		"SELECT /*+ LEADING(g) USE_NL(t) INDEX(t "+d.table.IndexName("held_retry")+") */ t.lane, MIN(t.message_key), MIN(t.topic), MIN(t.id)",
		"FROM "+given(&a, items, "lane NUMBER PATH '$[0]', message_key VARCHAR2(255) PATH '$[1]'"),
		"JOIN "+d.table.Held+" t ON CASE WHEN t.state = 'retry' THEN t.lane END = g.lane AND "+same("CASE WHEN t.state = 'retry' THEN t.message_key END", "g.message_key"),
		"GROUP BY t.lane, "+bytes("t.message_key")+", "+bytes("t.topic")))
}
