package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// fetch is a read, with its query and its result. The loop hands it to the reader goroutine, which returns it, once for each of
// its steps.
type fetch struct {
	kind  readKind
	step  readStep
	seq   int64 // the number of the read; lanes that were leased later ignore it
	began time.Time
	err   error

	queue     *sinkQueue // readSkipped, readKeys, readUnrouted
	lanes     []int      // readDue, readBlocked
	positions []storage.Position
	reads     func(queue int) bool // whether the page is for this queue, so that its rows are offered to the queue's readers; nil: for all
	except    []string             // the topics that the page leaves out
	limit     int
	maxBytes  int
	keys      []*key            // readKeys, in the order of the positions
	asked     []storage.LaneKey // readBlockers, stepBlocked: the keys that the database is asked about
	holders   map[*key]int64    // readBlockers: the id of the message that each key waits for
	forgotten int64             // readBlocked: blockedKeys.forgotten when the read began; if it has grown, the result is incomplete
	cursor    storage.DueCursor // readDue: where it begins; after the read, where the next one does
	from      storage.DueCursor // readDue: where it began
	again     bool              // readDue: it searches the rows up to dueRows.pausedTo again, for rows that are not paused

	page    storage.Page
	took    time.Duration                            // how long the page's statement took
	blocked []storage.BlockedKey                     // the answer about the keys
	answers map[storage.LaneKey][]storage.BlockedKey // the answers of all steps, with an entry for each key that was asked about
	scan    *lateScan                                // readSweep: the scan of this read
	late    *lateScan                                // the scan that must run before this page is merged; nil: none

	// lateAfter is an id above which rows may have appeared since the page was read, which the next page reports; none: nowhere.
	lateAfter int64
}

// readKind is the kind of a read.
type readKind int

const (
	readLanes    readKind = iota // new rows, from the head of each lane
	readSkipped                  // a queue's rows between its cursor and the head
	readKeys                     // the dropped rows of keys that were unblocked
	readDue                      // deferred rows that are due
	readSweep                    // rows below the marks, where none should be
	readUnrouted                 // rows without a route
	kindsInTurn                  // the number of the kinds above, which take turns
	readBlocked                  // the blocked keys of lanes whose blocked keys are not all in memory
	readBlockers                 // the messages that keys wait for
	kindsOfReads
)

// readStep is a step of a read.
type readStep int

const (
	stepPage    readStep = iota // read the page
	stepLate                    // scan for rows that appeared below it
	stepBlocked                 // ask which of the page's keys are blocked
)

// bringsPage has the kinds of reads that return a page of pending rows, which also reports where other rows may have appeared.
var bringsPage = [kindsOfReads]bool{readLanes: true, readSkipped: true, readKeys: true, readUnrouted: true}
