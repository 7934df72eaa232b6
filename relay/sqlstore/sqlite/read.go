package sqlite

import (
	"context"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// BeginLanes implements [backend.Backend].
func (s *SQLite) BeginLanes(ctx context.Context) (backend.FirstLine, error) {
	return s.Read(ctx, backend.Read{}, nil)
}

// Read implements [backend.Backend].
func (s *SQLite) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, s.db, nil, s.page(page), take)
	return line, err
}

// page leaves the bytes to its caller, who stops taking rows: each is made when it is
// asked for.
func (s *SQLite) page(page backend.Read) backend.Query {
	first := s.sql.Query("first line")
	if len(page.Positions) == 0 {
		return first
	}
	walk, args := s.walk(page.Positions)
	return backend.Query{
		SQL:  first.SQL + "\nUNION ALL\nSELECT * FROM (SELECT NULL, " + s.sql.Text("hot row") + "\n" + walk + " LIMIT ?)",
		Args: append(args, int64(page.Limit)),
	}
}

// Candidates implements [backend.Backend].
func (s *SQLite) Candidates(ctx context.Context, positions []storage.Position, except []string, limit int, take func(storage.Candidate) (bool, error)) error {
	if len(positions) == 0 {
		return nil
	}
	walk, args := s.walk(positions, except...)
	return backend.ReadCandidates(ctx, s.db, backend.Query{
		SQL: "SELECT t.id, t.lane, t.topic, coalesce(t.message_key, ''), coalesce(length(t.payload), octet_length(t.payload_text), 0)" +
			"\n" + walk + " LIMIT ?",
		Args: append(args, int64(limit)),
	}, take)
}

// walk is a FROM of the rows at positions, as t: along the ids, or, of keys, which are
// rare, along one range of the index after the other. CROSS JOIN keeps the order of the
// positions.
func (s *SQLite) walk(positions []storage.Position, except ...string) (from string, args []any) {
	if positions[0].Key != "" {
		places := bind.JSON(backend.Column(positions, func(p *storage.Position) []any { return []any{p.Lane, p.After, p.Until, p.Key} }))
		return "FROM json_each(?) AS j CROSS JOIN " + s.table.Hot + " AS t INDEXED BY " + s.table.IndexName("lane_id") +
			"\nWHERE t.lane = json_extract(j.value, '$[0]') AND t.id > json_extract(j.value, '$[1]') AND t.id <= json_extract(j.value, '$[2]')" +
			" AND t.message_key = json_extract(j.value, '$[3]')", []any{places}
	}
	whole := backend.Whole(positions)
	where, args := "t.id > ? AND t.id <= ? AND "+backend.WithinWhole(positions), []any{whole.After, whole.Until}
	if len(except) > 0 {
		where, args = where+" AND t.topic NOT IN (SELECT value FROM json_each(?))", append(args, bind.JSON(except))
	}
	return "FROM " + s.table.Hot + byID + "\nWHERE " + where + "\nORDER BY t.id", args
}

// byID keeps off all indexes but that of ids: with statistics of a table that was empty
// all of it would be read, along some index.
const byID = " AS t NOT INDEXED"

// Pick implements [backend.Backend].
func (s *SQLite) Pick(ctx context.Context, rows []storage.RowID, held bool) ([]storage.Row, error) {
	name := "pick"
	if held {
		name = "pick held"
	}
	places := bind.JSON(backend.Column(rows, func(row *storage.RowID) [2]int64 { return [2]int64{int64(row.Lane), row.ID} }))
	return backend.ReadRows(ctx, s.db, s.sql.Query(name, places))
}

// Due implements [backend.Backend].
func (s *SQLite) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, error) {
	query := s.sql.Query("due", bind.JSON(lanes), after.At.UTC().Format(timeFormat), after.ID, int64(limit))
	return backend.ReadHeld(ctx, s.db, query, maxBytes)
}

// BlockedKeys implements [backend.Backend].
func (s *SQLite) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	return backend.BlockedKeys(ctx, s.db, s.sql.Query("held keys", bind.JSON(lanes), int64(limit)))
}

// BlockedAmong implements [backend.Backend].
func (s *SQLite) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	names := bind.JSON(backend.Column(keys, func(key *storage.LaneKey) []any { return []any{key.Lane, key.Key} }))
	return backend.BlockedKeys(ctx, s.db, s.sql.Query("held among", names))
}
