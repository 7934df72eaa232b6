package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// What is read again. A place that a lane or a key remembers comes in, or a time, and the rows
// that wait there go to admit once more: what a sink had no room for, what a key left behind
// while it was blocked, and held rows whose time has come. What must hold: a place is moved on
// with each row that is taken, and cleared only by a page that had all up to the cursor.

// pollSkipped reads what a queue passed over while it had no room.
func (e *byLanes) pollSkipped() *fetch {
	for _, q := range e.queues {
		if !q.roomy() || q.circuit.state != circuitClosed || !e.skippedAny(q) {
			continue
		}
		f := &fetch{kind: readSkipped, queue: q, limit: min(q.room(), readLimit), maxBytes: readBytes}
		for _, l := range e.lanesInTurn() {
			if l.skippedFrom[q.index] != none && !l.draining {
				f.positions = append(f.positions, storage.Position{Lane: l.Lane, After: l.skippedFrom[q.index], Until: l.cursor})
			}
		}
		if len(f.positions) > 0 {
			return f
		}
	}
	return nil
}

// mergeSkipped takes in rows that the queue had passed over, in each lane until
// there is no room again, and ends its lag in lanes that were read to their end.
func (e *byLanes) mergeSkipped(f *fetch) {
	q, full := f.queue, false
	lanes := e.catchingUp(f)
	for i := range f.page.Rows {
		row := &f.page.Rows[i]
		l := lanes[row.Lane]
		if l == nil {
			continue
		}
		ours := e.routes.sink(row.Message.Topic) == q.index
		if full = full || (ours && q.room() <= 0); full {
			break
		}
		l.skippedFrom[q.index] = row.ID
		if ours {
			e.admit(l, row)
		}
	}
	if full || f.page.More {
		return
	}
	for _, p := range f.positions {
		if l := lanes[p.Lane]; l != nil && p.Until == l.cursor {
			l.skippedFrom[q.index] = none
		}
	}
}

// catchUpKeys is how many keys are caught up with by one read.
const catchUpKeys = 64

// pollKeys reads what keys of a queue left behind while they were blocked. A read
// of a key walks over all that waits in its lane, which may be much: so it goes only
// so far that it doesn't keep the reader for long.
func (e *byLanes) pollKeys() *fetch {
	e.resuming = slices.DeleteFunc(e.resuming, func(k *key) bool {
		return !k.dropped || k.blocked || k.lane.lost
	})
	for _, q := range e.queues {
		q.freed = 0
	}
	f := &fetch{kind: readKeys, maxBytes: readBytes}
	for _, k := range e.resuming {
		q := e.queues[k.ref.queue]
		q.freed++
		if len(f.keys) == catchUpKeys || k.lane.draining || f.queue != q && (f.queue != nil || !q.roomy() || q.circuit.state != circuitClosed) || k.mustWait() {
			continue
		}
		f.queue = q
		f.keys = append(f.keys, k)
	}
	if f.queue == nil {
		return nil
	}
	slices.SortStableFunc(f.keys, func(a, b *key) int { return a.lane.Lane - b.lane.Lane })
	e.keyStride = max(e.keyStride, leastStride)
	for _, k := range f.keys {
		f.positions = append(f.positions, storage.Position{Lane: k.lane.Lane, After: k.resumeFrom, Until: min(k.lane.cursor, k.resumeFrom+int64(e.keyStride)), Key: k.ref.key})
	}
	f.limit = min(f.queue.room(), readLimit)
	return f
}

// mergeKeys takes in rows that blocked keys had left behind, and has the keys whose
// rows are all read go on with new ones.
func (e *byLanes) mergeKeys(f *fetch) {
	keys := map[storage.LaneKey]*key{}
	for i, k := range f.keys {
		if l := e.laneOf(f, k.lane.Lane); l == k.lane && !l.draining && k.dropped && k.resumeFrom == f.positions[i].After && e.mayGoOn(k) {
			keys[storage.LaneKey{Lane: l.Lane, Key: k.ref.key}] = k
		}
	}
	for i := range f.page.Rows {
		row := &f.page.Rows[i]
		k := keys[storage.LaneKey{Lane: row.Lane, Key: row.Message.Key}]
		if k == nil || row.ID <= k.resumeFrom {
			continue
		}
		if f.queue.room() <= 0 {
			return
		}
		k.resumeFrom = row.ID
		if e.admit(k.lane, row); k.resumeFrom < row.ID { // dropped once more
			delete(keys, storage.LaneKey{Lane: row.Lane, Key: row.Message.Key})
		}
	}
	if f.page.More {
		return
	}
	e.keyStride.learn(time.Since(f.began))
	for i, k := range f.keys {
		if keys[storage.LaneKey{Lane: k.lane.Lane, Key: k.ref.key}] != k {
			continue
		}
		if k.resumeFrom = f.positions[i].Until; k.resumeFrom == k.lane.cursor {
			k.dropped = false
			k.lane.forget(k)
		}
	}
}

// dueInterval is how often held rows are looked for when the relay doesn't
// know of any that becomes due.
const dueInterval = time.Second

// pollDue reads the held rows whose time has come.
func (e *byLanes) pollDue(now time.Time) *fetch {
	if e.poll.dueAt.After(now) {
		return nil
	}
	room, bytes := 0, 0
	for _, q := range e.queues {
		if q.worthwhile(q.roomAgain(), q.options.Buffer/2) && (q.circuit.state == circuitClosed || !e.anyUp()) {
			room, bytes = max(room, q.roomAgain()), max(bytes, q.options.BufferBytes-q.bytes)
		}
	}
	f := &fetch{kind: readDue, cursor: e.due.cursor, limit: min(room, readLimit), maxBytes: min(bytes, readBytes)}
	for _, l := range e.sortedLanes() {
		if !l.draining {
			f.lanes = append(f.lanes, l.Lane)
		}
	}
	if room == 0 || len(f.lanes) == 0 {
		return nil // whatever frees memory brings the loop here again
	}
	return f
}

// mergeDue takes in held rows whose time has come. Those for which there is no
// room are met again in the next pass.
func (e *byLanes) mergeDue(f *fetch) {
	rows, admitted, bytes, largest := f.page.Rows, 0, 0, 0
	for i := range rows {
		bytes += len(rows[i].Message.Payload)
		largest = max(largest, len(rows[i].Message.Payload))
		if l := e.laneOf(f, rows[i].Lane); l != nil && !l.draining && e.admit(l, &rows[i]) {
			admitted++
		}
	}
	more := len(rows) >= f.limit || bytes+largest > f.maxBytes // a limit ended the page
	now := time.Now()
	e.due.none = admitted == 0 && !more
	e.due.cursor, e.poll.dueAt = f.cursor, now
	switch {
	case !more:
		e.due.cursor = storage.DueCursor{}
		e.poll.dueAt = now.Add(dueInterval)
		e.due.sooner(now)
	case admitted == 0:
		e.poll.dueAt = now.Add(50 * time.Millisecond)
	}
}
