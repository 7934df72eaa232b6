package relay

import (
	"math"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Sinks apart. A sink that is behind reads alone until it has caught up. Pages of what is new bring its rows
// without effect meanwhile, and of a sink that is down there may be millions. So it is set apart: these pages leave its
// own topics out by name, and its readers stay where they are in all lanes. What it reads alone leaves out
// the topics of the other sinks in the same way.
//
// The database walks over the rows that a page leaves out. So each page goes on for a stretch of ids only, as far
// as takes a statement about 100 ms at most.
//
// What must hold: a page that leaves out topics of a sink doesn't move this sink's readers.

// mostPassed is how many rows pages bring for a sink that is behind before it is set apart.
const mostPassed = 500

// setApart decides which sinks the next page of what is new is for. A sink is apart if pages have brought many rows for it while
// it was behind, or if it is down, others are up, and a page may have more rows than it has room for. It is back once
// it has caught up in all lanes.
func (e *byLanes) setApart() {
	up := anyUp(e.engine.queues)
	for _, q := range e.engine.queues {
		hasOwn := len(e.engine.routes.ownTopics[q.index]) > 0
		switch full := up && !q.up() && q.options.Sink != nil && q.room() < readLimit; {
		case full:
			q.apart = hasOwn
		case q.passed == 0 && !q.apart:
		case !e.held.anyBehind(q):
			q.passed, q.apart = 0, false
		case q.passed >= e.mostPassed:
			q.apart = hasOwn
		}
	}
}

// leaveApart has a page of what is new leave out the sinks that are apart.
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

// leaveOut has a page leave out the topics of the sinks that it isn't for, and go on for a stretch of ids.
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

// isStretch says that there may be more than the page, which no limit has ended: it was read up to an id below the last one.
func (f *fetch) isStretch() bool {
	return !f.page.More && slices.ContainsFunc(f.positions, func(p storage.Position) bool { return p.Until > 0 && p.Until < f.page.LastID })
}

// learnStride lets the next page that leaves rows out go further, or less far. One that ended before its stretch did
// may have been quick for that alone.
func (e *byLanes) learnStride(f *fetch) {
	whole := !f.page.More && slices.ContainsFunc(f.positions, func(p storage.Position) bool {
		return p.Until-p.After >= int64(e.pageStride) && p.Until <= f.page.LastID
	})
	if len(f.except) > 0 && (whole || f.took > 100*time.Millisecond) {
		e.pageStride.learn(f.took)
	}
}
