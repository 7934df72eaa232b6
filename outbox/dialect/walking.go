package dialect

import (
	"slices"
	"strconv"
)

// Walking is implemented by a dialect whose Read and Candidates take one walk
// along an index for all positions that have no key, in the place of one walk for
// each of them. It takes no share of each position.
type Walking interface{ Walk() Walk }

// Walk says along which index.
type Walk int

const (
	// WalkByLane is along (lane, id), where the rows of one lane lie together. The
	// store gives all positions the same end, and has their lanes ascend.
	WalkByLane Walk = iota + 1

	// WalkByID is along the ids: the rows come in the order of ids, of whatever
	// lane they are.
	WalkByID
)

// wholeOf is a range of ids that has those of all positions.
func wholeOf(positions []Position) Position {
	whole := Position{After: positions[0].After, Until: positions[0].Until}
	for _, p := range positions {
		whole.After, whole.Until = min(whole.After, p.After), max(whole.Until, p.Until)
	}
	return whole
}

// idsWithin is a condition of the rows of a range of ids that are at positions.
// A sum is a condition only, and no range of its own.
func idsWithin(whole Position, positions []Position) string {
	var lanes []int
	var others mysqlAlternatives
	for _, p := range slices.SortedFunc(slices.Values(positions), func(a, b Position) int { return a.Lane - b.Lane }) {
		bounds := ""
		if p.After > whole.After {
			bounds += " AND t.id + 0 > " + mysqlID(p.After)
		}
		if p.Until < whole.Until {
			bounds += " AND t.id + 0 <= " + mysqlID(p.Until)
		}
		if bounds == "" {
			lanes = append(lanes, p.Lane)
		} else {
			others.add(p.Lane, "t.lane = "+strconv.Itoa(p.Lane)+bounds)
		}
	}
	switch all := "t.lane IN " + mysqlList(lanes); {
	case len(others.lanes) == 0:
		return all
	case len(lanes) == 0:
		return others.condition()
	default:
		return "(" + all + " OR " + others.condition() + ")"
	}
}
