package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Into memory. A row comes in from a page (read.go), and goes into its sink's queue, or leaves
// a place from which it will be read again. What must hold: every row that is passed is known
// or above such a place, a row is in memory once, and it leaves only when no read that is
// under way can bring it back.

// admit takes a row into memory, for each of the sinks that need it, and says whether it did for
// any. Where it is in memory already it is ignored. Where a sink is full or a key is blocked it
// leaves a place to read it from later.
func (e *byLanes) admit(l *lane, row *storage.Row) (taken bool) {
	queues := e.engine.routes.queuesOf(row.Message.Topic, row.Sinks)
	var f *joint
	if len(queues) > 1 || row.Sinks != "" {
		f, queues = e.engine.settle.joiner.jointOf(l, row, queues)
	}
	for _, queue := range queues {
		taken = e.admitTo(l, row, queue, f) || taken
	}
	return taken
}

// admitTo takes a row into memory for one of its sinks. Where several need it, f is what they have
// in common.
func (e *byLanes) admitTo(l *lane, row *storage.Row, queue int, f *joint) bool {
	r := &l.readers[queue]
	var meets meeting
	if r.known[row.ID] == nil {
		meets = e.meets(l, row, queue)
	}
	a := r.offer(row, meets)
	if a == rowUnasked {
		if !e.blocked.recall(l, keyRef{queue, row.Message.Key}) { // nobody was asked whether it is blocked
			r.stopBefore(row)
			a = rowStopped
		} else {
			meets.keyKnown = true
			a = r.offer(row, meets)
		}
	}
	switch a {
	case rowDoubled:
		e.waitForSameID(r.known[row.ID], row)
	case rowPaused:
		if !row.Deferred {
			e.notePassed(l, queue, row)
		}
	case rowBeyond:
		e.engine.queues[queue].passed++
	case rowStopped:
		if !row.Deferred && !l.readers.isBehind(queue) {
			e.engine.queues[queue].stopped = true
		}
	case rowLater:
		it := &item{row: *row, lane: l, slot: queue, stage: inSettle, idGeneration: e.late.numberingOf(row)}
		l.add(it)
		e.engine.settle.add(it, result{state: storage.StateScheduled})
		return true
	case rowTaken:
		return e.take(l, row, queue, f)
	}
	return false
}

// meets returns what there is to know of a row that isn't in memory.
func (e *byLanes) meets(l *lane, row *storage.Row, queue int) meeting {
	q := e.engine.queues[queue]
	if q.options.Sink == nil && !l.draining {
		e.engine.unrouted.waits(row)
		l.alarmed = true
	}
	room := e.roomFor(q, row)
	if row.Holds != storage.NoHold || e.engine.routes.tooOld(row, &e.engine.clock) { // it is put away
		room = 1
	}
	return meeting{room: room, paused: e.engine.control.pauses != nil && e.paused(l, queue, row), leaving: l.draining, keyKnown: !l.keysUnknown}
}

func (e *byLanes) roomFor(q *sinkQueue, row *storage.Row) int {
	if row.Deferred {
		return q.roomForDeferred()
	}
	return q.room()
}

// take takes a row into memory that a reader has taken.
func (e *byLanes) take(l *lane, row *storage.Row, queue int, f *joint) bool {
	q := e.engine.queues[queue]
	var k *key // nil without order
	if row.Message.Key != "" {
		k = l.key(keyRef{queue, row.Message.Key})
	}
	if row.Holds != storage.NoHold { // also of one that is too old by now
		e.skipOrDiscard(l, queue, k, row)
		return true
	}
	if e.engine.routes.tooOld(row, &e.engine.clock) {
		it := &item{row: *row, lane: l, slot: queue, joint: f, key: k, idGeneration: e.late.numberingOf(row)}
		if e.engine.expire(q, it) {
			l.add(it)
			return true
		}
		if e.roomFor(q, row) <= 0 { // its sink may have it from before, so it is sent once there is room
			l.readers[queue].stopBefore(row)
			l.forget(k)
			return false
		}
	}
	it := &item{row: *row, lane: l, slot: queue, joint: f, queue: q, key: k, idGeneration: e.late.numberingOf(row)}
	l.add(it)
	if row.Retrying {
		e.blocked.block(it)
	}
	q.add(it)
	e.engine.poll.rowBytes += (it.bytes - e.engine.poll.rowBytes) / 16
	if t := it.batchRef(); t != nil && t.status != nil { // its sink has it from before
		e.engine.deliveredBefore(it, *t.status)
	}
	return true
}

// skipOrDiscard carries out what an operator has decided about a parked row that holds its key. The key goes
// on once that is written, from where it was left.
func (e *byLanes) skipOrDiscard(l *lane, queue int, k *key, row *storage.Row) {
	it := &item{row: *row, lane: l, slot: queue, key: k, stage: inSettle, idGeneration: e.late.numberingOf(row)}
	l.add(it)
	e.blocked.block(it)
	state := storage.StateError
	if row.Holds == storage.WantDiscard {
		state = storage.StateDiscarded
	}
	e.engine.settle.add(it, result{state: state})
}

// waitForSameID has a row wait: another message in memory, it, has the row's id. The row is read
// again when that one has left; the rows that follow in its key wait too.
func (e *byLanes) waitForSameID(it *item, row *storage.Row) {
	it.idCollision = true
	if row.Message.Key == "" {
		return
	}
	l, ref := it.lane, keyRef{it.slot, row.Message.Key}
	if l.keysUnknown && l.readers[ref.queue].keys[ref.key] == nil && !e.blocked.recall(l, ref) {
		return
	}
	k := l.key(ref)
	if !k.blocked && !k.dropped {
		e.blocked.resuming = append(e.blocked.resuming, k)
	}
	k.after = it
	k.dropAt(row.ID)
	for _, later := range slices.Clone(k.items) {
		if later.row.ID > row.ID {
			e.blocked.leaveBehind(later)
		}
	}
}

// numberingOf returns the current numbering if the row's id is unique among pending rows, else
// -1. After ids began anew a new row may have the id of one from before.
func (r *lateRows) numberingOf(row *storage.Row) int {
	if row.Deferred || row.ID > r.safeID && r.lastID <= r.highest {
		return -1
	}
	return r.idGeneration
}

// settled forgets an item, and does what had to wait until its state was written. A
// read that is under way may bring the row back from an older snapshot, so the item is
// remembered until that is over.
func (e *byLanes) settled(it *item) {
	if e.engine.poll.under > 0 {
		e.settledDuringRead = append(e.settledDuringRead, it)
	} else {
		e.held.forget(it)
	}
	switch k := it.key; {
	case it.lane.lost:
	case it.toWrite.state == storage.StateError && it.toWrite.holds:
		e.blocked.forgetSoon(k)
	case it.toWrite.state == storage.StateError || it.toWrite.state == storage.StateDiscarded:
		if it.expired && k != nil {
			k.inFlight--
		}
		if k != nil && k.blocked && k.blockedBy == it.row.ID {
			e.blocked.unblock(k)
		}
		e.engine.resume([]*item{it})
	case it.toWrite.state == storage.StateRetry:
		now := time.Now()
		e.due.next = earliest(e.due.next, now.Add(it.toWrite.delay))
		e.dueSooner(now)
		e.blocked.forgetSoon(k)
	}
}

// dueSooner brings the next read of deferred rows forward to when the next of them is known to
// become due. The database's clock may be a little behind.
func (e *byLanes) dueSooner(now time.Time) {
	if e.due.next.After(now) {
		e.engine.poll.dueAt = earliest(e.engine.poll.dueAt, e.due.next)
	} else {
		e.due.next, e.engine.poll.dueAt = time.Time{}, now
	}
}

// giveUp drops an item that waits, and remembers to read it again: with its key, if that
// waits for another message, or with its lane.
func (e *byLanes) giveUp(it *item) {
	if it.key != nil && it.key.blocked && it.key.blockedBy != it.row.ID {
		e.blocked.leaveBehind(it)
		return
	}
	if !it.row.Deferred {
		it.lane.readers.rewind(it.row.ID - 1) // all: so whoever holds the lane next reads for its sinks together
		e.held.rewound = true
	}
	if it.key != nil {
		it.key.remove(it)
	}
	e.held.drop(it)
}

func (e *byLanes) giveUpQueued() {
	for _, l := range e.held.lanes {
		for it := range l.items() {
			if it.stage == inQueue {
				e.giveUp(it)
			}
		}
	}
}
