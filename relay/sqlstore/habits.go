package sqlstore

import (
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// habits are what a store has learned from the pages that it read.
type habits struct {
	rowSize  int // bytes of the average row's payload in the last page
	pageSize int // rows of the last page

	// spread is by how much a position's share may exceed its equal part.
	spread int

	paces *paces // in the place of shares, where lanes are walked; or nil
	byID  bool   // ids are walked, which are shared by all lanes as they are
}

// walkAs is how a database is read.
func (h *habits) walkAs(walk backend.Walk) {
	switch walk {
	case backend.WalkByID:
		h.byID = true
	case backend.WalkByLane:
		h.paces = &paces{}
	}
}

// walksIDs says that these positions are read in the order of ids.
func (h *habits) walksIDs(positions []relay.Position) bool {
	return h.byID && len(positions) > 0 && positions[0].Key == ""
}

// minRowSize is assumed of rows' payloads at least.
const minRowSize = 256

const (
	manyPositions = 8  // are worth sharing a page among
	minShare      = 16 // rows
)

// ask makes the request for what is left to read.
//
// Each position gives an equal share, so that a page has rows that were written
// at about the same time, from all lanes. Mostly these lie together, and those of
// one lane far from each other; where it is the other way round, see paces.
//
// The database needn't count bytes if rows like those of the page before are
// far from the bound: what comes then is cut off here, at the cost of its way.
// Else it is asked for hardly more rows than will do, as some databases can't
// count bytes.
func (h *habits) ask(positions []relay.Position, into *reading, number bool) backend.Read {
	into.positions, into.at, into.after, into.count = positions, 0, 0, 0
	into.byID = h.walksIDs(positions)
	read := backend.Read{Positions: bounded(positions), Limit: into.limit - len(into.rows), MaxBytes: into.maxBytes - into.bytes, Number: number}
	if read.Limit*max(h.rowSize, minRowSize) < read.MaxBytes/4 {
		read.MaxBytes = 0
	} else if h.rowSize > 0 {
		read.Limit = min(read.Limit, 2*read.MaxBytes/h.rowSize+1)
	}
	into.asked = len(into.rows) + read.Limit
	if all := max(into.visited, len(positions)); all >= manyPositions && positions[0].Key == "" && !into.byID {
		read.Share = max(minShare, into.asked*max(1, h.spread)/all)
	}
	into.share = read.Share
	if h.paces != nil && read.Share > 0 {
		into.positions, into.bounded = h.paces.bounded(positions, read.Share)
		read.Positions = bounded(into.positions)
	}
	return read
}

// largeRowSize is assumed after a read that failed: it may have taken too long for
// its rows.
const largeRowSize = 1 << 20

func (h *habits) failed() { h.rowSize = max(h.rowSize, largeRowSize) }

// learn widens the shares after a page that was far from full though there was
// more: some lanes are busier than others, or most ids are not this relay's.
func (h *habits) learn(r *reading) {
	h.pageSize = len(r.rows)
	if len(r.rows) > 0 {
		h.rowSize = r.bytes / len(r.rows)
	}
	switch {
	case r.full():
		h.spread = max(1, h.spread/2)
	case r.leftOut && len(r.rows) < min(r.limit, r.asked)/2:
		h.spread = min(max(1, h.spread)*2, relay.Lanes)
	}
}
