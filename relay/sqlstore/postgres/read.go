package postgres

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Read implements [backend.Backend].
func (p *Postgres) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	if len(page.Positions) == 0 {
		return backend.ReadFirstLine(ctx, p.db, p.sql.Query("first line"))
	}
	line, known, err := backend.ReadPage(ctx, p.db, p.reader, p.page(page), take)
	if !known {
		p.reader = nil
	}
	return line, err
}

// page begins with a line about its snapshot and the server's epoch. Then come the rows,
// up to the one that crosses the bound of bytes.
func (p *Postgres) page(page backend.Read) backend.Query {
	var a args
	xid := "0"
	if page.Number {
		xid = "pg_current_xact_id()"
	}
	share := page.Limit
	if page.Share > 0 {
		share = min(share, page.Share)
	}
	from := p.ranges(&a, page.Positions, "*", "", share) + " LIMIT " + a.add(int64(page.Limit), "bigint")
	if page.MaxBytes <= 0 {
		from = "FROM (SELECT t.* " + from + ") AS t WHERE true"
	} else {
		size := p.sql.Text("size")
		from = "FROM (SELECT t.*, sum(" + size + ") OVER (ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
			"\nFROM (SELECT t.* " + from + ") AS t) AS t WHERE bytes_before < " + a.add(int64(page.MaxBytes), "bigint")
	}
	return a.query("SELECT concat_ws(' ', " + p.sql.Text("given") + ", 0, " + xid + ", pg_current_snapshot(), " + p.sql.Text("server epoch") + ")," +
		"\n    " + p.sql.Text("no row") +
		"\nUNION ALL" +
		"\nSELECT NULL, " + p.sql.Text("hot row") +
		"\n" + from + " AND " + p.planNow(&a))
}

// ranges is a FROM of one range of the key's index, as t, after the other, in the
// index's order; see "dear" in postgres.sql. The bounds compare columns, not whole keys:
// up to PostgreSQL 17 a key's upper bound ends a range only where the lane ends.
func (p *Postgres) ranges(a *args, positions []storage.Position, columns, where string, limit int) string {
	names, arrays := []string{"lane", "after", "until"}, []string{
		a.add(bind.PostgresArray(backend.Column(positions, func(at *storage.Position) int { return at.Lane })), "smallint[]"),
		a.add(bind.PostgresArray(backend.Column(positions, func(at *storage.Position) int64 { return at.After })), "bigint[]"),
		a.add(bind.PostgresArray(backend.Column(positions, func(at *storage.Position) int64 { return at.Until })), "bigint[]"),
	}
	if len(positions) > 0 && positions[0].Key != "" {
		names = append(names, "key")
		arrays = append(arrays, a.add(bind.PostgresArray(backend.Column(positions, func(at *storage.Position) string { return at.Key })), "text[]"))
		where += " AND h.message_key = p.key"
	}
	return "FROM unnest(" + strings.Join(arrays, ", ") + ") AS p (" + strings.Join(names, ", ") + ")" +
		"\nCROSS JOIN LATERAL (SELECT " + columns + " FROM " + p.table.Hot + " AS h" +
		"\n    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('" + words + "'::text[]))::int) AND h.id <= p.until" + where +
		"\n    ORDER BY h.lane, h.id LIMIT " + a.add(int64(limit), "bigint") + ") AS t"
}

// planNow keeps the server from planning a statement once for all; see "never" in
// postgres.sql.
func (p *Postgres) planNow(a *args) string {
	return "(" + a.add(true, "boolean") + " OR " + p.sql.Text("never") + ")"
}

// Candidates implements [backend.Backend].
func (p *Postgres) Candidates(ctx context.Context, positions []storage.Position, except []string, limit int, take func(storage.Candidate) (bool, error)) error {
	var a args
	where := ""
	if len(except) > 0 {
		where = " AND h.topic <> ALL (" + a.add(bind.PostgresArray(except), "text[]") + ")"
	}
	columns := "h.id, h.lane, h.topic, h.message_key, COALESCE(octet_length(h.payload), octet_length(h.payload_text), 0) AS bytes"
	query := "SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, ''), t.bytes" +
		"\n" + p.ranges(&a, positions, columns, where, limit) +
		"\nWHERE " + p.planNow(&a) + " LIMIT " + a.add(int64(limit), "bigint")
	return backend.ReadCandidates(ctx, p.db, a.query(query), take)
}

// Pick implements [backend.Backend].
func (p *Postgres) Pick(ctx context.Context, rows []storage.RowID, held bool) ([]storage.Row, error) {
	name := "pick"
	if held {
		name = "pick held"
	}
	return backend.ReadRows(ctx, p.db, p.sql.Query(name,
		bind.PostgresArray(backend.Column(rows, func(row *storage.RowID) int { return row.Lane })),
		bind.PostgresArray(backend.Column(rows, func(row *storage.RowID) int64 { return row.ID })), true))
}

// Due implements [backend.Backend].
func (p *Postgres) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, error) {
	query := p.sql.Query("due", bind.PostgresArray(lanes), timestamp(after.At), after.ID, int64(limit), int64(max(1, maxBytes)), true)
	return backend.ReadHeld(ctx, p.db, query, maxBytes)
}

// BlockedKeys implements [backend.Backend].
func (p *Postgres) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	return backend.BlockedKeys(ctx, p.db, p.sql.Query("held keys", bind.PostgresArray(lanes), int64(limit), true))
}

// BlockedAmong implements [backend.Backend].
func (p *Postgres) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	return backend.BlockedKeys(ctx, p.db, p.sql.Query("held among",
		bind.PostgresArray(backend.Column(keys, func(key *storage.LaneKey) int { return key.Lane })),
		bind.PostgresArray(backend.Column(keys, func(key *storage.LaneKey) string { return key.Key })), true))
}
