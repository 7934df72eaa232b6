package relay

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Merging. A page comes in, and its rows go to admit. What must hold: it is of the server
// that the lanes were leased from; rows that appeared below what was read before are looked
// for first, and so are the keys that wait; and a place is moved on only past rows that were
// admitted, or that another place remembers.

// merge takes in what a read has brought. Where rows may have appeared below
// what was read before, they are looked for first: none of the rows at hand is
// sent before those that belong before it are known.
func (e *byLanes) merge(result readResult) {
	if warning := result.page.Warning; warning != "" {
		e.options.Logger.Warn("relay: "+warning, "relay", e.options.Name)
	}
	if result.err == nil && result.job.kind.visitsLanes() {
		result.err = e.checkEpoch(result)
	}
	switch {
	case result.job.kind == readBlockedAmong:
		e.answer(result)
	case result.err != nil:
		e.endRead(result)
	case result.job.kind == readSweep:
		e.mergeSweep(result)
		e.endRead(result)
	case result.job.kind.visitsLanes() && e.scanFirst(&result):
	default:
		e.takeIn(result)
	}
}

// takeIn merges what was read as soon as it is known which of its keys wait.
func (e *byLanes) takeIn(result readResult) {
	switch {
	case e.askFirst(result):
		return
	case result.job.kind == readLate:
		e.blocked.answers = result.answers
		e.mergeLate(result)
	default:
		e.blocked.answers = result.answers
		e.mergePage(result)
		e.endRead(result)
	}
	e.blocked.answers = nil
}

// answer goes on with a page for which the database was asked. A page that can't be
// merged is as good as one that was not read.
func (e *byLanes) answer(result readResult) {
	page := *result.job.outer
	if result.err != nil {
		if page.job.kind.visitsLanes() {
			e.keepPending(page)
		}
		page.err, page.left = result.err, page.job.positions // of a scan, which is in vain
		e.endRead(page)
		return
	}
	e.keepPending(result)
	if page.answers == nil {
		page.answers = map[LaneKey][]HeldKey{}
	}
	for _, key := range result.job.ask {
		page.answers[key] = nil
	}
	for _, key := range result.held {
		ref := LaneKey{key.Lane, key.Key}
		page.answers[ref] = append(page.answers[ref], key)
	}
	e.takeIn(page)
}

func (k readKind) visitsLanes() bool {
	return k == readLanes || k == readBeyond || k == readSkipped || k == readKeys || k == readUnrouted
}

// errOtherServer is what a page from another server than its lanes' is taken for.
var errOtherServer = errors.New("another server was read than the one that leased the lanes")

// checkEpoch gives up the lanes that were leased in another epoch than the page
// comes from. What is in memory of them may not be what stands in the table now, and
// ids at or below their cursors may be given out again. The marks that the server has
// are as old as its rows: whoever leases the lanes next goes on from there. It may be
// this relay, at once.
//
// Where it happens again and again, reads go to another server than writes: to a
// replica, of which no page may be taken in.
func (e *byLanes) checkEpoch(result readResult) error {
	if !slices.ContainsFunc(result.job.positions, func(p Position) bool {
		l := e.readLane(result.job, p.Lane)
		return l != nil && l.epoch != result.page.Epoch
	}) {
		e.read.elsewhere = 0
		return nil
	}
	e.read.elsewhere++
	e.read.horizon, e.read.given, e.read.pendingLate = 0, 0, none
	for _, l := range e.sortedLanes() {
		if l.epoch != result.page.Epoch {
			l.void = true
			e.drainLane(l, true)
		}
	}
	if e.read.elsewhere == 1 {
		return fmt.Errorf("%w, or the same one after it may have lost commits: the lanes are read again from their marks", errOtherServer)
	}
	return fmt.Errorf("%w, again and again: if a proxy sends reads to a replica, give the relay a connection to the primary", errOtherServer)
}

// beginAnew has lanes read from their beginning where ids began anew: what comes next
// has lower ids than what was read. So it is with a lane that was leased with a mark
// above what was given out, and with all once less was given out than before.
//
// What waits there from before has higher ids, and is read again, too, which leaves the
// cursor above what was given out. What is given out from one page to the next has then
// appeared late: it returns above which id.
func (e *byLanes) beginAnew(result *readResult) (lateAfter int64) {
	before, given := e.read.given, result.page.Given
	e.read.given = given
	anew, above := 0, false
	for _, l := range e.lanes {
		if e.readLane(result.job, l.Lane) == nil {
			continue
		}
		if l.cursor > 0 && (given < before || !l.placed && l.cursor > given) {
			e.read.highest = max(e.read.highest, l.cursor, before)
			l.cursor, l.base, l.unswept = 0, 0, false
			l.seq = e.read.seq // this page isn't from there
			e.poll.fresh = true
			anew++
		}
		above = above || l.placed && l.cursor > before
		l.placed = true
	}
	if anew > 0 {
		e.read.lateSpan = 0
		e.read.numbering++
		e.options.Logger.Warn("relay: ids began anew, lanes are read from their beginning", "relay", e.options.Name, "lanes", anew, "given", given)
	}
	if above && given > before {
		return before
	}
	return none
}

// scanFirst starts the scan for late rows that must be over before the page is
// merged, and says whether there is need for one.
func (e *byLanes) scanFirst(result *readResult) bool {
	e.read.horizon = result.page.Horizon // lower than before where ids began anew
	below := e.beginAnew(result)
	told := lowestSet(result.page.LateAfter, e.read.pendingLate)
	result.page.LateAfter, e.read.pendingLate = lowestSet(told, below), none
	e.learnLateSpan(told)
	var positions, brought []Position
	for _, l := range e.sortedLanes() {
		after := l.recheck
		if late := result.page.LateAfter; late >= 0 {
			after = lowestSet(after, max(late, l.base))
		}
		if after == none || after >= l.cursor || e.readLane(result.job, l.Lane) == nil {
			continue
		}
		if result.brings(l, after) {
			brought = append(brought, Position{Lane: l.Lane, After: after})
			continue
		}
		until := l.cursor
		if l.recheck == none && (told == none || told >= until) {
			until = min(until, result.page.Given) // what is above waits since before ids began anew
		}
		l.beginScan(after)
		if l.draining {
			l.endScan(true)
			continue
		}
		positions = append(positions, Position{Lane: l.Lane, After: after, Until: until})
	}
	if e.read.scans = len(positions) > 0; !e.read.scans {
		return false
	}
	scan := e.unknown(positions, result.page.Horizon)
	scan.brought, scan.epoch = brought, result.page.Epoch
	e.reads <- readJob{kind: readLate, seq: result.job.seq, positions: positions, scan: scan, outer: result}
	return true
}

// againBytes bounds what a look reads once more, about.
const againBytes = 64 << 10

// learnLateSpan notes after which id rows may have appeared late. What is far back is
// the exception.
func (e *byLanes) learnLateSpan(lateAfter int64) {
	lag := e.furthest() - lateAfter
	switch {
	case lateAfter < 0 || lag > againBytes/int64(max(e.poll.rowBytes, 256)):
	case lag > e.read.lateSpan:
		e.read.lateSpan = lag
	default:
		e.read.lateSpan -= (e.read.lateSpan - lag) / 8
	}
}

// furthest is the highest id that was read.
func (e *byLanes) furthest() (id int64) {
	for _, l := range e.lanes {
		id = max(id, l.cursor)
	}
	return id
}

// brings says that what appeared late in a lane above an id came with the page.
func (r readResult) brings(l *lane, after int64) bool {
	return r.job.kind == readLanes && !r.page.More && l.recheck == none && !l.draining &&
		slices.ContainsFunc(r.job.positions, func(p Position) bool { return p.Lane == l.Lane && p.After <= after })
}

// mergeLate takes in the rows that appeared late, and then the page that had
// to wait for them.
func (e *byLanes) mergeLate(result readResult) {
	e.keepPending(result)
	e.read.scanStride = result.job.scan.stride
	for _, p := range result.job.positions {
		if l := e.readLane(result.job, p.Lane); l != nil {
			l.endScan(l.draining)
		}
	}
	for p, id := range result.job.scan.skipped { // first: a row above what has to be left must wait, too
		if l := e.readLane(result.job, p.lane); l != nil {
			l.skip(p.queue, id)
		}
	}
	for i := range result.page.Rows {
		row := &result.page.Rows[i]
		if l := e.readLane(result.job, row.Lane); l != nil {
			e.admit(l, row)
		}
	}
	e.mergePage(*result.job.outer)
	e.endRead(result)
}

// owe keeps what a read told of late rows for the next page.
func (e *byLanes) keepPending(result readResult) {
	e.read.pendingLate = lowestSet(e.read.pendingLate, result.page.LateAfter)
}

// mergePage takes in the rows of one page, each kind of read in its way.
func (e *byLanes) mergePage(result readResult) {
	switch result.job.kind {
	case readLanes:
		e.mergeLanes(result.job, result.page)
	case readSkipped:
		e.mergeSkipped(result.job, result.page)
	case readKeys:
		e.mergeKeys(result.job, result.page)
	case readDue:
		e.mergeDue(result)
	case readBeyond:
		e.mergeBeyond(result)
	case readBlocked:
		e.tell(result)
	case readBlockers:
		e.unblockOrphans(result)
	case readUnrouted:
		e.mergeUnrouted(result.job, result.page)
	}
	e.options.Observer.Looked(len(result.page.Rows))
}

// mergeLanes takes in what is new, and of what was read once more what is late.
func (e *byLanes) mergeLanes(job readJob, page Page) {
	news := false
	for i := range page.Rows {
		row := &page.Rows[i]
		if l := e.readLane(job, row.Lane); l != nil && !l.draining && row.ID > l.cursor {
			l.cursor, news = row.ID, true
		}
	}
	e.readThrough(job, page)
	if page.More {
		e.poll.fresh, e.read.lateSpan = true, 0 // what is read once more must not fill the next page, too
		e.readAhead(page)
	}
	taken := 0
	for i := range page.Rows {
		row := &page.Rows[i]
		if l := e.readLane(job, row.Lane); l != nil && !l.draining && e.admit(l, row) {
			taken++
		}
	}
	e.read.skipping = page.More && taken < len(page.Rows)/2
	e.poll.count(!news && taken == 0)
}

// readAhead asks for what comes after a page before its rows are taken in, for
// which there has to be room all the same: meanwhile the database has work.
// Nothing happens in between of which the next read would have to know.
func (e *byLanes) readAhead(page Page) {
	rows, bytes := len(page.Rows), payloads(page.Rows)
	e.reserve(rows, bytes)
	e.poll.under--      // until endRead
	e.read.ahead = true // what the page has brought isn't in memory yet: no sweep may wonder at it
	e.startRead(time.Now())
	e.read.ahead = false
	e.poll.under++
	e.reserve(-rows, -bytes)
}

// reserve takes room from every queue: any of them may get the rows.
func (e *byLanes) reserve(rows, bytes int) {
	for _, q := range e.queues {
		q.buffered += rows
		q.bytes += bytes
	}
}

// readThrough moves on lanes that had nothing: a lane that is read from far back
// is passed over all that was deleted since. Without a limit that was met, only
// up to where nothing can appear: what is late comes with the next page then.
func (e *byLanes) readThrough(job readJob, page Page) {
	through := page.Through
	if !page.More {
		through = min(page.Horizon, page.Given)
	}
	for _, p := range job.positions {
		if l := e.readLane(job, p.Lane); l != nil && !l.draining {
			l.cursor = max(l.cursor, through)
		}
	}
}

// mergeSkipped takes in rows that the queue had passed over, in each lane until
// there is no room again, and ends its lag in lanes that were read to their end.
func (e *byLanes) mergeSkipped(job readJob, page Page) {
	q, full := job.queue, false
	lanes := e.catchingUp(job)
	for i := range page.Rows {
		row := &page.Rows[i]
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
	if full || page.More {
		return
	}
	for _, p := range job.positions {
		if l := lanes[p.Lane]; l != nil && p.Until == l.cursor {
			l.skippedFrom[q.index] = none
		}
	}
}

// mergeKeys takes in rows that blocked keys had left behind, and lets those go on with
// what is new that were read to the end of them.
func (e *byLanes) mergeKeys(job readJob, page Page) {
	keys := map[LaneKey]*key{}
	for i, k := range job.keys {
		if l := e.readLane(job, k.lane.Lane); l == k.lane && !l.draining && k.dropped && k.resumeFrom == job.positions[i].After && e.mayGoOn(k) {
			keys[LaneKey{l.Lane, k.ref.key}] = k
		}
	}
	for i := range page.Rows {
		row := &page.Rows[i]
		k := keys[LaneKey{row.Lane, row.Message.Key}]
		if k == nil || row.ID <= k.resumeFrom {
			continue
		}
		if job.queue.room() <= 0 {
			return
		}
		k.resumeFrom = row.ID
		if e.admit(k.lane, row); k.resumeFrom < row.ID { // dropped once more
			delete(keys, LaneKey{row.Lane, row.Message.Key})
		}
	}
	if page.More {
		return
	}
	e.read.keyStride.learn(time.Since(job.began))
	for i, k := range job.keys {
		if keys[LaneKey{k.lane.Lane, k.ref.key}] != k {
			continue
		}
		if k.resumeFrom = job.positions[i].Until; k.resumeFrom == k.lane.cursor {
			k.dropped = false
			k.lane.forget(k)
		}
	}
}

// mergeDue takes in held rows whose time has come. Those for which there is no
// room are met again in the next pass.
func (e *byLanes) mergeDue(result readResult) {
	admitted := 0
	for i := range result.page.Rows {
		row := &result.page.Rows[i]
		if l := e.readLane(result.job, row.Lane); l != nil && !l.draining && e.admit(l, row) {
			admitted++
		}
	}
	rows, largest := result.page.Rows, 0
	for i := range rows {
		largest = max(largest, len(rows[i].Message.Payload))
	}
	more := len(rows) >= result.job.limit || payloads(rows)+largest > result.job.maxBytes // a limit ended the page
	now := time.Now()
	e.read.noDue = admitted == 0 && !more
	switch {
	case !more:
		e.read.cursor = DueCursor{}
		e.poll.dueAt = now.Add(dueInterval)
		e.dueSooner(now)
	case admitted == 0:
		e.read.cursor = result.cursor
		e.poll.dueAt = now.Add(50 * time.Millisecond)
	default:
		e.read.cursor = result.cursor
		e.poll.dueAt = now
	}
}

func payloads(rows []Row) (bytes int) {
	for i := range rows {
		bytes += len(rows[i].Message.Payload)
	}
	return bytes
}

// endRead lets go of what had to be remembered while the read was under way.
func (e *byLanes) endRead(result readResult) {
	e.poll.under--
	for _, it := range e.read.settledDuringRead {
		e.forget(it)
	}
	e.read.settledDuringRead = e.read.settledDuringRead[:0]
	e.forgetAside()
	if result.err != nil {
		e.readFailed(result)
	}
	// Healthy is told since when some kind of read has failed.
	failing := &e.read.failing[result.job.kind]
	switch {
	case result.err == nil || result.job.kind == readSweep:
		*failing = 0
	case *failing == 0:
		*failing = e.health.now()
	}
	since := int64(0)
	for _, f := range e.read.failing {
		if f != 0 && (since == 0 || f < since) {
			since = f
		}
	}
	e.health.readFails.Store(since)
}

// readFailed waits before the next read, and has looked for again what this one would
// have brought.
func (e *byLanes) readFailed(result readResult) {
	job := &result.job
	switch job.kind {
	case readSweep:
		e.sweepFailed(result)
		return
	case readLate: // what it had not walked, and what its page would have brought
		for _, p := range job.positions {
			if l := e.readLane(*job, p.Lane); l != nil {
				l.scanning = none
			}
		}
		for _, p := range slices.Concat(result.left, job.scan.brought) {
			if l := e.readLane(*job, p.Lane); l != nil {
				l.recheck = lowestSet(l.recheck, p.After)
			}
		}
		e.keepPending(result)
	}
	if e.pauseReading(result.err) {
		return
	}
	e.poll.dueAt = laterOf(e.poll.dueAt, e.poll.at)
	switch job.kind {
	case readKeys:
		e.read.keyStride = 0
	case readLate, readBeyond:
		e.read.scanStride = job.scan.stride
		e.read.scanStride.failed()
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
