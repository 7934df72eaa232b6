package relay

import (
	"context"
	"maps"
	"slices"
	"time"
)

// byLanes is a relay that claims by lanes: it reads what is pending in the lanes that it
// holds, in the order of ids, and keeps in memory what it has read until it is settled.
type byLanes struct {
	*engine
	lanes   map[int]*lane
	sorted  []*lane // the same by their numbers; nil since one has come or gone
	share   int     // lanes that are this relay's fair part; -1 before the first census
	read    reading
	blocked blockedKeys
	reads   chan readJob
}

// newByLanes: of so many keys that wait it keeps each in memory, and so many ids are
// worth a scan.
func newByLanes(e *engine, mostHeld int, farBehind int64) *byLanes {
	b := &byLanes{engine: e, lanes: map[int]*lane{}, share: -1, reads: make(chan readJob, 1)}
	e.didRead = make(chan func(), 1)
	e.poll.rowBytes = 4096
	b.blocked.most, b.read.farBehind, b.read.scanStride = mostHeld, farBehind, stride(8*farBehind)
	b.read.pendingLate, b.read.sweep.ids = none, leastStride
	if store, ok := e.store.(Journaler); ok {
		b.guard(store)
	}
	return b
}

func (e *byLanes) workers() []func(context.Context) { return []func(context.Context){e.reader} }

// reading is what the engine knows of its own reading.
type reading struct {
	seq        int64
	dueAt      time.Time
	unroutedAt time.Time // when to look for what has no route; zero while that goes on
	nextDue    time.Time // when the next held row that is known of becomes due
	cursor     DueCursor

	turn        int // the kind of read that is tried first next time
	rotate      int // the lane that is read first next time
	horizon     int64
	given       int64 // no higher id was given out when the last page was read
	lateSpan    int64 // so many ids back rows appear late, mostly
	pendingLate int64 // rows above this may have appeared, of which no page that was merged told; none

	skipping              bool    // the last page was passed over for the most part
	scans                 bool    // late rows were looked for before the last page was merged
	settledDuringRead     []*item // settled while a read was under way, which may bring them back
	resuming              []*key  // no longer blocked, with rows to catch up with
	keyStride, scanStride stride
	farBehind             int64 // so many ids are worth a scan
	noDue                 bool  // the last look at the held rows found nothing

	failing   [kindsOfAnswers]int64 // since when each kind of read fails, by its clock; 0 if it doesn't
	ahead     bool                  // the next page is asked for before this one is taken in
	elsewhere int                   // pages in a row that came from another server than the lanes were leased from
	sweep     sweep
	numbering int   // how often it was noticed that ids began anew: what was read before may have the id of another
	highest   int64 // the highest id from before that
}

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
	readBlocked                      // keys that wait for another attempt, of lanes that do not know all their keys
	readBlockedAmong                 // which of a page's keys wait
	readBlockers                     // what keys wait for
	readBeyond                       // what is new beyond what waits for sinks that lag
	kindsOfAnswers
	kindsOfReads = 6 // that take turns
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

// countBytes learns what a row weighs.
func (e *engine) countBytes(it *item) { e.poll.rowBytes += (it.size() - e.poll.rowBytes) / 16 }

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

func (e *byLanes) dueTime() time.Time { return e.read.dueAt }

// nextRead takes the kinds of reads in turn, so that none starves another.
func (e *byLanes) nextRead(now time.Time) (readJob, bool) {
	if job, ok := e.pollBlocked(now); ok {
		return job, true
	}
	if job, ok := e.pollBlockers(now); ok {
		return job, true
	}
	for range kindsOfReads {
		e.read.turn = (e.read.turn + 1) % kindsOfReads
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
	room := e.mostRoom(e.roomOf)
	if !e.poll.fresh || room == 0 {
		return readJob{}, false
	}
	e.beginPoll(now)
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

// roomOf is what a queue has room for. What is in memory is met again by each scan
// for late rows: where one comes before each page, half of the buffer has to do.
func (e *byLanes) roomOf(q *sinkQueue) int {
	if e.read.scans {
		return q.room() - q.options.Buffer/2
	}
	return q.room()
}

func (e *engine) anyUp() bool {
	return slices.ContainsFunc(e.queues, func(q *sinkQueue) bool { return q.circuit.state == circuitClosed })
}

// lanesInTurn returns the lanes, each time beginning with another.
func (e *byLanes) lanesInTurn() []*lane {
	lanes := e.sortedLanes()
	e.read.rotate++
	at := e.read.rotate * 7 % max(1, len(lanes))
	return append(lanes[at:len(lanes):len(lanes)], lanes[:at]...)
}

// sortedLanes returns the lanes by their numbers. It is the same slice until one
// comes or goes: nobody changes it.
func (e *byLanes) sortedLanes() []*lane {
	if e.sorted == nil {
		e.sorted = slices.SortedFunc(maps.Values(e.lanes), func(a, b *lane) int { return a.Lane - b.Lane })
	}
	return e.sorted
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

// skippedAny says that the queue has passed over something.
func (e *byLanes) skippedAny(q *sinkQueue) bool {
	return slices.ContainsFunc(e.sortedLanes(), func(l *lane) bool { return l.skippedFrom[q.index] != none })
}

// catchUpKeys is how many keys are caught up with by one read.
const catchUpKeys = 64

// pollKeys reads what keys of a queue left behind while they were held. A read
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

// leastStride is how many ids a read that catches up with keys goes on at least.
const leastStride = 1 << 16

// stride is how many ids a read goes on that may pass over many rows, or over entries
// of rows that are gone.
type stride int64

const minStride = 1000

// learn lets the next read go further if this one was quick, and less far if it took
// so long that others waited for it.
func (s *stride) learn(took time.Duration) {
	switch {
	case took < 20*time.Millisecond:
		*s = min(2**s, 1<<40)
	case took > 100*time.Millisecond:
		*s = max(*s/2, minStride)
	}
}

// failed makes the next read much shorter: this one took too long.
func (s *stride) failed() { *s = max(*s/8, minStride) }

// pollDue reads the held rows whose time has come.
func (e *byLanes) pollDue(now time.Time) (readJob, bool) {
	if e.read.dueAt.After(now) {
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

// dueAgain notes that a held row becomes due.
func (e *byLanes) dueAgain(at time.Time) {
	if e.read.nextDue.IsZero() || at.Before(e.read.nextDue) {
		e.read.nextDue = at
	}
	e.dueSooner(time.Now())
}

// dueSooner brings the next look at the held rows forward to when one of them
// is known to become due. The database's clock may be a little behind.
func (e *byLanes) dueSooner(now time.Time) {
	if e.read.nextDue.IsZero() {
		return
	}
	if !e.read.nextDue.After(now) {
		e.read.nextDue = time.Time{}
		e.read.dueAt = now
		return
	}
	e.read.dueAt = earliest(e.read.dueAt, e.read.nextDue)
}

// readAgain is where a look begins in lanes that were read further. Where
// messages come one by one, something may have appeared late before most looks, a
// few ids back: what lies there is read again then, so that what is late comes
// with the page, and isn't looked for by another statement.
func (e *byLanes) readAgain() int64 { return e.furthest() - e.read.lateSpan }

// againBytes bounds what a look reads once more, about.
const againBytes = 64 << 10

// furthest is the highest id that was read.
func (e *byLanes) furthest() (id int64) {
	for _, l := range e.lanes {
		id = max(id, l.cursor)
	}
	return id
}

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
