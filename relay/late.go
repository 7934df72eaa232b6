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
