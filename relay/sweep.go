package relay

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A sweep looks for pending rows where there can be none: at or below what was read
// and is final, which nobody has in memory or will come back to. There are some all
// the same where ids began anew (a sequence that was reset, or that a restored copy
// of the table didn't bring along), or where a transaction was open for longer than
// the longest that was reckoned with. They would wait for ever.
//
// A lane that was leased is swept once before it is first read (laneRights.conclude,
// lease.go): then what is below its mark is delivered in its order. Half a minute after the relay's
// start, and then now and again, all lanes are swept, in steps that take turns with other reads; the more a pass costs,
// the less often.

// sweep is what is known of the pass that is under way, and of the last one.
type sweep struct {
	base *base
	held *heldLanes
	late *lateRows
	poll *polling

	left  []storage.Position // of the pass that is under way
	began time.Time
	took  time.Duration // by its steps, and those for lanes that were leased
	found bool          // by this pass, and by those for lanes that were leased since
	next  time.Time     // when the next pass begins
	ids   stride        // of one step

	clean time.Time // when the last pass began that found nothing; at first when the relay began
}

const (
	// A pass begins a while after the one before, from sweepSoonest to sweepLatest:
	// sweepRest times as long as that took. It begins sooner where something was found:
	// other lanes may have the same.
	sweepSoonest = 30 * time.Second
	sweepLatest  = 10 * time.Minute
	sweepRest    = 50
	sweepAgain   = 5 * time.Second

	// sweepPatience bounds how long others wait for a step, which may have to pass over
	// many entries of rows that are gone, and how long lanes that were leased wait for
	// theirs: after that they are read, and their sweep goes on beside. A step that can't
	// be made smaller has sweepLongest.
	sweepPatience = 150 * time.Millisecond
	sweepLongest  = 2 * time.Second
)

// step makes the next step of a pass; nil if there is none to make.
func (s *sweep) step(now time.Time) *fetch {
	if len(s.left) == 0 && !now.Before(s.next) { // begin a pass over all lanes, up to where nothing can appear
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

// end says when the next pass begins. What has ended is a pass over all lanes, or the sweep of some that were leased.
func (s *sweep) end(now time.Time) {
	if !s.began.IsZero() {
		if s.next = now.Add(sweepAgain); !s.found {
			s.clean, s.next = s.began, now.Add(min(max(sweepRest*s.took, sweepSoonest), sweepLatest))
		}
		s.began = time.Time{}
	}
	s.took = 0
}

// sweepStep carries a step out, in the reader.
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

// merge goes on from what a step has found, and has it read. A lane in which
// something was found is read again from there: what comes next may lie there, too.
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
			*fresh, l.unswept = *fresh || l.unswept, false // it waits no longer
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
		s.base.options.Logger.Warn("relay: messages waited where none were expected any more, and are delivered now, some perhaps after later ones of their keys: "+errFoundLate.Error(),
			"relay", s.base.options.Name, "first", lowest, "lanes", lanes, "suppressed", more)
	}
}

var errFoundLate = errors.New("ids began anew, rows came with ids of long ago, as from a dump, or a transaction was open for longer than the longest that is reckoned with")

// stepFailed makes the steps smaller, and lets the lanes be read: the pass goes on
// beside that. That a step took too long is trouble only if it can't be made smaller.
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
