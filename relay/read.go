package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Reading: a row's way from the table to memory, by lanes.
//
//	startRead  the loop asks for what there is reason and room to read: what is new, what a
//	           sink or a key left behind, what is due, and so on, in turn
//	ask        the reader puts the question to the database
//	merge      the loop takes the answer. Rows may have appeared below what was read before:
//	           then the read goes to the reader once more, for a scan (scan.go). A lane may not
//	           know whether a key is blocked: then once more, to ask that (blocked.go). When
//	           both are known the rows go to admit (admit.go), in their order; and what had
//	           to be remembered while the read was under way is forgotten
//
// What must hold: the database answers one read at a time, so no answer is older than the one
// before. While a full page is taken in, the next read is already under way, and poll.under is
// 2. A page counts only if it is of the server that the lanes were leased from. A read goes on
// from a place that the lane remembers, and a place is moved on only past rows that were
// admitted, or that another place remembers. No kind of read starves another.

// unsettledLimit: the relay reads nothing while more than this many outcomes wait to be
// written.
const unsettledLimit = 20_000

// mayRead says whether anything may be read now.
func (e *engine) mayRead(now time.Time) bool {
	return e.control.heard && !e.stopping.begun && e.settle.count() <= unsettledLimit && now.Before(e.lease.safeUntil) && !e.lease.waits && !now.Before(e.poll.pauseUntil)
}

// reportIdle tells the Observer of an empty read, each second, while a healthy relay has no reason to read: it waits, has
// no lanes, or no room, as its sinks are down. Else the time of its last read would stand still, and an alert take it for dead.
func (e *engine) reportIdle(now time.Time) {
	if e.poll.under == 0 && (e.mayRead(now) || e.lease.waits) && e.health.readFails.Load() == 0 && e.health.lease.since.Load() == 0 {
		e.options.Observer.Polled(0)
	}
}

// notePollTime has the table read for what is new once the poll's time has come.
func (p *polling) notePollTime(now time.Time, longest time.Duration) {
	if !p.at.After(now) {
		p.polled = p.polled || !p.fresh
		p.fresh = true
		p.at = now.Add(min(cmp.Or(p.pace, longest), longest))
	}
}

// startRead starts the next read for which there is reason and room. Questions about blocked
// keys are few, and come first; the other kinds take turns, so that none starves another.
func (e *byLanes) startRead(now time.Time) {
	for _, q := range e.engine.queues {
		if q.stopped && q.hasReadRoom() {
			q.stopped, e.held.rewound = false, true
		}
	}
	if e.held.rewound {
		e.held.rewound, e.engine.poll.fresh, e.engine.poll.empty = false, true, 0
	}
	if e.engine.poll.under > 0 || len(e.held.lanes) == 0 || !e.engine.mayRead(now) {
		return
	}
	e.engine.poll.notePollTime(now, e.engine.options.Poll)
	f := e.blocked.pollBlocked(now)
	for tried := 0; f == nil && tried < int(kindsInTurn); tried++ {
		e.turn = (e.turn + 1) % kindsInTurn
		switch e.turn {
		case readLanes:
			f = e.pollLanes(now)
		case readSkipped:
			f = e.pollSkipped()
		case readKeys:
			if len(e.blocked.resuming) > 0 {
				f = e.pollKeys()
			}
		case readDue:
			f = e.pollDue(now)
		case readSweep:
			if !e.ahead && (len(e.sweep.left) > 0 || !now.Before(e.sweep.next)) {
				f = e.sweep.step(now)
			}
		case readUnrouted:
			if len(e.engine.unrouted.topics) > 0 || e.held.anyBehind(e.engine.queues[len(e.engine.queues)-1]) {
				f = e.pollUnrouted(now)
			}
		}
	}
	if f != nil {
		e.engine.poll.under++
		e.seq++
		f.seq, f.began, f.lateAfter = e.seq, now, none
		e.reads <- f
	}
}

// pollLanes reads on in all lanes. Where messages come one by one, something may have
// appeared late before most reads, a few ids back: what lies there is read once more, so that
// what is late comes with the page, and isn't looked for by another statement.
func (e *byLanes) pollLanes(now time.Time) *fetch {
	e.setApart()
	room := e.engine.mostRoom(e.late.scans) // a scan walks over the rows in memory once more: so after one a page may fill only half of the buffer
	if !e.engine.poll.fresh || room == 0 {
		return nil
	}
	e.engine.poll.begin(now, e.engine.options.Poll)
	f := &fetch{kind: readLanes, limit: min(room, readLimit), maxBytes: readBytes}
	again := int64(math.MaxInt64)
	if e.late.span > 0 {
		again = e.held.furthest() - e.late.span
	}
	for _, l := range e.held.lanesInTurn() {
		if !l.draining && !l.unswept {
			f.positions = append(f.positions, storage.Position{Lane: l.Lane, After: l.readsAfter(again)})
		}
	}
	if len(f.positions) == 0 {
		return nil
	}
	e.leaveApart(f)
	return f
}

// readsAfter is the id after which the next page reads the lane. Once a page has confirmed the lane's place (placed), it
// begins a little below the cursor, so that late rows come with the page. Before, it begins at the cursor, the mark of
// whoever held the lane last: a store takes ids far below the last one that it has met for a sign that ids began anew.
func (l *lane) readsAfter(again int64) int64 {
	if l.placed {
		return min(l.readers.head(), again)
	}
	return l.readers.head()
}

// mostRoom is the room of the queue that has most. A queue whose room is less falls behind if
// it must, and reads for itself later; so does one that is apart. While no sink is up the buffers fill, so that the rows
// are there when one comes back.
func (e *engine) mostRoom(halfBuffer bool) (most int) {
	for _, q := range e.queues {
		room := q.room()
		if halfBuffer {
			room -= q.options.Buffer / 2
		}
		if !q.apart && q.shouldRead(room, q.capacity) && (q.up() || !anyUp(e.queues)) {
			most = max(most, room)
		}
	}
	return most
}

// reader carries out reads, one after the other. It uses nothing of the loop's state but the lanes' sets of paused keys
// (keySet, which has a lock): all else that a read decides by, it brings along.
func (e *byLanes) reader(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-e.reads:
			f.err = e.engine.base.ask(ctx, f)
			e.engine.results <- func() { e.merge(f) }
		}
	}
}

// ask puts the question of a read's step to the database.
func (b *base) ask(ctx context.Context, f *fetch) (err error) {
	switch { // these are several calls of the store, each with its own time-out
	case f.step == stepLate:
		f.lateAfter, err = b.scanLate(ctx, f.late)
		return err
	case f.kind == readSweep:
		return b.sweepStep(ctx, f.scan)
	}
	ctx, cancel := context.WithTimeout(ctx, b.callTimeout)
	defer cancel()
	began := time.Now()
	switch {
	case f.step == stepBlocked || f.kind == readBlockers:
		f.blocked, err = b.store.BlockedAmong(ctx, f.asked)
	case f.kind == readDue:
		f.page.Rows, f.cursor, err = b.store.Due(ctx, f.lanes, f.cursor, f.limit, f.maxBytes)
	case f.kind == readBlocked:
		f.blocked, err = b.store.BlockedKeys(ctx, f.lanes, f.limit)
	default:
		f.page, err = b.store.Read(ctx, storage.ReadRequest{Positions: f.positions, Limit: f.limit, MaxBytes: f.maxBytes, Except: f.except})
		f.took = time.Since(began)
	}
	b.reached("read", began, err)
	if b.options.Tracer != nil {
		b.traceClaimed(began, f.page.Rows)
	}
	if f.step == stepBlocked && bringsPage[f.kind] && err == nil {
		// The answer about keys counts only if the server's epoch is still the page's. A
		// server that has fallen back doesn't know the retries that were written since, and
		// the page doesn't have the rows that these hold up.
		lateAfter, err := b.appearedSince(ctx, f.page.Epoch)
		if err != nil {
			return err
		}
		f.lateAfter = lowestSet(f.lateAfter, lateAfter)
	}
	return err
}

// merge takes in what a read has brought: at once, or after the steps that have to come
// before. None of a page's rows is sent before those that belong before it are known. Then it
// ends the read.
func (e *byLanes) merge(f *fetch) {
	if f.step == stepPage {
		if f.page.Warning != "" {
			e.engine.options.Logger.Warn("relay: "+f.page.Warning, "relay", e.engine.options.Name)
		}
		if f.err == nil && bringsPage[f.kind] {
			if f.err = e.checkEpoch(f); f.err == nil {
				f.late = e.late.scanFirst(f)
			}
		}
		if f.late != nil {
			f.step = stepLate
			e.reads <- f
			return
		}
	}
	if f.err == nil && e.blocked.askFirst(f) {
		f.step = stepBlocked
		e.reads <- f
		return
	}
	if f.err == nil {
		if bringsPage[f.kind] {
			// All that has appeared at or below SafeID is merged with this page, or reported by the next one.
			e.late.safeID, e.late.lateAfter = f.page.SafeID, none
			e.learnStride(f)
		}
		e.blocked.answers = f.answers
		if f.late != nil {
			e.mergeLate(f)
		}
		switch f.kind {
		case readLanes:
			e.mergeLanes(f)
		case readSkipped:
			e.mergeSkipped(f)
		case readKeys:
			e.mergeKeys(f)
		case readDue:
			e.mergeDue(f)
		case readSweep:
			e.sweep.merge(f)
		case readUnrouted:
			e.mergeUnrouted(f)
		case readBlocked:
			e.blocked.mergeBlocked(f)
		case readBlockers:
			e.blocked.mergeBlockers(f)
		}
		e.blocked.answers = nil
		if f.kind != readSweep {
			e.engine.options.Observer.Polled(len(f.page.Rows))
		}
	}

	e.engine.poll.under--
	for _, it := range e.settledDuringRead {
		e.held.forget(it)
	}
	e.settledDuringRead = e.settledDuringRead[:0]
	if len(e.blocked.toForget) > 0 {
		e.blocked.forgetKeys()
	}
	if f.err != nil {
		e.engine.health.readFailed(f.err)
		e.readFailed(f)
	}
	e.late.lateAfter = lowestSet(e.late.lateAfter, f.lateAfter)
	switch since := &e.failingSince[f.kind]; {
	case f.err == nil || f.kind == readSweep:
		*since = 0
	case *since == 0:
		*since = e.engine.health.now()
	}
	longest := int64(0) // some kind of read has failed since then, as Healthy is told
	for _, since := range e.failingSince {
		if since != 0 && (longest == 0 || since < longest) {
			longest = since
		}
	}
	e.engine.health.readFails.Store(longest)
}

// errOtherServer is the error of a read whose page comes from another epoch than its
// lanes' leases.
var errOtherServer = errors.New("another server was read than the one that leased the lanes")

// checkEpoch gives up the lanes that were leased in another epoch than the page comes from: all
// of them, as what the page tells of ids would be believed of each. What is in memory of them may
// not be what stands in the table now, and ids at or below their cursors may be given out again.
// The marks that the server has are as old as its rows: whoever leases the lanes next goes on from
// there. It may be this relay, at once.
//
// Where it happens again and again, reads go to another server than writes: to a
// replica, of which no page may be taken in.
func (e *byLanes) checkEpoch(f *fetch) error {
	fell := false
	for _, l := range e.held.sortedLanes() {
		if e.held.laneOf(f.seq, l.Lane) != nil && l.epoch != f.page.Epoch && !l.void {
			l.void, fell = true, true
			e.drainLane(l, true)
		}
	}
	if !fell {
		e.elsewhere = 0
		return nil
	}
	e.elsewhere++
	e.late.safeID, e.late.lastID, e.late.lateAfter = 0, 0, none
	if e.elsewhere == 1 {
		return fmt.Errorf("%w, or the same one after it may have lost commits: the lanes are read again from their marks", errOtherServer)
	}
	return fmt.Errorf("%w, again and again: if a proxy sends reads to a replica, give the relay a connection to the primary", errOtherServer)
}

// mergeLanes takes in the page: new rows, and late rows from the part that was read again.
// A lane without rows moves its cursor on, too, so that the ids of deleted rows are not walked
// over again: to Through if a limit ended the page, else no further than SafeID, because late
// rows may still appear above that.
func (e *byLanes) mergeLanes(f *fetch) {
	rows, heads, asked := f.page.Rows, e.held.heads(f.seq, f.positions), e.engine.poll.fresh
	news := e.advance(f)
	switch {
	case f.page.More:
		e.engine.poll.fresh, e.late.span = true, 0 // what is read once more must not fill the next page, too
		e.readAhead(rows)
	case f.isStretch():
		e.engine.poll.fresh, news = true, true
	}
	taken := 0
	for i := range rows {
		if l := e.held.laneOf(f.seq, rows[i].Lane); l != nil && !l.draining && e.admit(l, &rows[i]) {
			taken++
		}
	}
	e.engine.poll.fresh = e.engine.poll.fresh && (asked || e.held.moved(f.seq, f.positions, heads)) // else the next page would be the same
	e.engine.poll.count(!news && taken == 0)
}

// advance moves the readers that a page was read for to where the page has come, and says whether it has a row
// above the head of its lane.
func (e *byLanes) advance(f *fetch) (news bool) {
	last := map[int]int64{} // row of each lane
	for i := range f.page.Rows {
		last[f.page.Rows[i].Lane] = f.page.Rows[i].ID
	}
	for _, p := range f.positions {
		l := e.held.laneOf(f.seq, p.Lane)
		if l == nil || l.draining {
			continue
		}
		through := f.page.Through
		switch {
		case f.page.More:
		case p.Until > 0 && p.Until <= max(f.page.LastID, l.readers.head()): // the head may be above LastID, if ids began anew
			through = p.Until
		default:
			through = min(f.page.SafeID, f.page.LastID)
		}
		if through = max(through, last[p.Lane]); p.Until > 0 {
			through = min(through, p.Until)
		}
		news = news || last[p.Lane] > l.readers.head()
		l.readers.advance(p.After, through, f.reads)
	}
	return news
}

// readAhead starts the next read before this page's rows are taken in, so that the database isn't idle. It first counts
// the rows in each queue, as any may get them: so the next read asks only for the room that is left. The cursors have
// moved on already.
func (e *byLanes) readAhead(rows []storage.Row) {
	bytes := payloads(rows)
	for _, q := range e.engine.queues { // any of them may get the rows
		q.buffered += len(rows)
		q.bytes += bytes
	}
	e.engine.poll.under-- // until the read ends
	e.ahead = true        // what the page has brought isn't in memory yet: so no sweep may start, which would take these rows for forgotten ones
	e.startRead(time.Now())
	e.ahead = false
	e.engine.poll.under++
	for _, q := range e.engine.queues {
		q.buffered -= len(rows)
		q.bytes -= bytes
	}
}

// readFailed delays the next read. It also records from where to look again for the rows that
// this read would have brought.
func (e *byLanes) readFailed(f *fetch) {
	if f.kind == readSweep {
		e.sweep.stepFailed(f)
		return
	}
	if f.late != nil { // what it had not walked, and what its page would have brought
		left := f.late.left
		if f.step == stepBlocked {
			left = f.late.positions // nothing of the scan was merged: all is scanned again
		}
		e.late.lateAfter = none
		for _, p := range slices.Concat(left, f.late.brought) {
			if e.held.laneOf(f.seq, p.Lane) != nil {
				e.late.lateAfter = lowestSet(e.late.lateAfter, p.After)
			}
		}
	}
	if errors.Is(f.err, errOtherServer) && e.elsewhere == 1 {
		e.engine.failed("read", f.err)
		return // the lanes are leased anew and read at once
	}
	if e.engine.pauseReading(f.err) {
		return
	}
	e.engine.poll.dueAt = laterOf(e.engine.poll.dueAt, e.engine.poll.at)
	switch {
	case f.late != nil:
		e.late.stride = f.late.stride
		e.late.stride.failed()
	case len(f.except) > 0:
		e.pageStride.failed()
	case f.kind == readKeys:
		e.keyStride = 0
	}
}

// pauseReading waits before the next read after one that failed, unless that ends the
// relay.
func (e *engine) pauseReading(err error) (over bool) {
	if e.stopOtherClaim(err) {
		return true
	}
	e.failed("read", err)
	e.poll.fresh = false
	e.poll.at = time.Now().Add(max(e.options.Poll, 100*time.Millisecond))
	e.poll.pauseUntil = e.poll.at
	return false
}

// drained says that nothing is left to deliver, and that the relay holds all the lanes that
// are its part: those of a relay that died are waited for. Three things don't count as left:
// messages without a route, messages that are paused, and messages behind a key whose next attempt is not yet due.
// The last sweep must have found nothing, and be no older than sweepSoonest: that of each lane when it was leased, or a pass.
func (e *byLanes) drained() bool {
	resuming := slices.ContainsFunc(e.blocked.resuming, func(k *key) bool { return !e.engine.queues[k.ref.queue].paused })
	stopped := slices.ContainsFunc(e.engine.queues, func(q *sinkQueue) bool { return q.stopped && !q.paused && q.options.Sink != nil })
	if e.held.rewound || stopped || !e.due.none || resuming || len(e.held.lanes) != e.share {
		return false
	}
	for _, l := range e.held.lanes {
		if l.draining {
			return false
		}
		for i := range l.readers {
			if l.readers.isBehind(i) && !e.engine.queues[i].paused && (e.engine.queues[i].options.Sink != nil || !l.alarmed) {
				return false
			}
		}
	}
	now := time.Now()
	switch s := e.sweep; {
	case len(s.left) > 0: // one is under way
	case !s.found && now.Sub(s.clean) < sweepSoonest:
		return true
	default:
		s.next = time.Time{} // a pass begins at once
	}
	e.startRead(now) // and waits for no poll
	return false
}

// What is read again. A place that a lane or a key remembers comes in, or a time, and the rows
// that wait there go to admit once more: what a sink had no room for, what a key left behind
// while it was blocked, and deferred rows whose time has come. What must hold: a place moves past
// each row that was looked at. It is cleared only by a page without More that reached the
// cursor.

// pollSkipped reads what a queue passed over while it had no room.
func (e *byLanes) pollSkipped() *fetch {
	for _, q := range e.engine.queues {
		if !q.hasReadRoom() || !q.up() && anyUp(e.engine.queues) || !e.held.anyBehind(q) {
			continue
		}
		if positions := e.held.lagging(q); len(positions) > 0 {
			f := &fetch{kind: readSkipped, queue: q, reads: q.is, positions: positions, limit: min(q.room(), readLimit), maxBytes: readBytes}
			e.leaveOut(f)
			return f
		}
	}
	return nil
}

// mergeSkipped takes in rows of a queue that was behind.
func (e *byLanes) mergeSkipped(f *fetch) {
	e.advance(f)
	for i := range f.page.Rows {
		row := &f.page.Rows[i]
		if l := e.held.laneOf(f.seq, row.Lane); l != nil && !l.draining && slices.Contains(e.engine.routes.queuesOf(row.Message.Topic, row.Sinks), f.queue.index) {
			e.admit(l, row)
		}
	}
}

// mergeUnrouted alarms of the topics of a page. A page that has all that waits tells
// also which of them are gone.
func (e *byLanes) mergeUnrouted(f *fetch) {
	queue, topics, whole := f.queue.index, map[string]bool{}, !f.page.More
	for _, l := range e.held.lanes {
		ofThisRead := func(p storage.Position) bool {
			return p.Lane == l.Lane && p.After <= l.readers[queue].cursor && p.Until >= l.readers.head()
		}
		whole = whole && (!l.readers.isBehind(queue) || slices.ContainsFunc(f.positions, ofThisRead))
	}
	e.mergeSkipped(f) // which alarms of each
	for i := range f.page.Rows {
		if row := &f.page.Rows[i]; slices.Contains(e.engine.routes.queuesOf(row.Message.Topic, row.Sinks), queue) {
			topics[row.Message.Topic] = true
		}
	}
	if whole {
		maps.DeleteFunc(e.engine.unrouted.topics, func(topic string, _ time.Time) bool { return !topics[topic] })
	}
}

// catchUpKeys is how many keys are caught up with by one read.
const catchUpKeys = 64

// pollKeys reads what keys of a queue left behind while they were blocked. It also counts each queue's keys that have to
// catch up (freed): roomForDeferred takes no more retries while there are too many. A read
// of a key walks over all that waits in its lane, which may be much: so it goes only
// so far that it doesn't keep the reader for long.
func (e *byLanes) pollKeys() *fetch {
	e.blocked.resuming = slices.DeleteFunc(e.blocked.resuming, func(k *key) bool {
		return !k.dropped || k.blocked || k.lane.lost
	})
	for _, q := range e.engine.queues {
		q.freed = 0
	}
	f := &fetch{kind: readKeys, maxBytes: readBytes}
	for _, k := range e.blocked.resuming {
		q := e.engine.queues[k.ref.queue]
		q.freed++
		ofThisRead := f.queue == q || f.queue == nil && q.hasReadRoom() && q.up() // which is for one queue
		if ofThisRead && len(f.keys) < catchUpKeys && !k.lane.draining && k.reader().cursor > 0 && !k.mustWait() {
			f.queue = q
			f.keys = append(f.keys, k)
		}
	}
	if f.queue == nil {
		return nil
	}
	slices.SortStableFunc(f.keys, func(a, b *key) int { return a.lane.Lane - b.lane.Lane })
	e.keyStride = max(e.keyStride, leastStride)
	for _, k := range f.keys {
		f.positions = append(f.positions, storage.Position{Lane: k.lane.Lane, After: k.resumeFrom, Until: max(k.resumeFrom, min(k.reader().cursor, k.resumeFrom+int64(e.keyStride))), Key: k.ref.key})
	}
	f.limit = min(f.queue.room(), readLimit)
	return f
}

// mergeKeys takes in rows that blocked keys had left behind, and has the keys whose
// rows are all read go on with new ones.
func (e *byLanes) mergeKeys(f *fetch) {
	keys := map[storage.LaneKey]*key{}
	for i, k := range f.keys {
		if l := e.held.laneOf(f.seq, k.lane.Lane); l == k.lane && !l.draining && k.dropped && k.resumeFrom == f.positions[i].After && e.blocked.mayGoOn(k) {
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
		if k.resumeFrom = f.positions[i].Until; k.resumeFrom >= k.reader().cursor {
			k.dropped = false
			k.lane.forget(k)
		}
	}
}

// dueInterval is how often deferred rows are looked for when the relay doesn't
// know of any that becomes due.
const dueInterval = time.Second

// pollDue reads the deferred rows whose time has come.
func (e *byLanes) pollDue(now time.Time) *fetch {
	again := e.due.pausedTo != (storage.DueCursor{}) && !now.Before(e.due.againAt)
	if !again && e.engine.poll.dueAt.After(now) {
		return nil
	}
	room, bytes := 0, 0
	for _, q := range e.engine.queues {
		if q.shouldRead(q.roomForDeferred(), q.options.Buffer/2) && (q.up() || !anyUp(e.engine.queues)) {
			room, bytes = max(room, q.roomForDeferred()), max(bytes, q.options.BufferBytes-q.bytes)
		}
	}
	f := &fetch{kind: readDue, cursor: e.due.cursor, limit: min(room, readLimit), maxBytes: min(bytes, readBytes), again: again}
	if again {
		f.cursor = e.due.again
	}
	f.from = f.cursor
	for _, l := range e.held.sortedLanes() {
		if !l.draining {
			f.lanes = append(f.lanes, l.Lane)
		}
	}
	if room == 0 || len(f.lanes) == 0 {
		return nil // whatever frees memory brings the loop here again
	}
	return f
}

// allPaused says that a deferred row is paused for all of its sinks, or these are paused.
func (e *byLanes) allPaused(l *lane, row *storage.Row) bool {
	return row.Holds == storage.NoHold && !slices.ContainsFunc(e.engine.routes.queuesOf(row.Message.Topic, row.Sinks), func(queue int) bool {
		return !e.engine.queues[queue].paused && !e.paused(l, queue, row)
	})
}

// mergeDue takes in deferred rows whose time has come. Those for which there is no
// room are met again in the next pass.
func (e *byLanes) mergeDue(f *fetch) {
	rows, admitted, bytes, largest := f.page.Rows, 0, 0, 0
	allPaused := f.from == e.due.pausedTo && !f.again // up to here
	for i := range rows {
		bytes += len(rows[i].Message.Payload)
		largest = max(largest, len(rows[i].Message.Payload))
		l := e.held.laneOf(f.seq, rows[i].Lane)
		if allPaused = allPaused && l != nil && !l.draining && e.allPaused(l, &rows[i]); allPaused {
			e.due.pausedTo = storage.DueCursor{At: rows[i].Message.AvailableAt, ID: rows[i].ID}
		}
		if l != nil && !l.draining && e.admit(l, &rows[i]) {
			admitted++
		}
	}
	more := len(rows) >= f.limit || bytes+largest > f.maxBytes // a limit probably ended the page
	now := time.Now()
	if f.again {
		e.due.again, e.due.againAt = f.cursor, now.Add(dueInterval)
		if !more || f.cursor.At.After(e.due.pausedTo.At) {
			e.due.again = storage.DueCursor{}
		}
		return
	}
	e.due.none = admitted == 0 && !more
	e.due.cursor, e.engine.poll.dueAt = f.cursor, now
	switch {
	case !more:
		e.due.cursor = e.due.pausedTo
		if e.engine.poll.dueAt = now.Add(dueInterval); !e.due.next.IsZero() {
			e.dueSooner(now)
		}
	case admitted == 0:
		e.engine.poll.dueAt = now.Add(50 * time.Millisecond)
	}
}

// unroutedRows is how many rows are read at once to learn what has no route.
const unroutedRows = 500

// pollUnrouted reads what waits without a route, now and then: who takes a lane
// over knows from its marks that something does, and not which topics; and nothing
// else would tell that it is gone. Each lane is read up to the first such row.
func (e *byLanes) pollUnrouted(now time.Time) *fetch {
	if e.unroutedAt.After(now) {
		return nil
	}
	again := !e.unroutedAt.IsZero() // else this is the first look since lanes were leased
	if again {
		e.unroutedAt = time.Time{}
		for _, l := range e.held.lanes {
			l.alarmed = false
		}
	}
	q := e.engine.queues[len(e.engine.queues)-1]
	if positions := slices.DeleteFunc(e.held.lagging(q), func(p storage.Position) bool { return e.held.lanes[p.Lane].alarmed }); len(positions) > 0 {
		f := &fetch{kind: readUnrouted, queue: q, reads: q.is, positions: positions, limit: unroutedRows, maxBytes: 1 << 20}
		e.leaveOut(f)
		return f
	}
	e.unroutedAt = now.Add(unroutedInterval)
	if again && !e.held.anyBehind(q) { // what a sink has no handler for is told of when it is tried again
		clear(e.engine.unrouted.topics)
	}
	return nil
}
