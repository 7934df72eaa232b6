package relay

import "slices"

// againBytes bounds what a look reads once more, about.
const againBytes = 64 << 10

// readAgain is where a look begins in lanes that were read further. Where
// messages come one by one, something may have appeared late before most looks, a
// few ids back: what lies there is read again then, so that what is late comes
// with the page, and isn't looked for by another statement.
func (e *engine) readAgain() int64 { return e.furthest() - e.read.lag }

// furthest is the highest id that was read.
func (e *engine) furthest() (id int64) {
	for _, l := range e.lanes {
		id = max(id, l.cursor)
	}
	return id
}

// learnLag notes after which id rows may have appeared late. What is far back is
// the exception.
func (e *engine) learnLag(lateAfter int64) {
	lag := e.furthest() - lateAfter
	switch {
	case lateAfter < 0 || lag > againBytes/int64(max(e.read.rowBytes, 256)):
	case lag > e.read.lag:
		e.read.lag = lag
	default:
		e.read.lag -= (e.read.lag - lag) / 8
	}
}

// brings says that what appeared late in a lane above an id came with the page.
func (r readResult) brings(l *lane, after int64) bool {
	return r.job.kind == readLanes && !r.page.More && l.recheck == none && !l.draining &&
		slices.ContainsFunc(r.job.positions, func(p Position) bool { return p.Lane == l.Lane && p.After <= after })
}

// lateScan decides which rows of a scan the engine wants: those that it neither
// has in memory nor will come back to. It holds copies, as it runs in the
// reader; what it approves of is judged again when it is merged.
type lateScan struct {
	routes *router
	known  map[int64]struct{}
	lag    map[int][]int64 // by lane and outlet
	behind map[keyRef]int64
	left   int             // so many more rows may come into memory
	passed map[place]int64 // the first row of each place that may not
}

// place is what has a lag of its own.
type place struct{ lane, outlet int }

// unknown makes the scan of these positions.
func (e *engine) unknown(positions []Position) *lateScan {
	s := &lateScan{routes: e.routes, known: map[int64]struct{}{}, lag: map[int][]int64{}, behind: map[keyRef]int64{}, passed: map[place]int64{}}
	s.left = max(1, min(readLimit, readBytes/max(1, e.read.rowBytes)))
	for _, p := range positions {
		l := e.lanes[p.Lane]
		for id := range l.known {
			if id > p.After {
				s.known[id] = struct{}{}
			}
		}
		s.lag[p.Lane] = slices.Clone(l.lag)
		for ref, k := range l.keys {
			if k.lagging {
				s.behind[ref] = k.behind
			}
		}
	}
	return s
}

// keep approves of a row. A transaction that was open for long may bring more
// rows than there is memory: the outlets of the rest fall behind.
func (s *lateScan) keep(c Candidate) bool {
	if _, ok := s.known[c.ID]; ok {
		return false
	}
	p := place{c.Lane, s.routes.find(c.Topic)}
	if lag := s.lag[c.Lane][p.outlet]; lag != none && c.ID > lag {
		return false
	}
	if behind, lagging := s.behind[keyRef{p.outlet, c.Key}]; lagging && c.ID > behind {
		return false
	}
	if s.left > 0 {
		s.left--
		return true
	}
	if first, ok := s.passed[p]; !ok || c.ID < first {
		s.passed[p] = c.ID
	}
	return false
}

// passOver lets outlets fall behind where a scan had to leave rows.
func (e *engine) passOver(job readJob) {
	for p, id := range job.scan.passed {
		if l := e.readLane(job, p.lane); l != nil {
			l.fall(p.outlet, id)
		}
	}
}
