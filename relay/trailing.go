package relay

import "slices"

// A page gives its lanes equal shares, so that one with a busy key falls behind
// the others: it would have all its rows still to come when these are done, and
// of a key one batch is under way at a time. So a lane that is far behind has
// every other page, as long as it hasn't filled a quarter of the memory.

// farBehind is the part of a page that a lane has to be behind the others to have
// a page of its own.
const farBehind = 8

// stretch is what a page brought of one lane.
type stretch struct {
	rows        int64
	first, last int64
}

// missing is about how many of the lane's rows there are up to an id.
func (s stretch) missing(upTo int64) int64 {
	if s.rows < 2 || s.last >= upTo {
		return 0
	}
	return int64(float64(upTo-s.last) * float64(s.rows-1) / float64(s.last-s.first))
}

// trailing returns the lanes that are far behind after a page that was cut off.
func trailing(rows []Row) (lanes map[int]bool) {
	brought := map[int]stretch{}
	for i := range rows {
		s, id := brought[rows[i].Lane], rows[i].ID
		if s.rows == 0 {
			s.first = id
		}
		brought[rows[i].Lane] = stretch{s.rows + 1, s.first, id}
	}
	middle, far := middleOf(brought), int64(max(2, len(rows)/farBehind))
	for lane, s := range brought {
		if s.missing(middle) >= far {
			if lanes == nil {
				lanes = map[int]bool{}
			}
			lanes[lane] = true
		}
	}
	return lanes
}

// middleOf is how far half of the lanes were read.
func middleOf(brought map[int]stretch) int64 {
	ends := make([]int64, 0, len(brought))
	for _, s := range brought {
		ends = append(ends, s.last)
	}
	slices.Sort(ends)
	if len(ends) == 0 {
		return 0
	}
	return ends[len(ends)/2]
}

// lanesToRead are those that trail, or all. One that has a quarter of the memory
// waits for its turn among the others: if it is stuck, it must not have all.
func (e *engine) lanesToRead() (lanes []*lane, part bool) {
	all := e.lanesInTurn()
	for _, l := range all {
		if e.read.trailing[l.Lane] && !l.draining && len(l.known) < e.mostBuffer()/4 {
			lanes = append(lanes, l)
		}
	}
	e.read.trailing = nil
	if len(lanes) > 0 {
		return lanes, true
	}
	return all, false
}

func (e *engine) mostBuffer() (most int) {
	for _, o := range e.outlets {
		most = max(most, o.options.Buffer)
	}
	return most
}
