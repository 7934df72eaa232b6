package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Admission. A pending row of a page (read.go) enters memory and its sink's queue. If it can't, the sink's reader (reader.go)
// remembers a position from which the row will be read again. A deferred row needs no position: reads find it by its due time.
// What must hold: every pending row at or below a reader's cursor is either in memory or above a remembered position. For each
// sink, a row is in memory at most once. A row leaves memory only when no read in progress can return it.

// admit admits a row for each of the sinks that need it, and reports whether any sink took it. A row that is in memory already is
// ignored. If a sink's queue is full or the row's key is blocked, the sink's reader remembers a position from which to read the
// row later.
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

// admitTo admits a row for one of its sinks. If several sinks need the row, f is the state that its items share.
func (e *byLanes) admitTo(l *lane, row *storage.Row, queue int, f *joint) bool {
	r := &l.readers[queue]
	var meets meeting
	if r.known[row.ID] == nil {
		meets = e.meets(l, row, queue)
	}
	a := r.offer(row, meets)
	if a == rowUnasked {
		if !e.blocked.recall(l, keyRef{queue, row.Message.Key}) { // it isn't known whether the key is blocked
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

// meets returns the facts on which a reader decides what to do with a row that isn't in memory: the sink's room, whether the row
// is paused, whether the lane is being given up, and whether the state of the row's key is known.
func (e *byLanes) meets(l *lane, row *storage.Row, queue int) meeting {
	q := e.engine.queues[queue]
	if q.options.Sink == nil && !l.draining {
		e.engine.unrouted.waits(row)
		l.alarmed = true
	}
	room := e.roomFor(q, row)
	if row.Holds != storage.NoHold || e.engine.routes.tooOld(row, &e.engine.clock) { // a row that has expired, or about which an operator has decided, is usually not sent and then needs no room; if it must be sent, take checks the room
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

// take puts a row into memory after its reader has accepted it. It returns false if there is no room for the row after all.
func (e *byLanes) take(l *lane, row *storage.Row, queue int, f *joint) bool {
	q := e.engine.queues[queue]
	var k *key // nil if the message has no key
	if row.Message.Key != "" {
		k = l.key(keyRef{queue, row.Message.Key})
	}
	if row.Holds != storage.NoHold { // the operator's decision is carried out even if the row has expired
		e.skipOrDiscard(l, queue, k, row)
		return true
	}
	if e.engine.routes.tooOld(row, &e.engine.clock) {
		it := &item{row: *row, lane: l, slot: queue, joint: f, key: k, idGeneration: e.late.numberingOf(row)}
		if e.engine.expire(q, it) {
			l.add(it)
			return true
		}
		if e.roomFor(q, row) <= 0 { // the sink may have received the message in an earlier attempt, so the message doesn't expire, and is sent once there is room
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
	if t := it.batchRef(); t != nil && t.status != nil { // the sink has the message from an earlier attempt
		e.engine.deliveredBefore(it, *t.status)
	}
	return true
}

// skipOrDiscard carries out an operator's decision about a parked row that blocks its key. When the row's new state is written,
// the key is unblocked.
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

// waitForSameID makes a row wait for the item in memory that has the same id. When that item has left memory, the row is read
// again. Later rows of the same key wait, too.
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

// numberingOf returns idGeneration if no other pending row can have the row's id, and -1 otherwise. After the id sequence was
// reset, a new row may have the id of an older one.
func (r *lateRows) numberingOf(row *storage.Row) int {
	if row.Deferred || row.ID > r.safeID && r.lastID <= r.highest {
		return -1
	}
	return r.idGeneration
}

// settled removes an item whose settlement is written, and unblocks its key if the key waited for the settlement. A read in
// progress may return the row from an older snapshot, so the item is removed only when that read has ended.
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

// dueSooner schedules a read of deferred rows for the time when the next known row becomes due (due.next), unless a read is
// scheduled earlier. If this time has passed, it schedules a read for now, even if deferred rows have just been read: the
// database's clock may be slightly behind this host's clock, so the last read may have missed the row.
func (e *byLanes) dueSooner(now time.Time) {
	if e.due.next.After(now) {
		e.engine.poll.dueAt = earliest(e.engine.poll.dueAt, e.due.next)
	} else {
		e.due.next, e.engine.poll.dueAt = time.Time{}, now
	}
}

// giveUp drops a waiting item. A deferred row is found again by its due time. A pending row is read again with the lane's new
// rows or, if another message blocks its key, with the key's other dropped rows.
func (e *byLanes) giveUp(it *item) {
	if it.key != nil && it.key.blocked && it.key.blockedBy != it.row.ID {
		e.blocked.leaveBehind(it)
		return
	}
	if !it.row.Deferred {
		it.lane.readers.rewind(it.row.ID - 1) // rewind all readers, so that the lane's next holder reads for all sinks together
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
