package sqlstore

import (
	"math"
	"slices"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// pageSizer says how much each statement of a page is asked for, by what it has
// learned from the pages before.
//
// Each position gives an equal share, so that a page has rows that were written
// at about the same time, from all lanes. Mostly these lie together, and those of
// one lane far from each other; where it is the other way round, see [laneStrides].
type pageSizer struct {
	rowSize  int // bytes of the average row's payload in the last page
	pageSize int // rows of the last page

	// shareFactor is by how much a position's share may exceed its equal part.
	shareFactor int

	walk    backend.Walk
	strides laneStrides // of [backend.WalkByLane]
}

const (
	minRowSize    = 256     // is assumed of rows' payloads at least
	largeRowSize  = 1 << 20 // is assumed after a read that failed: it may have taken too long for its rows
	manyPositions = 8       // are worth sharing a page among
	minShare      = 16      // rows
)

// byID says that these positions are read in the order of ids, which all lanes share as
// they are.
func (p *pageSizer) byID(positions []storage.Position) bool {
	return p.walk == backend.WalkByID && len(positions) > 0 && positions[0].Key == ""
}

// ask makes the request for what is left to read.
//
// The database needn't count bytes if rows like those of the page before are
// far from the bound: rows beyond it are fetched in vain, and cut off here.
// Else it is asked for hardly more rows than will do, as some databases can't
// count bytes.
func (p *pageSizer) ask(positions []storage.Position, into *reading, number bool) backend.Read {
	into.positions, into.at, into.after, into.count = positions, 0, 0, 0
	into.byID = p.byID(positions)
	read := backend.Read{Positions: positions, Limit: into.limit - len(into.rows), MaxBytes: into.maxBytes - into.bytes, Number: number}
	if read.Limit*max(p.rowSize, minRowSize) < read.MaxBytes/4 {
		read.MaxBytes = 0
	} else if p.rowSize > 0 {
		read.Limit = min(read.Limit, 2*read.MaxBytes/p.rowSize+1)
	}
	into.asked = len(into.rows) + read.Limit
	if all := max(into.visited, len(positions)); all >= manyPositions && positions[0].Key == "" && !into.byID {
		read.Share = max(minShare, into.asked*max(1, p.shareFactor)/all)
	}
	into.share = read.Share
	if p.walk == backend.WalkByLane && read.Share > 0 {
		var more bool
		into.positions, more = p.strides.bounded(positions, read.Share)
		into.leftOut, read.Positions = into.leftOut || more, into.positions
	}
	return read
}

// learn widens the shares after a page that was far from full though there was
// more: some lanes are busier than others, or most ids are not this relay's.
func (p *pageSizer) learn(r *reading) {
	p.pageSize = len(r.rows)
	if len(r.rows) > 0 {
		p.rowSize = r.bytes / len(r.rows)
	}
	switch {
	case r.full():
		p.shareFactor = max(1, p.shareFactor/2)
	case r.leftOut && len(r.rows) < min(r.limit, r.asked)/2:
		p.shareFactor = min(max(1, p.shareFactor)*2, storage.Lanes)
	}
}

func (p *pageSizer) failed() { p.rowSize = max(p.rowSize, largeRowSize) }

// laneStrides give each lane its share of a page where the lanes are read one after the
// other (see [backend.WalkByLane]): a lane is read up to an id, which lies as far
// ahead as its last rows lay apart. So a page has rows of all lanes and of many
// keys. A lane whose end was reached has no bound, until a page has more than its
// share of it.
//
// The other way, a share of rows for each lane, takes a union of 64 selects: MySQL 9.7
// needs 4.6 µs a row of a page of 2,000 for that, and 1.8 for the walk; 2.8 ms for a
// look that finds nothing, and 0.4.
type laneStrides struct {
	lanes  [storage.Lanes]float64 // ids from one row to the next; atEnd; 0: not known
	common float64                // what was learned last, of any lane
}

var atEnd = math.Inf(1)

// bounded returns the positions with nearer ends, and says whether there may be
// more behind one of these.
func (s *laneStrides) bounded(positions []storage.Position, share int) (near []storage.Position, more bool) {
	near = slices.Clone(positions)
	for i, position := range positions {
		stride := s.lanes[position.Lane]
		if stride == 0 {
			stride = s.common
		}
		if far := stride * float64(share); stride > 0 && far < math.MaxInt64/2 && position.After+1+int64(far) < position.Until {
			near[i].Until, more = position.After+1+int64(far), true
		}
	}
	return near, more
}

// learn looks at what one statement brought, lane after lane.
func (s *laneStrides) learn(positions []storage.Position, rows []storage.Row, share int, cut bool) {
	for _, position := range positions {
		n := 0
		for n < len(rows) && rows[n].Lane == position.Lane {
			n++
		}
		stride := &s.lanes[position.Lane]
		switch {
		case n > max(1, share/2):
			*stride = float64(rows[n-1].ID-rows[0].ID) / float64(n-1)
			s.common = *stride
		case n > 0 && *stride > 0:
			*stride *= 2
		default:
			*stride = atEnd
		}
		if rows = rows[n:]; cut && len(rows) == 0 {
			return // this lane may have more, and the others weren't visited
		}
	}
}
