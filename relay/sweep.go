package relay

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A sweep searches for missed rows: pending rows, at or below the cursors and the safe id, that are not in memory and that no
// other read would find. Usually no row is missed. But rows are missed if the id sequence was reset, or was not restored with
// a copy of the table, or if a transaction was open for longer than the store allows. Without a sweep they would never be
// delivered.
//
// A leased lane is swept once before its first read (laneRights.conclude in lease.go), so that missed rows are delivered in
// order. After that, passes sweep all lanes. The first pass begins half a minute after the relay's start. The steps of a pass
// take turns with other reads. The longer a pass takes, the later the next one begins.

// sweep is the state of the current and the last pass.
type sweep struct {
	base *base
	held *heldLanes
	late *lateRows
	poll *polling

	left  []storage.Position // the rest of the current pass
	began time.Time
	took  time.Duration // the total time of the pass's steps, including the steps for newly leased lanes
	found bool          // the pass has found a row, or the sweep of a newly leased lane has found one since the pass began
	next  time.Time     // when the next pass begins
	ids   stride        // how many ids one step covers

	clean time.Time // when the last pass that found no row began; before the first such pass: when the relay started
}

const (
	// The pause after a pass is sweepRest times the duration of the pass, but at least sweepSoonest and at most sweepLatest. After a
	// pass that has found a row, the pause is only sweepAgain, because relays may have missed rows of other lanes, too.
	sweepSoonest = 30 * time.Second
	sweepLatest  = 10 * time.Minute
	sweepRest    = 50
	sweepAgain   = 5 * time.Second

	// sweepPatience is the time-out of a step. It is short because other reads wait for the step, which may have to walk over
	// many index entries of deleted rows. sweepPatience is also how long newly leased lanes wait for their sweep; after that
	// they are read while the sweep continues. sweepLongest is the time-out of a step that can't be made smaller.
	sweepPatience = 150 * time.Millisecond
	sweepLongest  = 2 * time.Second
)

// step returns the next step of a pass; nil if there is nothing to sweep now.
func (s *sweep) step(now time.Time) *fetch {
	if len(s.left) == 0 && !now.Before(s.next) { // begin a pass over all lanes, each up to its head or the safe id, whichever is lower
		s.began, s.took, s.found = now, 0, false
		s.next = now.Add(sweepLatest)
		for _, l := range s.held.sortedLanes() {
			if until := min(l.readers.head(), s.late.safeID); !l.draining && until > 0 {
				s.left = append(s.left, storage.Position{Lane: l.Lane, Until: until})
			}
		}
	}
	s.left = slices.DeleteFunc(s.left, func(p storage.Position) bool {
		l := s.held.lanes[p.Lane]
		if l != nil && (l.draining || p.After >= p.Until) {
			l.unswept = false
		}
		return l == nil || l.draining || p.After >= p.Until
	})
	if len(s.left) == 0 {
		s.end(now)
		return nil
	}
	positions := lowestOf(s.left, int64(s.ids))
	return &fetch{kind: readSweep, positions: positions, scan: s.late.scan(positions)}
}

// end is called when a pass over all lanes or the sweep of newly leased lanes has ended. After a pass it schedules the next one.
func (s *sweep) end(now time.Time) {
	if !s.began.IsZero() {
		if s.next = now.Add(sweepAgain); !s.found {
			s.clean, s.next = s.began, now.Add(min(max(sweepRest*s.took, sweepSoonest), sweepLatest))
		}
		s.began = time.Time{}
	}
	s.took = 0
}

// sweepStep carries out a step of a sweep. The reader goroutine calls it.
func (b *base) sweepStep(ctx context.Context, scan *lateScan) (err error) {
	patience := sweepLongest
	if slices.ContainsFunc(scan.positions, func(p storage.Position) bool { return p.Until-p.After > minStride }) {
		patience = sweepPatience
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	scan.found = map[int]int64{}
	_, scan.left, err = b.store.Scan(ctx, scan.positions, scan.except(scan.positions), func(c storage.Candidate) bool {
		if slices.ContainsFunc(scan.unexpected(c), func(queue int) bool { return !scan.follows(c, queue) }) {
			if lowest, ok := scan.found[c.Lane]; !ok || c.ID < lowest {
				scan.found[c.Lane] = c.ID
			}
		}
		return false
	})
	scan.took = time.Since(began)
	return err
}

// merge applies the result of a step. A lane with a missed row is rewound to just before that row, since the rows after it may
// have been missed, too.
func (s *sweep) merge(f *fetch) {
	s.took += f.scan.took
	s.ids.learn(f.scan.took)
	walked := slices.DeleteFunc(slices.Clone(f.positions), func(p storage.Position) bool { return s.held.laneOf(f.seq, p.Lane) == nil })
	s.left = restOf(s.left, walked, f.scan.left)
	lanes, lowest, fresh := 0, int64(math.MaxInt64), &s.poll.fresh
	for _, p := range walked {
		l := s.held.lanes[p.Lane]
		id, ok := f.scan.found[p.Lane]
		if ok || s.took > sweepPatience || !slices.ContainsFunc(s.left, func(left storage.Position) bool { return left.Lane == p.Lane }) {
			*fresh, l.unswept = *fresh || l.unswept, false // the lane may be read now
		}
		if ok && !l.draining && id <= l.readers.head() {
			l.readers.rewind(id - 1)
			l.floor, s.held.rewound = 0, true
			lanes, lowest = lanes+1, min(lowest, id)
		}
		s.found = s.found || ok
		*fresh = *fresh || ok
	}
	if len(s.left) == 0 {
		s.end(time.Now())
	}
	if lanes == 0 {
		return
	}
	s.base.store.FoundLate()
	s.base.options.Observer.Failed("found_late", errFoundLate)
	if allowed, more := s.base.logLimiter.allow("found_late"); allowed {
		s.base.options.Logger.Warn("relay: found missed messages below the marks; delivering them now, possibly after later messages of their keys: "+errFoundLate.Error(),
			"relay", s.base.options.Name, "first", lowest, "lanes", lanes, "suppressed", more)
	}
}

var errFoundLate = errors.New("the id sequence was reset, rows were inserted with old ids (for example from a dump), or a transaction was open for longer than the store allows")

// stepFailed makes the steps smaller, and lets the swept lanes be read while the sweep continues. It doesn't report a time-out
// if the step can be made smaller.
func (s *sweep) stepFailed(f *fetch) {
	if f.scan.took < sweepPatience || s.ids == minStride {
		s.base.failed("sweep", f.err)
	}
	s.poll.pauseUntil = time.Now().Add(settlePause.Min)
	s.took += f.scan.took
	s.ids.failed()
	for _, p := range f.positions {
		if l := s.held.laneOf(f.seq, p.Lane); l != nil {
			s.poll.fresh = s.poll.fresh || l.unswept
			l.unswept = false
		}
	}
}
