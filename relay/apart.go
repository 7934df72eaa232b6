package relay

import (
	"math"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Sinks that are set apart. While a sink is behind, its readers read its rows separately until it has caught up. Meanwhile the
// pages that all sinks share return its rows for nothing; for a sink that is down these may be millions. So the sink is set
// apart: shared pages exclude the topics that only this sink takes, and don't move its readers. The pages that its own readers
// read exclude the other sinks' topics in the same way.
//
// The database still walks over the rows that a page excludes. So such a page covers a limited range of ids, which is adjusted so
// that its statement takes about 100 ms at most.
//
// What must hold: a page that excludes a sink's topics does not move this sink's readers.

// mostPassed is how many rows shared pages may return for nothing for a sink that is behind before the sink is set apart.
const mostPassed = 500

// setApart decides which sinks the next shared page excludes: a sink that is failing while others are up, if it has less room
// than a page may fill; and a sink that is behind, once pages have returned mostPassed of its rows for nothing. A sink rejoins
// the others when it has caught up in all lanes. A sink that shares all its topics with others is never set apart.
func (e *byLanes) setApart() {
	up := anyUp(e.engine.queues)
	for _, q := range e.engine.queues {
		hasOwn := len(e.engine.routes.ownTopics[q.index]) > 0
		switch full := q.room() < readLimit; {
		case up && q.isFailing() && q.options.Sink != nil && full:
			q.apart = hasOwn
		case (q.apart || q.passed > 0) && !e.held.anyBehind(q):
			q.passed, q.apart = 0, false
		case q.passed >= e.mostPassed:
			q.apart = hasOwn
		}
	}
}

// leaveApart makes a shared page exclude the sinks that are set apart.
func (e *byLanes) leaveApart(f *fetch) {
	var apart []int
	for _, q := range e.engine.queues {
		if q.apart {
			apart = append(apart, q.index)
		}
	}
	if len(apart) > 0 {
		f.reads = func(queue int) bool { return !slices.Contains(apart, queue) }
		e.leaveOut(f)
	}
}

// leaveOut makes a page exclude the topics of the sinks that it isn't for, and limits it to a range of ids.
func (e *byLanes) leaveOut(f *fetch) {
	for queue, own := range e.engine.routes.ownTopics {
		if !f.reads(queue) {
			f.except = append(f.except, own...)
		}
	}
	if len(f.except) == 0 {
		return
	}
	for i := range f.positions {
		if p := &f.positions[i]; p.Until == 0 {
			p.Until = math.MaxInt64
		}
	}
	f.positions = lowestOf(f.positions, int64(e.pageStride))
}

// isStretch reports whether the page ended at the end of its range, below the last id, so that more rows may exist.
func (f *fetch) isStretch() bool {
	return !f.page.More && slices.ContainsFunc(f.positions, func(p storage.Position) bool { return p.Until > 0 && p.Until < f.page.LastID })
}

// learnStride adjusts the range of the next page that excludes rows. A page that ended early counts only if it was slow: it may
// have been fast because it ended early.
func (e *byLanes) learnStride(f *fetch) {
	whole := !f.page.More && slices.ContainsFunc(f.positions, func(p storage.Position) bool {
		return p.Until-p.After >= int64(e.pageStride) && p.Until <= f.page.LastID
	})
	if len(f.except) > 0 && (whole || f.took > slowStride) {
		e.pageStride.learn(f.took)
	}
}
