package relay

import "slices"

// admit takes a row into memory, unless it is there, or has to wait for its
// sink or its key: then only the place is remembered from which to read it
// again. It says whether it took the row.
func (e *engine) admit(l *lane, row *Row) bool {
	if it := l.known[row.ID]; it != nil {
		if it.row.Message.ID != row.Message.ID && !row.Held {
			e.admitLater(it, row)
		}
		return false
	}
	if l.draining {
		l.recheck = lowestSet(l.recheck, row.ID-1)
		return false
	}
	o := e.outlets[e.routes.sink(row.Message.Topic)]
	if o.options.Sink == nil {
		e.alarmUnrouted(row.Message.Topic)
		l.alarmed = true
	}
	if !row.Held && l.passed(o, row.ID) {
		return false
	}
	if row.Later && !row.Held {
		e.putAway(l, row)
		return true
	}
	k, known := e.keyOf(l, o, row)
	if !known {
		l.recheck = lowestSet(l.recheck, row.ID-1)
		return false
	}
	if !k.takes(row) || !e.hasRoom(l, o, row) {
		l.forget(k)
		return false
	}
	e.take(&item{row: *row, lane: l, outlet: o, key: k})
	return true
}

// admitLater has a row wait for the one in memory that has its id, and what follows in
// its key wait for it.
func (e *engine) admitLater(it *item, row *Row) {
	it.doubled = true
	if row.Message.Key == "" {
		return
	}
	k, known := e.keyOf(it.lane, e.outlets[e.routes.sink(row.Message.Topic)], row)
	if k == nil || !known {
		return
	}
	if !k.held && !k.lagging {
		e.read.behind = append(e.read.behind, k)
	}
	k.after = it
	k.dropAt(row.ID)
	for _, later := range slices.Clone(k.items) {
		if later.row.ID > row.ID {
			e.leaveBehind(later)
		}
	}
}

// keyOf returns the key's state, if it has one, and whether it is known.
func (e *engine) keyOf(l *lane, o *outlet, row *Row) (k *key, known bool) {
	if row.Message.Key == "" || e.options.Claim == ByRows {
		return nil, true
	}
	ref := keyRef{o.index, row.Message.Key}
	if l.untold && l.keys[ref] == nil && !e.recall(l, ref) {
		return nil, false
	}
	return l.key(ref), true
}

// hasRoom says whether the outlet can take one more row; if not, it falls
// behind.
func (e *engine) hasRoom(l *lane, o *outlet, row *Row) bool {
	if row.Held {
		return o.roomAgain() > 0
	}
	if o.room() > 0 {
		return true
	}
	l.fall(o.index, row.ID)
	return false
}

// take queues a new item.
func (e *engine) take(it *item) {
	it.lane.known[it.row.ID] = it
	it.outlet.buffered++
	it.outlet.bytes += it.size()
	if it.row.Held {
		it.outlet.again++
	}
	it.numbering = e.numberingOf(&it.row)
	e.read.rowBytes += (it.size() - e.read.rowBytes) / 16
	if it.key != nil && it.row.Retrying && !it.key.held {
		e.hold(it.key, it.row.ID)
	}
	if t := it.ticket(); t != nil && t.fate != nil {
		e.wasDelivered(it)
		return
	}
	e.enqueue(it)
}

// enqueue puts an item where it waits for its turn.
func (e *engine) enqueue(it *item) {
	if it.key == nil {
		it.outlet.queue.push(queued{item: it}, it.row.Retrying)
		return
	}
	it.key.add(it)
	e.line(it.key)
}

// line puts a key into its outlet's queue if something of it may be sent.
func (e *engine) line(k *key) {
	if k.queued || k.aside != nil || k.flying > 0 || len(k.items) == 0 {
		return
	}
	k.queued = true
	e.outlets[k.ref.outlet].queue.push(queued{key: k}, k.held)
}

// putAway moves a row that was met before its time to the held ones.
func (e *engine) putAway(l *lane, row *Row) {
	it := &item{row: *row, lane: l, stage: inSettle, numbering: e.numberingOf(row)}
	l.known[row.ID] = it
	l.pinned++
	e.settle.add(it, it.settlement(StateScheduled))
}

// bury takes an item out of memory for good.
func (e *engine) bury(it *item) {
	if it.lane.known[it.row.ID] != it {
		return
	}
	delete(it.lane.known, it.row.ID)
	if it.doubled {
		it.lane.recheck = lowestSet(it.lane.recheck, it.row.ID-1)
	}
}

// drop takes an item that nothing was done with out of memory. Whoever calls
// it remembers where to read it again.
func (e *engine) drop(it *item) {
	it.stage = dropped
	it.outlet.release(it)
	e.bury(it)
}

// numberingOf says since when no other pending row can have the id of a row that is
// read now; -1 if one may have it, as with a row from before ids began anew.
func (e *engine) numberingOf(row *Row) int {
	if row.Held || row.ID > e.read.horizon && e.read.given <= e.read.highest {
		return -1
	}
	return e.read.numbering
}
