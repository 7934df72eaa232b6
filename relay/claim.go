package relay

import (
	"maps"
	"slices"
	"time"
)

// reading is what the engine knows of its own reading.
type reading struct {
	under      int // reads under way: more than one by rows only
	seq        int64
	fresh      bool      // there may be new rows: look
	polled     bool      // for no other reason than that it is time to
	began      time.Time // of the last look
	pollAt     time.Time
	dueAt      time.Time
	unroutedAt time.Time // when to look for what has no route; zero while that goes on
	nextDue    time.Time // when the next held row that is known of becomes due
	cursor     DueCursor

	turn    int // the kind of read that is tried first next time
	rotate  int // the lane that is read first next time
	horizon int64
	given   int64 // no higher id was given out when the last page was read
	lag     int64 // so many ids back rows appear late, mostly
	owed    int64 // rows above this may have appeared, of which no page that was merged told; none

	passing               bool    // the last page was passed over for the most part
	scans                 bool    // late rows were looked for before the last page was merged
	rowBytes              int     // of a row, about
	ghosts                []*item // settled while a read was under way, which may bring them back
	behind                []*key  // no longer held, with rows to catch up with
	keyStride, scanStride stride
	farBehind             int64 // so many ids are worth a scan
	noDue                 bool  // the last look at the held rows found nothing
	looks                 int   // looks at the lanes in a row that found nothing, for a drain
	news                  int   // how often a look found something, for a drain
	reclaims              int64 // how often ended claims had been freed when the last row came

	pauseUntil time.Time
	failing    [readRows + 1]int64 // since when each kind of read fails, by the pulse; 0 if it doesn't
	ahead      bool                // the next page is asked for before this one is taken in
	elsewhere  int                 // pages in a row that came from another server than the lanes were leased from
	sweep      sweep
	numbering  int   // how often it was noticed that ids began anew: what was read before may have the id of another
	highest    int64 // the highest id from before that

	except map[string]*outlet // by rows: topics that are not to be claimed, as their outlet has no room
	asked  claimed            // by rows: what the claims under way may bring
	plenty bool               // by rows: the last claim brought all that it asked for
}

// claimed is an amount of rows.
type claimed struct{ rows, bytes int }

// readJob is one question to the database.
type readJob struct {
	kind      readKind
	began     time.Time
	seq       int64          // lanes that were leased after it had started don't take its rows
	outlet    *outlet        // readOutlet, readKey
	keys      []*key         // readKey, at the same places as the positions
	ask       []LaneKey      // readAmong
	holders   map[*key]int64 // readHolders: what each key waits for
	forgotten int64          // readHeld: how many keys were when it began
	lanes     []int
	positions []Position
	limit     int
	maxBytes  int
	cursor    DueCursor
	scan      *lateScan   // readLate, readSweep: what it decides by
	outer     *readResult // readLate: what is merged once the scan is over
	claim     ClaimRequest
}

type readKind int

const (
	readLanes    readKind = iota // what is new
	readOutlet                   // an outlet's rows that were passed over
	readKey                      // a key's rows that were passed over
	readDue                      // held rows that are due
	readSweep                    // rows where there can be none
	readUnrouted                 // what waits without a route
	readLate                     // rows that appeared below what was read
	readHeld                     // keys that wait for another attempt, of untold lanes
	readAmong                    // which of a page's keys wait
	readHolders                  // what keys wait for
	readBeyond                   // what is new beyond what waits for sinks that lag
	readRows                     // by rows: claim
	kindsOfReads = 6             // that take turns
)

type readResult struct {
	job    readJob
	page   Page
	cursor DueCursor
	left   []Position    // readLate, readSweep: what wasn't walked
	found  map[int]int64 // readSweep: the lowest row in each lane that nobody expects
	took   time.Duration // readSweep
	held   []HeldKey     // readHeld, readAmong
	err    error

	answers map[LaneKey][]HeldKey // what readAmong has found for this one
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

// startRead starts the next read for which there is reason and room.
func (e *engine) startRead(now time.Time) {
	if e.read.under >= e.mostReads() || e.stopping.begun || len(e.lanes) == 0 || e.settle.count() > unsettledLimit || !now.Before(e.lease.safeUntil) || now.Before(e.read.pauseUntil) {
		return
	}
	if !e.read.pollAt.After(now) {
		e.read.polled = e.read.polled || !e.read.fresh
		e.read.fresh = true
		e.read.pollAt = now.Add(e.options.Poll)
	}
	job, ok := e.nextRead(now)
	if !ok {
		return
	}
	e.read.under++
	e.read.seq++
	job.seq, job.began = e.read.seq, now
	e.reads <- job
}

// nextRead takes the kinds of reads in turn, so that none starves another.
func (e *engine) nextRead(now time.Time) (readJob, bool) {
	if e.options.Claim == ByRows {
		return e.claimRows(now)
	}
	if job, ok := e.lookAtHeld(now); ok {
		return job, true
	}
	if job, ok := e.lookForHolders(now); ok {
		return job, true
	}
	for range kindsOfReads {
		e.read.turn = (e.read.turn + 1) % kindsOfReads
		if job, ok := e.readOf(readKind(e.read.turn), now); ok {
			return job, true
		}
	}
	return readJob{}, false
}

func (e *engine) readOf(kind readKind, now time.Time) (readJob, bool) {
	switch kind {
	case readLanes:
		return e.lookAtLanes(now)
	case readOutlet:
		return e.catchUpOutlet()
	case readKey:
		return e.catchUpKey()
	case readSweep:
		return e.sweepOn(now)
	case readDue:
		return e.lookAtDue(now)
	default:
		return e.lookAtUnrouted(now)
	}
}

// lookAtLanes reads on in all lanes.
func (e *engine) lookAtLanes(now time.Time) (readJob, bool) {
	room := e.mostRoom()
	if !e.read.fresh || room == 0 {
		return readJob{}, false
	}
	e.beginLook(now)
	if job, ok := e.lookBeyond(room); ok {
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

func (l *lane) readable() bool { return !l.draining && !l.unswept }

// mostRoom is the room of the outlet that has most. An outlet whose room is
// less falls behind if it must, and reads for itself later.
func (e *engine) mostRoom() int {
	anyUp, most := e.anyUp(), 0 // while none is up the buffers fill, so that the rows are there when one comes back
	for _, o := range e.outlets {
		if room := e.roomOf(o); o.worthwhile(room, o.options.Buffer) && (o.circuit.state == circuitUp || !anyUp) {
			most = max(most, room)
		}
	}
	return most
}

// roomOf is what an outlet has room for. What is in memory is met again by each scan
// for late rows: where one comes before each page, half of the buffer has to do.
func (e *engine) roomOf(o *outlet) int {
	if e.read.scans {
		return o.room() - o.options.Buffer/2
	}
	return o.room()
}

func (e *engine) anyUp() bool {
	return slices.ContainsFunc(e.outlets, func(o *outlet) bool { return o.circuit.state == circuitUp })
}

// lanesInTurn returns the lanes, each time beginning with another.
func (e *engine) lanesInTurn() []*lane {
	lanes := e.sortedLanes()
	e.read.rotate++
	at := e.read.rotate * 7 % max(1, len(lanes))
	return append(lanes[at:len(lanes):len(lanes)], lanes[:at]...)
}

// sortedLanes returns the lanes by their numbers. It is the same slice until one
// comes or goes: nobody changes it.
func (e *engine) sortedLanes() []*lane {
	if e.sorted == nil {
		e.sorted = slices.SortedFunc(maps.Values(e.lanes), func(a, b *lane) int { return a.Lane - b.Lane })
	}
	return e.sorted
}
