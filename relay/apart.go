package relay

import (
	"math"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Sinks that are set apart. A sink is behind while its cursor in some lane is below the lane's highest cursor. Until the sink has
// caught up, the relay reads separate pages for it. Meanwhile the shared pages, which are read for all sinks, still return this
// sink's rows, and its reader ignores them. If the sink is down, there may be millions of such rows. So the sink is set apart:
// shared pages exclude the topics that only this sink takes, and don't move its cursors. In the same way, the pages that are read
// for one sink alone exclude the topics that only other sinks take.
//
// The database still scans the rows that a page excludes. So a page that excludes topics covers only a limited range of ids. The
// range is adjusted so that the page's statement takes at most about 100 ms.
//
// What must hold: a page that excludes a sink's topics does not move this sink's readers.

// mostPassed is how many rows a sink's reader may ignore in shared pages, while the sink is behind, before the sink is set apart.
const mostPassed = 500

// setApart decides which sinks the next shared page excludes. A sink is set apart if it is failing while another sink is up, and
// its queue has room for fewer than readLimit rows. It is also set apart if its reader has ignored mostPassed rows of shared
// pages while the sink was behind. A sink rejoins the others when it has caught up in all lanes. A sink that shares all its
// topics with others is never set apart.
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

// leaveOut makes a page that is read for only some sinks exclude the topics that only the other sinks take (ownTopics). A page
// that excludes topics is also limited to a range of ids.
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

// isStretch reports whether the page has all rows of its range of ids, and this range ends below the last assigned id. Then more
// rows may exist above the range.
func (f *fetch) isStretch() bool {
	return !f.page.More && slices.ContainsFunc(f.positions, func(p storage.Position) bool { return p.Until > 0 && p.Until < f.page.LastID })
}

// learnStride adjusts the range of the next page that excludes topics. A page that did not cover a whole range counts only if it
// was slow: if it was fast, the reason may be that it covered less.
func (e *byLanes) learnStride(f *fetch) {
	whole := !f.page.More && slices.ContainsFunc(f.positions, func(p storage.Position) bool {
		return p.Until-p.After >= int64(e.pageStride) && p.Until <= f.page.LastID
	})
	if len(f.except) > 0 && (whole || f.took > slowStride) {
		e.pageStride.learn(f.took)
	}
}
