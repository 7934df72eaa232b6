package relay

import (
	"maps"
	"slices"
	"time"
)

// The lanes that a relay holds, and what it knows of its own reading.

// byLanes is a relay that claims by lanes: it reads what is pending in the lanes that it
// holds, in the order of ids, and keeps in memory what it has read until it is settled.
type byLanes struct {
	*engine
	lanes   map[int]*lane
	sorted  []*lane // the same by their numbers; nil since one has come or gone
	share   int     // lanes that are this relay's fair part; -1 before the first census
	read    reading
	blocked blockedKeys
	reads   chan readJob
}

// reading is what the engine knows of its own reading.
type reading struct {
	seq        int64
	unroutedAt time.Time // when to look for what has no route; zero while that goes on
	nextDue    time.Time // when the next held row that is known of becomes due
	cursor     DueCursor

	turn        int // the kind of read that is tried first next time
	rotate      int // the lane that is read first next time
	horizon     int64
	given       int64 // no higher id was given out when the last page was read
	lateSpan    int64 // so many ids back rows appear late, mostly
	pendingLate int64 // rows above this may have appeared, of which no page that was merged told; none

	skipping              bool    // the last page was passed over for the most part
	scans                 bool    // late rows were looked for before the last page was merged
	settledDuringRead     []*item // settled while a read was under way, which may bring them back
	resuming              []*key  // no longer blocked, with rows to catch up with
	keyStride, scanStride stride
	farBehind             int64 // so many ids are worth a scan
	noDue                 bool  // the last look at the held rows found nothing

	failing   [kindsOfReads]int64 // since when each kind of read fails, by its clock; 0 if it doesn't
	ahead     bool                // the next page is asked for before this one is taken in
	elsewhere int                 // pages in a row that came from another server than the lanes were leased from
	sweep     sweep
	numbering int   // how often it was noticed that ids began anew: what was read before may have the id of another
	highest   int64 // the highest id from before that
}

// sortedLanes returns the lanes by their numbers. It is the same slice until one
// comes or goes: nobody changes it.
func (e *byLanes) sortedLanes() []*lane {
	if e.sorted == nil {
		e.sorted = slices.SortedFunc(maps.Values(e.lanes), func(a, b *lane) int { return a.Lane - b.Lane })
	}
	return e.sorted
}

// lanesInTurn returns the lanes, each time beginning with another.
func (e *byLanes) lanesInTurn() []*lane {
	lanes := e.sortedLanes()
	e.read.rotate++
	at := e.read.rotate * 7 % max(1, len(lanes))
	return append(lanes[at:len(lanes):len(lanes)], lanes[:at]...)
}

// skippedAny says that the queue has passed over something.
func (e *byLanes) skippedAny(q *sinkQueue) bool {
	return slices.ContainsFunc(e.sortedLanes(), func(l *lane) bool { return l.skippedFrom[q.index] != none })
}

// readLane returns the lane that a read's row belongs to; nil if it was lost
// meanwhile, also where it was leased again: what was read before may have been
// delivered by another since.
func (e *byLanes) readLane(job readJob, number int) *lane {
	if l := e.lanes[number]; l != nil && job.seq > l.seq {
		return l
	}
	return nil
}

// catchingUp returns the lanes in which a page begins where the queue has to
// go on. In others it fell further behind meanwhile, and they are read again.
func (e *byLanes) catchingUp(job readJob) map[int]*lane {
	lanes := map[int]*lane{}
	for _, p := range job.positions {
		if l := e.readLane(job, p.Lane); l != nil && !l.draining && l.skippedFrom[job.queue.index] == p.After {
			lanes[p.Lane] = l
		}
	}
	return lanes
}

// dueAgain notes that a held row becomes due.
func (e *byLanes) dueAgain(at time.Time) {
	if e.read.nextDue.IsZero() || at.Before(e.read.nextDue) {
		e.read.nextDue = at
	}
	e.dueSooner(time.Now())
}

// dueSooner brings the next look at the held rows forward to when one of them
// is known to become due. The database's clock may be a little behind.
func (e *byLanes) dueSooner(now time.Time) {
	if e.read.nextDue.IsZero() {
		return
	}
	if !e.read.nextDue.After(now) {
		e.read.nextDue = time.Time{}
		e.poll.dueAt = now
		return
	}
	e.poll.dueAt = earliest(e.poll.dueAt, e.read.nextDue)
}

// forget takes an item out of memory for good.
func (e *byLanes) forget(it *item) {
	if it.lane.known[it.row.ID] != it {
		return
	}
	delete(it.lane.known, it.row.ID)
	if it.doubled {
		it.lane.lookAgain(it.row.ID)
	}
}

// drop takes an item that nothing was done with out of memory. Whoever calls
// it remembers where to read it again.
func (e *byLanes) drop(it *item) {
	it.stage = dropped
	it.queue.release(it)
	e.forget(it)
}
