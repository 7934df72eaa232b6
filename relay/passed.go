package relay

import (
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Pauses of topics and keys, by lanes: what is paused doesn't stay in memory, and its lane remembers to read it again.

// controlled passes over what waits in memory and is paused now. Where a pause of a topic or a key has ended, it begins anew
// from the places that lanes have kept. Otherwise these places and the lanes' sets of keys stay: to read a backlog of
// paused messages again would hold up all other messages.
func (e *byLanes) controlled(was *pauses) {
	e.due.restart()
	if was.equal(e.engine.control.pauses) {
		return
	}
	ended := !was.within(e.engine.control.pauses)
	for _, l := range e.held.sortedLanes() {
		before := l.passed
		l.passed = nil
		if ended {
			for i := range l.readers {
				l.readers[i].closeGap()
			}
			e.held.rewound = true
			before = nil
		}
		if e.engine.control.pauses == nil {
			continue
		}
		// In the order of ids: what comes before the first row that is passed over stays. So the set of keys has at first only
		// those that are passed over here.
		var passed []*item
		for _, it := range slices.SortedFunc(l.items(), func(a, b *item) int { return int(a.row.ID - b.row.ID) }) {
			if it.stage == inQueue {
				if e.passOver(it); it.stage == dropped && it.key != nil && !it.row.Deferred {
					passed = append(passed, it)
				}
			}
		}
		if before == nil {
			continue
		}
		for _, it := range passed {
			before.add(it.slot, it.row.Message.Key)
		}
		l.passed = before
	}
}

// paused says whether the row waits for the end of a pause, or behind one that does. A retry
// goes before what follows in its key, and what an operator wants of a parked row is done.
func (e *byLanes) paused(l *lane, queue int, row *storage.Row) bool {
	if row.Holds != storage.NoHold {
		return false
	}
	passed := l.passed
	if row.Retrying {
		passed = nil
	}
	return e.engine.control.pauses.cover(row.Message.Topic, row.Message.Key, queue, passed)
}

// returned passes over what was to be sent again, and is paused meanwhile, with what waits
// behind it in its key.
func (e *byLanes) returned(f *flight) {
	for _, it := range f.items {
		e.passOver(it)
		if k := it.key; k != nil && it.stage == dropped {
			for _, next := range slices.Clone(k.items) {
				e.passOver(next)
			}
		}
	}
}

// passOver drops an item that waits and is paused.
func (e *byLanes) passOver(it *item) {
	l := it.lane
	if it.stage != inQueue || l.lost || !e.paused(l, it.slot, &it.row) {
		return
	}
	if !it.row.Deferred { // which is found by its time
		l.readers[it.slot].leaveOut(it.row.ID)
		e.notePassed(l, it.slot, &it.row)
	}
	if it.key != nil {
		it.key.remove(it)
	}
	e.held.drop(it)
	l.forget(it.key)
}

// notePassed remembers that what follows a paused row in its key waits, too.
func (e *byLanes) notePassed(l *lane, queue int, row *storage.Row) {
	if row.Message.Key == "" || len(e.engine.control.pauses.topics) == 0 {
		return
	}
	if l.passed == nil {
		l.passed = newKeySet()
	}
	l.passed.add(queue, row.Message.Key)
}
