package sqlstore

import (
	"math"
	"slices"

	"github.com/rowrelay/rowrelay/relay"
)

// paces give each lane its share of a page where the lanes are read one after the
// other (see [backend.WalkByLane]): a lane is read up to an id, which lies as far
// ahead as its last rows lay apart. So a page has rows of all lanes and of many
// keys. A lane whose end was reached has no bound, until a page has more than its
// share of it.
type paces struct {
	lanes  [relay.Lanes]float64 // ids from one row to the next; atEnd; 0: not known
	common float64              // what was learned last, of any lane
}

var atEnd = math.Inf(1)

// bounded returns the positions with their ends, and says whether there may be
// more behind one of these.
func (p *paces) bounded(positions []relay.Position, share int) (ended []relay.Position, more bool) {
	ended = slices.Clone(positions)
	for i, position := range positions {
		if end := p.end(position, share); end < until(position) {
			ended[i].Until, more = end, true
		}
	}
	return ended, more
}

func (p *paces) end(position relay.Position, share int) int64 {
	pace := p.lanes[position.Lane]
	if pace == 0 {
		pace = p.common
	}
	if far := pace * float64(share); pace > 0 && far < math.MaxInt64/2 {
		return position.After + 1 + int64(far)
	}
	return math.MaxInt64
}

// learn looks at what one statement brought, lane after lane.
func (p *paces) learn(positions []relay.Position, rows []relay.Row, share int, cut bool) {
	for _, position := range positions {
		n := 0
		for n < len(rows) && rows[n].Lane == position.Lane {
			n++
		}
		p.learnLane(position.Lane, rows[:n], share)
		if rows = rows[n:]; cut && len(rows) == 0 {
			return // this lane may have more, and the others weren't visited
		}
	}
}

func (p *paces) learnLane(lane int, rows []relay.Row, share int) {
	pace := &p.lanes[lane]
	switch n := len(rows); {
	case n > max(1, share/2):
		*pace = float64(rows[n-1].ID-rows[0].ID) / float64(n-1)
		p.common = *pace
	case n > 0 && *pace > 0:
		*pace *= 2
	default:
		*pace = atEnd
	}
}
