package relay

import (
	"cmp"
	"context"
	"slices"
)

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
	met    int
}

// place is what has a lag of its own.
type place struct{ lane, outlet int }

// unknown makes the scan of these positions, which may begin anew further below,
// but above the horizon.
func (e *engine) unknown(positions []Position, horizon int64) *lateScan {
	s := &lateScan{routes: e.routes, known: map[int64]struct{}{}, lag: map[int][]int64{}, behind: map[keyRef]int64{}, passed: map[place]int64{}}
	s.left = max(1, min(readLimit, readBytes/max(1, e.read.rowBytes)))
	for _, p := range positions {
		l := e.lanes[p.Lane]
		for id := range l.known {
			if id > min(p.After, horizon) {
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
	s.met++
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
		s.known[c.ID] = struct{}{} // it may be met again
		return true
	}
	if first, ok := s.passed[p]; !ok || c.ID < first {
		s.passed[p] = c.ID
	}
	return false
}

// scanLate looks for rows that appeared late. A transaction that commits between
// the page that told of them and the scan may have rows below where the scan began
// and above: it begins anew then, until it has all that belongs before what it has
// found. What it was told of commits meanwhile is owed to the next page.
func (e *engine) scanLate(ctx context.Context, job readJob) (page Page, err error) {
	positions := job.positions
	page.LateAfter = none
	for len(positions) > 0 {
		job.scan.met = 0
		rows, err := e.store.Scan(ctx, positions, job.keep)
		if err != nil {
			return page, err
		}
		if len(rows) == 0 {
			break // and so nothing that could be ahead of anything
		}
		page.Rows = append(page.Rows, rows...)
		since, err := e.store.Read(ctx, nil, 0, 0)
		if err != nil {
			return page, err
		}
		page.LateAfter = lowestSet(page.LateAfter, since.LateAfter)
		positions = split(positions, since.LateAfter, job.scan.met >= ScanTogether)
	}
	slices.SortFunc(page.Rows, func(a, b Row) int { return cmp.Compare(a.ID, b.ID) })
	return page, nil
}

// split returns the positions of a scan in which it may have met some rows of a
// transaction and not others, where rows above an id have appeared since: those
// that it began above; and all that it went through in several steps.
func split(positions []Position, appearedAfter int64, steps bool) (again []Position) {
	for _, p := range positions {
		if appearedAfter != none && (appearedAfter < p.After || steps && appearedAfter < p.Until) {
			p.After = appearedAfter
			again = append(again, p)
		}
	}
	return again
}

// passOver lets outlets fall behind where a scan had to leave rows.
func (e *engine) passOver(job readJob) {
	for p, id := range job.scan.passed {
		if l := e.readLane(job, p.lane); l != nil {
			l.fall(p.outlet, id)
		}
	}
}
