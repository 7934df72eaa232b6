package relay

import (
	"maps"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The lanes that a relay holds, and what it knows of its own reading.

// byLanes is a relay that claims by lanes: it reads what is pending in the lanes that it
// holds, in the order of ids, and keeps in memory what it has read until it is settled.
type byLanes struct {
	*engine
	*heldLanes
	*blockedKeys
	late  *lateRows
	sweep *sweep
	due   *dueRows
	share int // lanes that are this relay's fair part; -1 before the first members
	reads chan *fetch

	seq               int64 // of the last read
	turn              readKind
	ahead             bool                // the next page is asked for before this one is taken in
	skipping          bool                // the last page was passed over for the most part
	elsewhere         int                 // pages in a row that came from another server than the lanes were leased from
	settledDuringRead []*item             // settled while a read was under way, which may bring them back
	failing           [kindsOfReads]int64 // since when each kind of read fails, by its clock; 0 if it doesn't

	keyStride  stride    // of a read that catches up with keys
	unroutedAt time.Time // when to look for what has no route; zero while that goes on
}

// heldLanes are the lanes that a relay holds.
type heldLanes struct {
	lanes  map[int]*lane
	sorted []*lane // the same by their numbers; nil since one has come or gone
	rotate int     // the lane that is read first next time
}

// sortedLanes returns the lanes by their numbers. It is the same slice until one
// comes or goes: nobody changes it.
func (h *heldLanes) sortedLanes() []*lane {
	if h.sorted == nil {
		h.sorted = slices.SortedFunc(maps.Values(h.lanes), func(a, b *lane) int { return a.Lane - b.Lane })
	}
	return h.sorted
}

// lanesInTurn returns the lanes, each time beginning with another.
func (h *heldLanes) lanesInTurn() []*lane {
	lanes := h.sortedLanes()
	h.rotate++
	at := h.rotate * 7 % max(1, len(lanes))
	return append(lanes[at:len(lanes):len(lanes)], lanes[:at]...)
}

// skippedAny says that the queue has passed over something.
func (h *heldLanes) skippedAny(q *sinkQueue) bool {
	return slices.ContainsFunc(h.sortedLanes(), func(l *lane) bool { return l.skippedFrom[q.index] != none })
}

// laneOf returns the lane that a read's row belongs to; nil if it was lost
// meanwhile, also where it was leased again: what was read before may have been
// delivered by another since.
func (h *heldLanes) laneOf(f *fetch, number int) *lane {
	if l := h.lanes[number]; l != nil && f.seq > l.seq {
		return l
	}
	return nil
}

// catchingUp returns the lanes in which a page begins where the queue has to
// go on. In others it fell further behind meanwhile, and they are read again.
func (h *heldLanes) catchingUp(f *fetch) map[int]*lane {
	lanes := map[int]*lane{}
	for _, p := range f.positions {
		if l := h.laneOf(f, p.Lane); l != nil && !l.draining && l.skippedFrom[f.queue.index] == p.After {
			lanes[p.Lane] = l
		}
	}
	return lanes
}

// furthest is the highest id that was read.
func (h *heldLanes) furthest() (id int64) {
	for _, l := range h.lanes {
		id = max(id, l.cursor)
	}
	return id
}

// forget takes an item out of memory for good.
func (h *heldLanes) forget(it *item) {
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
func (h *heldLanes) drop(it *item) {
	it.stage = dropped
	it.queue.release(it)
	h.forget(it)
}

// dueRows is when held rows are read, in passes over those whose time has come.
type dueRows struct {
	*engine
	cursor storage.DueCursor // where the next read begins
	next   time.Time         // when the next held row that is known of becomes due
	none   bool              // the last read found nothing
}

// again notes that a held row becomes due.
func (d *dueRows) again(at time.Time) {
	d.next = earliest(d.next, at)
	d.sooner(time.Now())
}

// sooner brings the next read of held rows forward to when one of them is known to
// become due. The database's clock may be a little behind.
func (d *dueRows) sooner(now time.Time) {
	switch {
	case d.next.IsZero():
	case d.next.After(now):
		d.poll.dueAt = earliest(d.poll.dueAt, d.next)
	default:
		d.next, d.poll.dueAt = time.Time{}, now
	}
}
