package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A sweep looks for pending rows where there can be none: at or below what was read
// and is final, which nobody has in memory or will come back to. There are some all
// the same where ids began anew (a sequence that was reset, or that a restored copy
// of the table didn't bring along), or where a transaction was open for longer than
// the longest that was reckoned with. They would wait for ever.
//
// A lane that was leased is swept once before it is first read: then what is below
// its mark is delivered in its order. After that all lanes are swept now and then, in
// steps that take turns with other reads; the more a pass costs, the less often.
type sweep struct {
	left  []Position // of the pass that is under way
	began time.Time
	took  time.Duration // by its steps, and those for lanes that were leased
	news  int           // read.news when it began
	found bool          // by this pass
	next  time.Time     // when the next pass begins
	ids   stride        // of one step

	clean int // read.news when the last pass began that found nothing
}

const (
	// A pass begins a while after the one before, from sweepSoonest to sweepLatest:
	// sweepRest times as long as that took.
	sweepSoonest = 30 * time.Second
	sweepLatest  = 10 * time.Minute
	sweepRest    = 50
	sweepAgain   = 5 * time.Second

	// sweepPatience bounds a step, which may have to pass over many entries of rows
	// that are gone, and how long lanes that were leased wait for theirs: after that
	// they are read, and their sweep goes on beside.
	sweepPatience = 2 * time.Second
)

// add has a lane swept before it is read.
func (s *sweep) add(l *lane) {
	s.left = slices.DeleteFunc(s.left, func(p Position) bool { return p.Lane == l.Lane })
	if l.unswept = l.cursor > 0; l.unswept {
		s.left = append(s.left, Position{Lane: l.Lane, Until: l.cursor})
	}
}

// sweepOn makes the next step, if there is one to make.
func (e *byLanes) sweepOn(now time.Time) (readJob, bool) {
	s := &e.read.sweep
	if e.read.ahead {
		return readJob{}, false
	}
	if len(s.left) == 0 && !now.Before(s.next) { // begin a pass over all lanes, up to where nothing can appear
		s.began, s.took, s.news, s.found = now, 0, e.poll.news, false
		s.next = now.Add(sweepLatest)
		for _, l := range e.sortedLanes() {
			if until := min(l.cursor, e.read.horizon); !l.draining && until > 0 {
				s.left = append(s.left, Position{Lane: l.Lane, Until: until})
			}
		}
	}
	s.left = slices.DeleteFunc(s.left, func(p Position) bool {
		l := e.lanes[p.Lane]
		if l != nil && (l.draining || p.After >= p.Until) {
			l.unswept = false
		}
		return l == nil || l.draining || p.After >= p.Until
	})
	if len(s.left) == 0 {
		if !s.began.IsZero() {
			s.end(now)
		}
		s.took = 0
		return readJob{}, false
	}
	positions := lowestOf(s.left, int64(s.ids))
	return readJob{kind: readSweep, positions: positions, scan: e.unknown(positions, 0)}, true
}

// end ends a pass over all lanes.
func (s *sweep) end(now time.Time) {
	s.began = time.Time{}
	if s.found {
		s.next = now.Add(sweepAgain) // other lanes may have the same
		return
	}
	s.clean = s.news
	s.next = now.Add(min(max(sweepRest*s.took, sweepSoonest), sweepLatest))
}

// sweepStep carries a step out, in the reader.
func (e *byLanes) sweepStep(ctx context.Context, job readJob) readResult {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	result := readResult{job: job, found: map[int]int64{}}
	began := time.Now()
	_, result.left, result.err = e.store.Scan(ctx, job.positions, job.scan.except(job.positions), func(c Candidate) bool {
		if q := job.scan.routes.find(c.Topic); !job.scan.expected(c, q) && !job.scan.follows(c, q) {
			if lowest, ok := result.found[c.Lane]; !ok || c.ID < lowest {
				result.found[c.Lane] = c.ID
			}
		}
		return false
	})
	result.took = time.Since(began)
	return result
}

// mergeSweep goes on from what a step has found, and has it read. A lane in which
// something was found is read again from there: what comes next may lie there, too.
func (e *byLanes) mergeSweep(result readResult) {
	s := &e.read.sweep
	s.took += result.took
	s.ids.learn(result.took)
	walked := slices.DeleteFunc(slices.Clone(result.job.positions), func(p Position) bool { return e.readLane(result.job, p.Lane) == nil })
	s.left = restOf(s.left, walked, result.left)
	found := 0
	for _, p := range result.job.positions {
		l := e.readLane(result.job, p.Lane)
		if l == nil {
			continue
		}
		id, ok := result.found[p.Lane]
		if ok || s.took > sweepPatience || !slices.ContainsFunc(s.left, func(left Position) bool { return left.Lane == p.Lane }) {
			e.letRead(l)
		}
		if ok && !l.draining && l.recheck == none && id <= l.cursor {
			l.cursor, l.base = id-1, 0
			found++
		}
		s.found = s.found || ok
		e.poll.fresh = e.poll.fresh || ok
	}
	if found > 0 {
		e.store.Distrust()
		e.failed("sweep", fmt.Errorf("messages waited in %d lanes below what was read there, and are delivered now, some perhaps after later ones of their keys: %w", found, errSkipped))
	}
}

// letRead has a lane read that waited for its sweep.
func (e *byLanes) letRead(l *lane) {
	e.poll.fresh = e.poll.fresh || l.unswept
	l.unswept = false
}

var errSkipped = errors.New("ids began anew, or a transaction was open for longer than the longest that is reckoned with; rowrelay check tells more")

// sweepFailed makes the steps smaller, and lets the lanes be read: the pass goes on
// beside that.
func (e *byLanes) sweepFailed(result readResult) {
	e.failed("sweep", result.err)
	e.poll.pauseUntil = time.Now().Add(settlePause.Min)
	s := &e.read.sweep
	s.took += result.took
	s.ids.failed()
	for _, p := range result.job.positions {
		if l := e.readLane(result.job, p.Lane); l != nil {
			e.letRead(l)
		}
	}
}

// sweptClean says that a pass over all lanes, which began after the last message had
// been read, has found nothing. If there was none it begins at once.
func (e *byLanes) sweptClean() bool {
	s := &e.read.sweep
	if s.clean == e.poll.news {
		return true
	}
	if s.began.IsZero() {
		s.next = time.Time{}
	}
	return false
}
