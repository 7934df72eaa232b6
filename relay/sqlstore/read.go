package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

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
	began := s.horizon.before()
	var first string
	for i, run := range runs(positions) {
		// What a later statement sees beyond the first one's snapshot is told
		// as late by the next read.
		line, err := s.readRun(ctx, run, &reading, i == 0)
		if err != nil {
			return relay.Page{}, err
		}
		if i == 0 {
			first = line
		}
		if reading.full() {
			break
		}
	}
	late, horizon, err := s.promise(first, began)
	if err != nil {
		return relay.Page{}, err
	}
	s.rowSize = reading.rowSize()
	return relay.Page{Rows: reading.rows, More: reading.full(), LateAfter: late, Horizon: horizon}, nil
}

// promise asks the horizon about the first line of a read. Where there is one
// writer at a time there is no snapshot: ids are committed in their order.
func (s *Store) promise(first string, began token) (lateAfter, final int64, err error) {
	words := strings.Fields(first)
	if len(words) != 1 && len(words) != 4 {
		return 0, 0, fmt.Errorf("the first line is %q", first)
	}
	given, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil || len(words) == 1 {
		return -1, given, err
	}
	xid, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	snapshot, err := parseSnapshot(words[2])
	if err != nil {
		return 0, 0, err
	}
	lateAfter, final = s.horizon.read(words[3], snapshot, given)
	s.wrote(xid, began)
	return lateAfter, final, nil
}

// readRun reads at positions that can be read by one statement. If ids were
// given out of which no transaction of ours knows, it takes a number itself, so
// that the horizon follows also while nothing is settled.
func (s *Store) readRun(ctx context.Context, positions []relay.Position, into *reading, number bool) (first string, err error) {
	into.positions, into.at, into.after = positions, 0, 0
	limit, maxBytes := into.left(s.rowSize)
	query := s.dialect.Read(s.table, toDialect(positions), limit, maxBytes, number && s.horizon.stale())
	var scan rowScan
	var line sql.NullString
	before := []any{&line}
	err = each(ctx, s.db, query, func(rows *sql.Rows) (bool, error) {
		if err := scan.scan(rows, before, nil); err != nil {
			return false, err
		}
		if line.Valid {
			first = line.String
			return true, nil
		}
		return into.take(scan.row)
	})
	return first, err
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

// left is what may still be read. The database needn't count bytes if rows like
// those of the page before are far from the bound: what comes then is cut off
// here, at the cost of its way.
func (r *reading) left(rowSize int) (limit, maxBytes int) {
	limit, maxBytes = r.limit-len(r.rows), r.maxBytes-r.bytes
	if limit*max(rowSize, minRowSize) < maxBytes/4 {
		maxBytes = 0
	}
	return limit, maxBytes
}

// minRowSize is assumed of rows' payloads at least.
const minRowSize = 256

// rowSize is that of the average row; without one, it is expected to be large.
func (r *reading) rowSize() int {
	if len(r.rows) == 0 {
		return r.maxBytes
	}
	return r.bytes / len(r.rows)
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
