package relay

import (
	"context"
	"slices"
	"time"
)

// Reading. Room in the queues comes in, and reasons to look: what is new, what a sink or a
// key left behind, deferred rows that are due. One read at a time goes out to the reader, and
// its page comes back to merge. What must hold: a read goes on from a place that the lane
// remembers, and no kind of read starves another.

func (e *byLanes) workers() []func(context.Context) { return []func(context.Context){e.reader} }

// readJob is one question to the database.
type readJob struct {
	kind      readKind
	began     time.Time
	seq       int64          // lanes that were leased after it had started don't take its rows
	queue     *sinkQueue     // readSkipped, readKeys
	keys      []*key         // readKeys, at the same places as the positions
	ask       []LaneKey      // readBlockedAmong
	holders   map[*key]int64 // readBlockers: what each key waits for
	forgotten int64          // readBlocked: how many keys were when it began
	lanes     []int
	positions []Position
	limit     int
	maxBytes  int
	cursor    DueCursor
	scan      *lateScan   // readLate, readSweep: what it decides by
	outer     *readResult // readLate: what is merged once the scan is over
}

type readKind int

const (
	readLanes        readKind = iota // what is new
	readSkipped                      // a queue's rows that were passed over
	readKeys                         // a key's rows that were passed over
	readDue                          // held rows that are due
	readSweep                        // rows where there can be none
	readUnrouted                     // what waits without a route
	readLate                         // rows that appeared below what was read
	readBlocked                      // blocked keys, of lanes that do not know all of theirs
	readBlockedAmong                 // which of a page's keys wait
	readBlockers                     // what keys wait for
	readBeyond                       // what is new beyond what waits for sinks that lag
	kindsOfReads
	kindsInTurn = 6 // that take turns
)

type readResult struct {
	job    readJob
	page   Page
	cursor DueCursor
	left   []Position    // readLate, readSweep: what wasn't walked
	found  map[int]int64 // readSweep: the lowest row in each lane that nobody expects
	took   time.Duration // readSweep
	held   []HeldKey     // readBlocked, readBlockedAmong
	err    error

	answers map[LaneKey][]HeldKey // what readBlockedAmong has found for this one
}

const (
	// readLimit bounds the rows of one read.
	readLimit = 2000

	// readBytes bounds the payload of one read; a single larger row is read.
	readBytes = 8 << 20

	// unsettledLimit stops the reading while the database takes no outcomes.
	unsettledLimit = 20_000

	// dueInterval is how often held rows are looked for when the relay doesn't
	// know of any that becomes due.
	dueInterval = time.Second
)

// mayRead says whether anything may be read now, and notes whether it is time to.
func (e *engine) mayRead(now time.Time) bool {
	if e.stopping.begun || e.settle.count() > unsettledLimit || !now.Before(e.lease.safeUntil) || now.Before(e.poll.pauseUntil) {
		return false
	}
	if !e.poll.at.After(now) {
		e.poll.polled = e.poll.polled || !e.poll.fresh
		e.poll.fresh = true
		e.poll.at = now.Add(e.options.Poll)
	}
	return true
}

// startRead starts the next read for which there is reason and room.
func (e *byLanes) startRead(now time.Time) {
	if e.poll.under > 0 || len(e.lanes) == 0 || !e.mayRead(now) {
		return
	}
	if job, ok := e.nextRead(now); ok {
		e.poll.under++
		e.read.seq++
		job.seq, job.began = e.read.seq, now
		e.reads <- job
	}
}

// nextRead takes the kinds of reads in turn, so that none starves another.
func (e *byLanes) nextRead(now time.Time) (readJob, bool) {
	if job, ok := e.pollBlocked(now); ok {
		return job, true
	}
	if job, ok := e.pollBlockers(now); ok {
		return job, true
	}
	for range kindsInTurn {
		e.read.turn = (e.read.turn + 1) % kindsInTurn
		var job readJob
		var ok bool
		switch readKind(e.read.turn) {
		case readLanes:
			job, ok = e.pollLanes(now)
		case readSkipped:
			job, ok = e.pollSkipped()
		case readKeys:
			job, ok = e.pollKeys()
		case readDue:
			job, ok = e.pollDue(now)
		case readSweep:
			job, ok = e.sweepOn(now)
		case readUnrouted:
			job, ok = e.pollUnrouted(now)
		}
		if ok {
			return job, true
		}
	}
	return readJob{}, false
}

// pollLanes reads on in all lanes.
func (e *byLanes) pollLanes(now time.Time) (readJob, bool) {
	room := e.mostRoom(func(q *sinkQueue) int {
		if e.read.scans { // and meets what is in memory again: where a scan comes before each page, half of the buffer has to do
			return q.room() - q.options.Buffer/2
		}
		return q.room()
	})
	if !e.poll.fresh || room == 0 {
		return readJob{}, false
	}
	e.poll.begin(now, e.options.Poll)
	if job, ok := e.pollBeyond(room); ok {
		return job, true
	}
	var positions []Position
	again := e.readAgain()
	for _, l := range e.lanesInTurn() {
		if l.readable() {
			positions = append(positions, Position{Lane: l.Lane, After: min(l.cursor, again)})
		}
	}
	job := readJob{kind: readLanes, positions: positions, limit: min(room, readLimit), maxBytes: readBytes}
	return job, len(positions) > 0
}

// mostRoom is the room of the queue that has most. A queue whose room is
// less falls behind if it must, and reads for itself later.
func (e *engine) mostRoom(roomOf func(*sinkQueue) int) int {
	anyUp, most := e.anyUp(), 0 // while none is up the buffers fill, so that the rows are there when one comes back
	for _, q := range e.queues {
		if room := roomOf(q); q.worthwhile(room, q.options.Buffer) && (q.circuit.state == circuitClosed || !anyUp) {
			most = max(most, room)
		}
	}
	return most
}

func (e *engine) anyUp() bool {
	return slices.ContainsFunc(e.queues, func(q *sinkQueue) bool { return q.circuit.state == circuitClosed })
}

// pollSkipped reads what a queue passed over while it had no room.
func (e *byLanes) pollSkipped() (readJob, bool) {
	for _, q := range e.queues {
		if !q.roomy() || q.circuit.state != circuitClosed || !e.skippedAny(q) {
			continue
		}
		var positions []Position
		for _, l := range e.lanesInTurn() {
			if l.skippedFrom[q.index] != none && !l.draining {
				positions = append(positions, Position{Lane: l.Lane, After: l.skippedFrom[q.index], Until: l.cursor})
			}
		}
		if len(positions) > 0 {
			return readJob{kind: readSkipped, queue: q, positions: positions, limit: min(q.room(), readLimit), maxBytes: readBytes}, true
		}
	}
	return readJob{}, false
}

// catchUpKeys is how many keys are caught up with by one read.
const catchUpKeys = 64

// pollKeys reads what keys of a queue left behind while they were blocked. A read
// of a key walks over all that waits in its lane, which may be much: so it goes only
// so far that it doesn't keep the reader for long.
func (e *byLanes) pollKeys() (readJob, bool) {
	e.read.resuming = slices.DeleteFunc(e.read.resuming, func(k *key) bool {
		return !k.dropped || k.blocked || k.lane.lost
	})
	for _, q := range e.queues {
		q.freed = 0
	}
	e.read.keyStride = max(e.read.keyStride, leastStride)
	job := readJob{kind: readKeys, maxBytes: readBytes}
	for _, k := range e.read.resuming {
		q := e.queues[k.ref.queue]
		q.freed++
		if len(job.keys) == catchUpKeys || k.lane.draining || job.queue != q && (job.queue != nil || !q.roomy() || q.circuit.state != circuitClosed) || k.mustWait() {
			continue
		}
		job.queue = q
		job.keys = append(job.keys, k)
	}
	if job.queue == nil {
		return job, false
	}
	slices.SortStableFunc(job.keys, func(a, b *key) int { return a.lane.Lane - b.lane.Lane })
	for _, k := range job.keys {
		job.positions = append(job.positions, Position{Lane: k.lane.Lane, After: k.resumeFrom, Until: min(k.lane.cursor, k.resumeFrom+int64(e.read.keyStride)), Key: k.ref.key})
	}
	job.limit = min(job.queue.room(), readLimit)
	return job, true
}

// pollDue reads the held rows whose time has come.
func (e *byLanes) pollDue(now time.Time) (readJob, bool) {
	if e.poll.dueAt.After(now) {
		return readJob{}, false
	}
	room, bytes := 0, 0
	for _, q := range e.queues {
		if q.worthwhile(q.roomAgain(), q.options.Buffer/2) && (q.circuit.state == circuitClosed || !e.anyUp()) {
			room, bytes = max(room, q.roomAgain()), max(bytes, q.options.BufferBytes-q.bytes)
		}
	}
	if room == 0 {
		return readJob{}, false // whatever frees memory brings the loop here again
	}
	var lanes []int
	for _, l := range e.sortedLanes() {
		if !l.draining {
			lanes = append(lanes, l.Lane)
		}
	}
	return readJob{kind: readDue, lanes: lanes, cursor: e.read.cursor, limit: min(room, readLimit), maxBytes: min(bytes, readBytes)}, len(lanes) > 0
}

// readAgain is where a look begins in lanes that were read further. Where
// messages come one by one, something may have appeared late before most looks, a
// few ids back: what lies there is read again then, so that what is late comes
// with the page, and isn't looked for by another statement.
func (e *byLanes) readAgain() int64 { return e.furthest() - e.read.lateSpan }

// reader carries out reads, one after the other.
func (e *byLanes) reader(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-e.reads:
			result := e.ask(ctx, job)
			select {
			case e.didRead <- func() { e.merge(result) }:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (e *byLanes) ask(ctx context.Context, job readJob) readResult {
	result := readResult{job: job}
	switch job.kind { // of several steps, each with a time of its own
	case readLate:
		result.page, result.left, result.err = e.scanLate(ctx, job)
		return result
	case readSweep:
		return e.sweepStep(ctx, job)
	case readBeyond:
		return e.readBeyond(ctx, job)
	}
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	switch job.kind {
	case readDue:
		result.page.Rows, result.cursor, result.err = e.store.Due(ctx, job.lanes, job.cursor, job.limit, job.maxBytes)
	case readBlocked:
		result.held, result.err = e.store.HeldKeys(ctx, job.lanes, job.limit)
	case readBlockedAmong:
		result.held, result.page.LateAfter, result.err = e.askAmong(ctx, job)
	case readBlockers:
		result.held, result.err = e.store.HeldAmong(ctx, job.ask)
	default:
		result.page, result.err = e.store.Read(ctx, job.positions, job.limit, job.maxBytes)
	}
	e.reached(result.err)
	return result
}

// askAmong asks which keys of a page wait for another attempt. The answer counts only
// if it comes from the server of the page as that was: one that has fallen back knows
// of no retry that was written since, and the page has nothing of what waits by it.
func (e *byLanes) askAmong(ctx context.Context, job readJob) (held []HeldKey, lateAfter int64, err error) {
	held, err = e.store.HeldAmong(ctx, job.ask)
	epoch, known := job.outer.epoch()
	if err != nil || !known {
		return held, none, err
	}
	lateAfter, err = e.appearedSince(ctx, epoch)
	return held, lateAfter, err
}

// epoch names the state of the server that a page of lanes comes from.
func (r *readResult) epoch() (epoch string, known bool) {
	if r.job.kind == readLate {
		return r.job.scan.epoch, true
	}
	return r.page.Epoch, r.job.kind.visitsLanes()
}

// drained says that nothing was passed over, and that the relay holds all the lanes
// that are its part: those of a relay that died are waited for. What is known to have no
// route is passed over for good, as are those of a key whose next attempt is still to come.
func (e *byLanes) drained() bool {
	if !e.read.noDue || len(e.read.resuming) > 0 || len(e.lanes) != e.share {
		return false
	}
	for _, l := range e.lanes {
		if l.draining || l.recheck != none {
			return false
		}
		for i, lag := range l.skippedFrom {
			if lag != none && (e.queues[i].options.Sink != nil || !l.alarmed) {
				return false
			}
		}
	}
	if e.sweptClean() {
		return true
	}
	e.startRead(time.Now()) // the sweep waits for no poll
	return false
}
