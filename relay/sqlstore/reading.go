package sqlstore

import (
	"errors"
	"math"
	"slices"

	"github.com/rowrelay/rowrelay/relay"
)

// reading collects rows up to its bounds.
type reading struct {
	rows            []relay.Row
	limit, maxBytes int
	bytes           int
	expected        int  // rows, about
	share           int  // rows of one position; 0: no bound
	asked           int  // rows, those before included, that the database was asked for
	visited         int  // positions of the whole page
	bounded         bool // positions were read up to an id
	leftOut         bool // there may be more, as positions were read up to a share
	byID            bool // the rows come in the order of ids
	through         int64

	positions []relay.Position
	at        int   // the position of the last row
	after     int64 // the last row there
	count     int   // rows there
}

// cut says that the statement may have had more rows.
func (r *reading) cut() bool { return r.full() || len(r.rows) >= r.asked }

func (r *reading) full() bool { return len(r.rows) >= r.limit || r.bytes >= r.maxBytes }

var errOrder = errors.New("the rows came out of order; please report this with the database's version")

// take relies on the order that the statement's plan has: rows in between that
// come later would be passed over. So it makes sure.
func (r *reading) take(row relay.Row) (more bool, err error) {
	if !r.follows(row) {
		return false, errOrder
	}
	if r.full() {
		return false, nil
	}
	r.after, r.count = row.ID, r.count+1
	r.leftOut = r.leftOut || r.count == r.share
	if r.rows == nil {
		r.rows = make([]relay.Row, 0, r.expected)
	}
	r.rows = append(r.rows, row)
	r.bytes += len(row.Message.Payload)
	return !r.full(), nil
}

// follows moves on to the row's position.
func (r *reading) follows(row relay.Row) bool {
	if r.byID {
		return slices.ContainsFunc(r.positions, func(p relay.Position) bool { return within(p, r.after, row) })
	}
	for r.at < len(r.positions) && !within(r.positions[r.at], r.after, row) {
		r.at, r.after, r.count = r.at+1, 0, 0
	}
	return r.at < len(r.positions)
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
