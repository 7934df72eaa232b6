package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// Read implements [relay.LaneStore]. The row that crosses maxBytes is still
// returned.
func (s *Store) Read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	var page relay.Page
	err := s.try(ctx, "read table", func() (err error) {
		page, err = s.read(ctx, positions, limit, maxBytes)
		return err
	})
	return page, err
}

func (s *Store) read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	reading := reading{limit: limit, maxBytes: maxBytes}
	var first *line
	for i, run := range runs(positions) {
		// What a later statement sees beyond the first one's snapshot is not
		// promised to anybody, and told as late by the next read.
		meta, err := s.readRun(ctx, run, &reading, i == 0)
		if err != nil {
			return relay.Page{}, err
		}
		if first == nil {
			first = &meta
		}
		if reading.full() {
			break
		}
	}
	late, horizon, err := s.promise(*first)
	if err != nil {
		return relay.Page{}, err
	}
	return relay.Page{Rows: reading.rows, More: reading.full(), LateAfter: late, Horizon: horizon}, nil
}

// line is the first line of a read.
type line struct {
	server, snapshot sql.NullString
	given, xid       sql.NullInt64
	began            token
}

// promise asks the horizon. Where there is one writer at a time there is no
// snapshot: ids are committed in their order.
func (s *Store) promise(meta line) (lateAfter, final int64, err error) {
	if meta.snapshot.String == "" {
		return -1, meta.given.Int64, nil
	}
	snapshot, err := parseSnapshot(meta.snapshot.String)
	if err != nil {
		return 0, 0, err
	}
	lateAfter, final = s.horizon.read(meta.server.String, snapshot, meta.given.Int64)
	s.wrote(uint64(meta.xid.Int64), meta.began)
	return lateAfter, final, nil
}

// readRun reads at positions that can be read by one statement. If ids were
// given out of which no transaction of ours knows, it takes a number itself, so
// that the horizon follows also while nothing is settled.
func (s *Store) readRun(ctx context.Context, positions []relay.Position, into *reading, number bool) (meta line, err error) {
	into.positions, into.at = positions, 0
	meta.began = s.horizon.before()
	query := s.dialect.Read(s.table, toDialect(positions), into.limit-len(into.rows), into.maxBytes-into.bytes, number && s.horizon.stale())
	var scan rowScan
	var other line
	before := []any{&meta.server, &meta.snapshot, &meta.given, &meta.xid}
	err = each(ctx, s.db, query, func(rows *sql.Rows) (bool, error) {
		if err := scan.scan(rows, before, nil); err != nil {
			return false, err
		}
		if meta.given.Valid && before[0] == &meta.server {
			before = []any{&other.server, &other.snapshot, &other.given, &other.xid}
			return true, nil
		}
		return into.take(scan.row)
	})
	if err == nil && !meta.given.Valid {
		err = errors.New("the first line is missing")
	}
	return meta, err
}

// reading collects rows up to its bounds.
type reading struct {
	rows            []relay.Row
	limit, maxBytes int
	bytes           int
	positions       []relay.Position
	at              int   // the position of the last row
	after           int64 // the last row there
}

func (r *reading) full() bool { return len(r.rows) >= r.limit || r.bytes >= r.maxBytes }

var errOrder = errors.New("the rows came out of order; please report this with the database's version")

// take relies on the order that the statement's plan has: rows in between that
// come later would be passed over. So it makes sure.
func (r *reading) take(row relay.Row) (more bool, err error) {
	for r.at < len(r.positions) && !within(r.positions[r.at], r.after, row) {
		r.at, r.after = r.at+1, 0
	}
	if r.at == len(r.positions) {
		return false, errOrder
	}
	if r.full() {
		return false, nil
	}
	r.after = row.ID
	r.rows = append(r.rows, row)
	r.bytes += len(row.Message.Payload)
	return !r.full(), nil
}

func within(p relay.Position, after int64, row relay.Row) bool {
	return p.Lane == row.Lane && row.ID > max(p.After, after) && row.ID <= until(p)
}

func until(p relay.Position) int64 {
	if p.Until == 0 {
		return math.MaxInt64
	}
	return p.Until
}

func toDialect(positions []relay.Position) []dialect.Position {
	converted := make([]dialect.Position, len(positions))
	for i, p := range positions {
		converted[i] = dialect.Position{Lane: p.Lane, After: p.After, Until: until(p), Key: p.Key}
	}
	return converted
}

// runs splits the positions where those with a key and those without follow
// each other. There is one run at least.
func runs(positions []relay.Position) [][]relay.Position {
	start := 0
	var found [][]relay.Position
	for i := range positions {
		if i > 0 && (positions[i].Key == "") != (positions[i-1].Key == "") {
			found = append(found, positions[start:i])
			start = i
		}
	}
	return append(found, positions[start:])
}
