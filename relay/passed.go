package relay

import (
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Pauses of topics and keys, for a relay that claims by lanes. Paused rows don't stay in memory; the lane remembers the
// position from which to read them again.

// controlled applies new pauses: it drops the waiting items that are paused now. If a pause has ended, the lanes are read again from
// the positions that they remember. Otherwise the lanes keep these positions and their sets of keys, because rereading a backlog of
// paused messages would delay all other messages.
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
		// The items are visited in the order of their ids, and the set of keys is empty at first. So an item that is not
		// paused itself is dropped only if an earlier item of its key was dropped.
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

// paused reports whether the row is paused, or follows a paused row of its key. A retry never counts as following another row,
// because it is sent before the other rows of its key. An operator's decision about a parked row is carried out even during a
// pause.
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

// returned handles the items of a job that are to be sent again. It drops the items that are paused now, and the paused items that
// wait behind them in their keys.
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

// passOver drops a waiting item that is paused.
func (e *byLanes) passOver(it *item) {
	l := it.lane
	if it.stage != inQueue || l.lost || !e.paused(l, it.slot, &it.row) {
		return
	}
	if !it.row.Deferred { // reads find a deferred row by the time at which it is due
		l.readers[it.slot].leaveOut(it.row.ID)
		e.notePassed(l, it.slot, &it.row)
	}
	if it.key != nil {
		it.key.remove(it)
	}
	e.held.drop(it)
	l.forget(it.key)
}

// notePassed records the key of a paused row, so that later rows of the key wait, too.
func (e *byLanes) notePassed(l *lane, queue int, row *storage.Row) {
	if row.Message.Key == "" || len(e.engine.control.pauses.topics) == 0 {
		return
	}
	if l.passed == nil {
		l.passed = newKeySet()
	}
	l.passed.add(queue, row.Message.Key)
}
