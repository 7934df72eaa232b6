package relay

import (
	"maps"
	"slices"
	"time"
)

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

// passed says that the outlet has passed over this place and comes back to it.
func (l *lane) passed(o *outlet, id int64) bool {
	return l.lag[o.index] != none && id > l.lag[o.index]
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

// takes says whether the row may come into memory. Behind a held key it may
// not: the key remembers where to read on.
func (k *key) takes(row *Row) bool {
	switch {
	case k == nil:
		return true
	case k.held && (k.holder != row.ID || !row.Held), k.unsure():
		if !row.Held {
			k.dropAt(row.ID)
		}
		return false
	default:
		return row.Held || !k.lagging || row.ID <= k.behind
	}
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

func (o *outlet) release(it *item) {
	o.buffered--
	o.bytes -= it.size()
	if it.row.Held {
		o.again--
	}
}

// unroutedInterval is how often a topic without a route is told of.
const unroutedInterval = time.Minute

// unroutedRows is how many rows are read at once to learn what has no route.
const unroutedRows = 500

// lookAtUnrouted reads what waits without a route, now and then: who takes a lane
// over knows from its marks that something does, and not which topics; and nothing
// else would tell that it is gone. Each lane is read up to the first such row.
func (e *engine) lookAtUnrouted(now time.Time) (readJob, bool) {
	if e.read.unroutedAt.After(now) {
		return readJob{}, false
	}
	if !e.read.unroutedAt.IsZero() {
		e.read.unroutedAt = time.Time{}
		for _, l := range e.lanes {
			l.alarmed = false
		}
	}
	o := e.outlets[len(e.outlets)-1]
	var positions []Position
	for _, l := range e.lanesInTurn() {
		if l.lag[o.index] != none && !l.alarmed && !l.draining {
			positions = append(positions, Position{Lane: l.Lane, After: l.lag[o.index], Until: l.cursor})
		}
	}
	if len(positions) > 0 {
		return readJob{kind: readUnrouted, outlet: o, positions: positions, limit: unroutedRows, maxBytes: 1 << 20}, true
	}
	e.read.unroutedAt = now.Add(unroutedInterval)
	if !e.lagging(o) {
		clear(e.unrouted)
	}
	return readJob{}, false
}

// mergeUnrouted alarms of the topics of a page. A page that has all that waits tells
// also which of them are gone.
func (e *engine) mergeUnrouted(job readJob, page Page) {
	o, lanes, topics, whole := job.outlet, e.catchingUp(job), map[string]bool{}, !page.More
	for _, l := range e.lanes {
		whole = whole && (l.lag[o.index] == none || lanes[l.Lane] == l)
	}
	for i := range page.Rows {
		row := &page.Rows[i]
		l := lanes[row.Lane]
		switch {
		case l == nil:
		case e.routes.sink(row.Message.Topic) == o.index:
			topics[row.Message.Topic], l.alarmed = true, true
			e.alarmUnrouted(row.Message.Topic)
		case !l.alarmed:
			l.lag[o.index] = row.ID
		}
	}
	if page.More {
		return
	}
	for _, p := range job.positions {
		if l := lanes[p.Lane]; l != nil && !l.alarmed && p.Until == l.cursor {
			l.lag[o.index] = none
		}
	}
	if whole {
		maps.DeleteFunc(e.unrouted, func(topic string, _ time.Time) bool { return !topics[topic] })
	}
}

func (e *engine) alarmUnrouted(topic string) {
	now := time.Now()
	if now.Before(e.unrouted[topic]) {
		return
	}
	if len(e.unrouted) >= maxCachedTopics {
		clear(e.unrouted)
	}
	e.unrouted[topic] = now.Add(unroutedInterval)
	e.options.Observer.Unrouted(topic)
	e.options.Logger.Warn("relay: no route or handler takes this topic, its messages wait; add one and restart",
		"relay", e.options.Name, "topic", topic)
}
