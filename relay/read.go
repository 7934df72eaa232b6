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

// Reading by lanes: the path of a row from the table to memory.
//
//	startRead  the loop chooses the next read that is needed, if memory has room for its rows: new rows, rows that a sink
//	           or a key has skipped, rows that are due, and so on, in turn
//	ask        the reader goroutine queries the database
//	merge      the loop applies the result. If rows may have appeared below the cursors, it first returns the read to the
//	           reader for a scan (scan.go). If it is unknown whether a key is blocked, it returns the read to the reader
//	           for a query about the key (blocked.go). Then the rows are admitted in order (admit.go)
//
// What must hold: only one read queries the database at a time, so no result is older than the previous one. While a full page is
// merged, the next read may already query the database; poll.under counts both reads. A page is merged only if it comes from the
// server that granted the leases. A read begins at a position that the lane remembers. A position moves only past rows that were
// admitted or that are above another position, from which they will be read again. No kind of read starves another.

// unsettledLimit is how many outcomes may be unwritten before the relay stops reading.
const unsettledLimit = 20_000

// mayRead reports whether the relay may read now.
func (e *engine) mayRead(now time.Time) bool {
	return e.control.heard && !e.stopping.begun && e.settle.count() <= unsettledLimit && now.Before(e.lease.safeUntil) && !e.lease.waits && !now.Before(e.poll.pauseUntil)
}

// reportIdle is called once a second. While a healthy relay has no reason to read, because it stands by, has no lanes, or has
// no room while its sinks are down, reportIdle reports an empty read to the observer. Without this report, the metric for the time
// of the last read would become stale, and alerts would report the relay as dead.
func (e *engine) reportIdle(now time.Time) {
	if e.poll.under == 0 && (e.mayRead(now) || e.lease.waits) && e.health.readFails.Load() == 0 && e.health.lease.since.Load() == 0 {
		e.options.Observer.Polled(0)
	}
}

// notePollTime requests a read of new rows when the poll interval has passed.
func (p *polling) notePollTime(now time.Time, longest time.Duration) {
	if !p.at.After(now) {
		p.polled = p.polled || !p.fresh
		p.fresh = true
		p.at = now.Add(min(cmp.Or(p.pace, longest), longest))
	}
}

// startRead starts the next read for which there is a reason and room. Reads about blocked keys are rare and come first. The
// other kinds take turns, so that none starves another.
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

// pollLanes reads new rows in all lanes. If messages arrive one by one, a row has often appeared a few ids below the cursor since
// the last read. So the page begins a little below the cursor (late.span), and returns such rows without another statement.
func (e *byLanes) pollLanes(now time.Time) *fetch {
	e.setApart()
	room := e.engine.mostRoom(e.late.scans) // a scan walks over all rows in memory; to keep the next scan short, the page after a scan fills at most half of the buffer
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

// readsAfter returns the id after which the next page reads the lane. Once a page has confirmed the lane's position (placed),
// later pages begin a little below the head, which is the lane's highest cursor, to return late rows. Until then, pages begin at
// the head itself, which is the mark that the last holder stored. If such a page began lower, it might return a row far below the
// ids that the store knows, and the store might treat this row as a sign that the id sequence was reset.
func (l *lane) readsAfter(again int64) int64 {
	if l.placed {
		return min(l.readers.head(), again)
	}
	return l.readers.head()
}

// mostRoom returns the room of the queue that has the most room. A queue with less room may fall behind. Then its rows are read
// separately (pollSkipped), like the rows of a queue that is set apart (apart.go). While no sink is up, the relay fills all
// buffers, so that rows are in memory when a sink recovers.
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

// reader carries out reads, one at a time, until the context ends. A fetch contains everything that its read needs. The only
// mutable state that the reader shares with the loop is the lanes' sets of keys (keySet), which have a lock.
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

// ask queries the database for the current step of a read.
func (b *base) ask(ctx context.Context, f *fetch) (err error) {
	switch { // these steps make several calls to the store, each with its own time-out
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
		// The answer about blocked keys counts only if the server's epoch has not changed since the page was read. If the server
		// has lost commits since then, it may have lost retries. In that case it no longer reports their keys as blocked, and
		// their messages are pending again, but are not in the page.
		lateAfter, err := b.appearedSince(ctx, f.page.Epoch)
		if err != nil {
			return err
		}
		f.lateAfter = lowestSet(f.lateAfter, lateAfter)
	}
	return err
}

// merge applies the result of a read, or returns the read to the reader for another step. A row of a page is admitted only when
// all rows that must be sent before it are known.
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
			// Each row that has appeared at or below SafeID is either merged with this page or above the LateAfter of the next page.
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
	longest := int64(0) // for Healthy: when the first of the failing kinds of reads began to fail; 0 if no kind fails
	for _, since := range e.failingSince {
		if since != 0 && (longest == 0 || since < longest) {
			longest = since
		}
	}
	e.engine.health.readFails.Store(longest)
}

// errOtherServer is the error of a page whose epoch, which identifies the state of the server, differs from the epoch of the
// lanes' leases.
var errOtherServer = errors.New("the page comes from a different server than the leases")

// checkEpoch gives up all lanes whose leases have a different epoch than the page. Their rows in memory may differ from the table
// now, and ids at or below their cursors may be assigned again. If the server has lost commits, it has also lost the marks that
// these commits stored, so the lanes' next holder can rely on the marks that are left. The next holder may be this relay, which
// can lease the lanes again immediately.
//
// If this happens repeatedly, reads go to a different server than writes, probably to a replica, whose pages must not be merged.
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
		return fmt.Errorf("%w, or the server has restarted and may have lost commits: rereading the lanes from their marks", errOtherServer)
	}
	return fmt.Errorf("%w, repeatedly: if a proxy sends reads to a replica, give the relay a connection to the primary", errOtherServer)
}

// mergeLanes merges a page of new rows. The page may also have late rows, since it may begin below the cursors. The cursor of a
// lane without rows moves, too, so that later reads don't walk over deleted rows again. It moves to Through if a limit ended the
// page, and otherwise at most to SafeID, since late rows may appear above SafeID.
func (e *byLanes) mergeLanes(f *fetch) {
	rows, heads, asked := f.page.Rows, e.held.heads(f.seq, f.positions), e.engine.poll.fresh
	news := e.advance(f)
	switch {
	case f.page.More:
		e.engine.poll.fresh, e.late.span = true, 0 // the next page must not begin below the cursors: it would be full of rows that were read already
		e.readAhead(rows)
	case f.isStretch():
		e.engine.poll.fresh, news = true, true
	}
	taken := 0
	for i := range rows {
		l := e.held.laneOf(f.seq, rows[i].Lane)
		if l == nil || l.draining && rows[i].ID > l.readers.head() {
			continue
		}
		if e.admit(l, &rows[i]) { // if the relay has begun to give up the lane, admit only moves the cursor back to just before this row
			taken++
		}
	}
	e.engine.poll.fresh = e.engine.poll.fresh && (asked || e.held.moved(f.seq, f.positions, heads)) // if nothing has moved, the next page would be the same
	e.engine.poll.count(!news && taken == 0)
}

// advance moves the cursors of the readers for which the page was read to the page's end. It reports whether the page has a row
// above the head of its lane.
func (e *byLanes) advance(f *fetch) (news bool) {
	last := map[int]int64{} // the id of each lane's last row
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
		case p.Until > 0 && p.Until <= max(f.page.LastID, l.readers.head()): // after a reset of the id sequence the head may be above LastID
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

// readAhead starts the next read before the rows of this page are admitted, so that the database isn't idle. The cursors have
// moved already. Meanwhile each queue counts all rows of the page, since any queue may get them. So the next read is limited to
// the remaining room.
func (e *byLanes) readAhead(rows []storage.Row) {
	bytes := payloads(rows)
	for _, q := range e.engine.queues {
		q.buffered += len(rows)
		q.bytes += bytes
	}
	e.engine.poll.under-- // lets startRead start a second read
	e.ahead = true        // no sweep may start: it would mistake the page's rows, which are not in memory yet, for missed rows
	e.startRead(time.Now())
	e.ahead = false
	e.engine.poll.under++
	for _, q := range e.engine.queues {
		q.buffered -= len(rows)
		q.bytes -= bytes
	}
}

// readFailed handles a failed read. If the read included a scan for late rows, readFailed records the id above which the next scan
// must search for them again. Then it delays the next read, except after the first errOtherServer: in that case the lanes are leased
// again and read immediately.
func (e *byLanes) readFailed(f *fetch) {
	if f.kind == readSweep {
		e.sweep.stepFailed(f)
		return
	}
	if f.late != nil { // scan again the ranges that were not scanned, and the ranges whose late rows were in this page, which is dropped
		left := f.late.left
		if f.step == stepBlocked {
			left = f.late.positions // the scan has ended, but its rows were not merged, so everything is scanned again
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
		return // the lanes are leased again, and read immediately
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

// pauseReading delays the next read after a failed one. It returns true if the error ends the relay.
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

// drained reports whether nothing is left to deliver and the relay holds its whole share of lanes. The lanes of a dead relay are
// part of the share, so a drain waits until they are free. Three kinds of messages don't count: messages without a route, paused
// messages, and messages whose key is blocked by another message that is parked or not due. Also, the last sweep over all lanes
// must have found nothing, and must have begun less than sweepSoonest ago. In the first 30 seconds of a run (sweepSoonest), it is
// enough that the sweeps of newly leased lanes have found nothing.
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
	case len(s.left) > 0: // a sweep is in progress
	case !s.found && now.Sub(s.clean) < sweepSoonest:
		return true
	default:
		s.next = time.Time{} // begin a pass now
	}
	e.startRead(now) // without waiting for the poll interval
	return false
}

// Rows that are read again: rows that a sink had no room for, rows that were skipped while their key was blocked, and deferred
// rows that are due. Pending rows are read from a position that a lane or a key remembers, deferred rows by the time at which
// they are due. Then they are admitted again. What must hold: no position moves past a row that was not offered to its queue. A
// key's position is cleared only after its rows up to the reader's cursor were read by a page that met no limit
// (storage.Page.More is false).

// pollSkipped reads rows that a queue skipped while it had no room.
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

// mergeSkipped merges rows for a queue that was behind.
func (e *byLanes) mergeSkipped(f *fetch) {
	e.advance(f)
	for i := range f.page.Rows {
		row := &f.page.Rows[i]
		if l := e.held.laneOf(f.seq, row.Lane); l != nil && !l.draining && slices.Contains(e.engine.routes.queuesOf(row.Message.Topic, row.Sinks), f.queue.index) {
			e.admit(l, row)
		}
	}
}

// mergeUnrouted reports the topics of a page. If the page contains every row without a route, mergeUnrouted also forgets
// the topics that have no row in the page.
func (e *byLanes) mergeUnrouted(f *fetch) {
	queue, topics, whole := f.queue.index, map[string]bool{}, !f.page.More
	for _, l := range e.held.lanes {
		ofThisRead := func(p storage.Position) bool {
			return p.Lane == l.Lane && p.After <= l.readers[queue].cursor && p.Until >= l.readers.head()
		}
		whole = whole && (!l.readers.isBehind(queue) || slices.ContainsFunc(f.positions, ofThisRead))
	}
	e.mergeSkipped(f) // reports each topic
	for i := range f.page.Rows {
		if row := &f.page.Rows[i]; slices.Contains(e.engine.routes.queuesOf(row.Message.Topic, row.Sinks), queue) {
			topics[row.Message.Topic] = true
		}
	}
	if whole {
		maps.DeleteFunc(e.engine.unrouted.topics, func(topic string, _ *unroutedTopic) bool { return !topics[topic] })
	}
}

// catchUpKeys is the maximum number of keys whose skipped rows one read returns.
const catchUpKeys = 64

// pollKeys reads rows that were skipped while their keys were blocked, for several keys of one queue. For each queue it also
// counts the unblocked keys that still have rows to read (freed); if there are too many, roomForDeferred returns 0. To find the
// rows of a key, the database walks over all pending rows of its lane, which may be many. So each read covers a limited range of
// ids.
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
		ofThisRead := f.queue == q || f.queue == nil && q.hasReadRoom() && q.up() // a read is for one queue
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

// mergeKeys merges rows that were skipped while their keys were blocked. Once all skipped rows of a key have been read, new
// rows of the key are admitted again.
func (e *byLanes) mergeKeys(f *fetch) {
	keys := map[storage.LaneKey]*key{}
	for i, k := range f.keys {
		if l := e.held.laneOf(f.seq, k.lane.Lane); l == k.lane && !l.draining && k.dropped && k.resumeFrom == f.positions[i].After && e.blocked.mayContinue(k) {
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
		if e.admit(k.lane, row); k.resumeFrom < row.ID { // the row was dropped again
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

// dueInterval is the pause after a read that returned all deferred rows that were due. The next read begins sooner if the relay
// knows of a row that becomes due sooner.
const dueInterval = time.Second

// pollDue reads deferred rows that are due.
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
		return nil // an event that makes room also makes the loop call pollDue again
	}
	return f
}

// allPaused reports whether a deferred row is paused for all its sinks, by a pause of its topic, its key or the sink.
func (e *byLanes) allPaused(l *lane, row *storage.Row) bool {
	return row.Holds == storage.NoHold && !slices.ContainsFunc(e.engine.routes.queuesOf(row.Message.Topic, row.Sinks), func(queue int) bool {
		return !e.engine.queues[queue].paused && !e.paused(l, queue, row)
	})
}

// mergeDue merges deferred rows that are due. If there is no room for a row, the next pass reads it again.
func (e *byLanes) mergeDue(f *fetch) {
	rows, admitted, bytes, largest := f.page.Rows, 0, 0, 0
	allPaused := f.from == e.due.pausedTo && !f.again // whether all deferred rows before this page are paused
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

// unroutedRows is the maximum number of rows in one read of rows without a route.
const unroutedRows = 500

// pollUnrouted reads rows without a route, once a minute. There are two reasons for this read. A relay that has just leased a
// lane knows from the marks that such rows exist, but not their topics. Also, no other read notices when these rows are deleted.
// After this read, the cursor for rows without a route is just before the lane's first such row.
func (e *byLanes) pollUnrouted(now time.Time) *fetch {
	if e.unroutedAt.After(now) {
		return nil
	}
	again := !e.unroutedAt.IsZero() // otherwise it is the first such read since lanes were leased
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
	if again && !e.held.anyBehind(q) { // topics without a handler are reported again with their next attempt
		clear(e.engine.unrouted.topics)
	}
	return nil
}
