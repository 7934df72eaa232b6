package postgres

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// LastID implements [backend.Pages].
func (p *Postgres) LastID(ctx context.Context) (last int64, err error) {
	err = backend.One(ctx, p.db, p.sql.Query("last id"), &last)
	return last, err
}

// FirstLine implements [backend.Pages].
func (p *Postgres) FirstLine(ctx context.Context) (backend.FirstLine, error) {
	return backend.ReadFirstLine(ctx, p.db, p.sql.Query("first line"))
}

// Read implements [backend.Pages].
func (p *Postgres) Read(ctx context.Context, page backend.Read, take func(relay.Row) (bool, error)) (backend.FirstLine, error) {
	line, known, err := backend.ReadPage(ctx, p.db, p.reader, p.page(page), take)
	if !known {
		p.reader = nil
	}
	return line, err
}

// page begins with a line about its snapshot and the server's epoch.
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
	from := p.ranges(&a, page.Positions, "*", "", share) + " LIMIT " + a.int(page.Limit)
	if page.MaxBytes <= 0 {
		from = "FROM (SELECT t.* " + from + ") AS t WHERE true"
	} else { // cut off what comes after the row that crosses the bound
		size := p.sql.Text("size")
		from = "FROM (SELECT t.*, sum(" + size + ") OVER (ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
			"\nFROM (SELECT t.* " + from + ") AS t) AS t WHERE bytes_before < " + a.int(page.MaxBytes)
	}
	return a.query(
		"SELECT concat_ws(' ', "+p.sql.Text("given")+", 0, "+xid+", pg_current_snapshot(), "+p.sql.Text("server epoch")+"),",
		"    "+p.sql.Text("no row"),
		"UNION ALL",
		"SELECT NULL, "+p.sql.Text("hot row"),
		from+" AND "+p.planNow(&a))
}

// ranges is a FROM of one range of the key's index, as t, after the other. A
// comparison of whole keys, rather than of a lane and of an id, makes the planner
// expect many rows, so that it takes the order from the index; see "dear" in
// postgres.sql.
func (p *Postgres) ranges(a *args, positions []relay.Position, columns, where string, limit int) string {
	names := "lane, after, until"
	arrays := a.add(intArray(positions, func(at *relay.Position) int64 { return int64(at.Lane) }), "smallint[]") +
		", " + a.add(intArray(positions, func(at *relay.Position) int64 { return at.After }), "bigint[]") +
		", " + a.add(intArray(positions, func(at *relay.Position) int64 { return at.Until }), "bigint[]")
	if len(positions) > 0 && positions[0].Key != "" {
		names += ", key"
		arrays += ", " + a.add(textArray(positions, func(at *relay.Position) string { return at.Key }), "text[]")
		where += " AND h.message_key = p.key"
	}
	return "FROM unnest(" + arrays + ") AS p (" + names + ")" +
		"\nCROSS JOIN LATERAL (SELECT " + columns + " FROM " + p.table.Hot() + " AS h" +
		"\n    WHERE (h.lane, h.id) > (p.lane, COALESCE(p.after, (p.lane::text @@ ANY ('" + words + "'::text[]))::int)) AND (h.lane, h.id) <= (p.lane, p.until)" + where +
		"\n    ORDER BY h.lane, h.id LIMIT " + a.int(limit) + ") AS t"
}

// planNow keeps the server from planning a statement once for all; see "never" in
// postgres.sql.
func (p *Postgres) planNow(a *args) string {
	return "(" + a.add(true, "boolean") + " OR " + p.sql.Text("never") + ")"
}

// Candidates implements [backend.Pages].
func (p *Postgres) Candidates(ctx context.Context, positions []relay.Position, except []string, limit int, take func(relay.Candidate) (bool, error)) error {
	var a args
	where := ""
	if len(except) > 0 {
		where = " AND h.topic <> ALL (" + a.texts(except) + ")"
	}
	columns := "h.id, h.lane, h.topic, h.message_key, COALESCE(octet_length(h.payload), octet_length(h.payload_text), 0) AS bytes"
	query := a.query(
		"SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, ''), t.bytes",
		p.ranges(&a, positions, columns, where, limit),
		"WHERE "+p.planNow(&a)+" LIMIT "+a.int(limit))
	return backend.ReadCandidates(ctx, p.db, query, take)
}

// Pick implements [backend.Pages].
func (p *Postgres) Pick(ctx context.Context, rows []relay.RowID, held bool) ([]relay.Row, error) {
	name := "pick"
	if held {
		name = "pick held"
	}
	found, err := backend.ReadRows(ctx, p.db, p.sql.Query(name,
		intArray(rows, func(row *relay.RowID) int64 { return int64(row.Lane) }),
		intArray(rows, func(row *relay.RowID) int64 { return row.ID }), true))
	for i := range found {
		found[i].Held = held
	}
	return found, err
}

// Due implements [backend.Pages].
func (p *Postgres) Due(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) ([]relay.Row, error) {
	query := p.sql.Query("due", laneArray(lanes), timestamp(after.At), after.ID, int64(limit), int64(max(1, maxBytes)), true)
	return backend.ReadHeld(ctx, p.db, query, maxBytes)
}

// HeldKeys implements [backend.Pages].
func (p *Postgres) HeldKeys(ctx context.Context, lanes []int, limit int) ([]relay.HeldKey, error) {
	return backend.HeldKeys(ctx, p.db, p.sql.Query("held keys", laneArray(lanes), int64(limit), true))
}

// HeldAmong implements [backend.Pages].
func (p *Postgres) HeldAmong(ctx context.Context, keys []relay.LaneKey) ([]relay.HeldKey, error) {
	return backend.HeldKeys(ctx, p.db, p.sql.Query("held among",
		intArray(keys, func(key *relay.LaneKey) int64 { return int64(key.Lane) }),
		textArray(keys, func(key *relay.LaneKey) string { return key.Key }), true))
}

// timestamp is the form of times in arguments. The zero time is before all others.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.999999+00") }
