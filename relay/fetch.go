package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// fetch is a read, with its query and its result. For each step of the read, the loop hands the fetch to the reader goroutine,
// which returns it with the result of the step.
type fetch struct {
	kind  readKind
	step  readStep
	seq   int64 // the number of the read; its result is ignored for lanes that were leased after the read began
	began time.Time
	err   error

	queue     *sinkQueue // for readSkipped, readKeys and readUnrouted: the queue that the read is for
	lanes     []int      // for readDue and readBlocked: the lanes that are read
	positions []storage.Position
	reads     func(queue int) bool // whether the page is read for this queue, and so moves the queue's readers; nil if the page is read for all queues
	except    []string             // the topics that the page excludes
	limit     int
	maxBytes  int
	keys      []*key            // for readKeys: the keys, in the order of the positions
	asked     []storage.LaneKey // for readBlockers and stepBlocked: the keys that the database is asked about
	holders   map[*key]int64    // for readBlockers: the id of the message that blocks each key
	forgotten int64             // for readBlocked: blockedKeys.forgotten when the read began; if it has grown, the result is incomplete
	cursor    storage.DueCursor // for readDue: the position at which the read begins; after the read, the position at which the next read begins
	from      storage.DueCursor // for readDue: where the read began
	again     bool              // for readDue: the read searches the rows up to dueRows.pausedTo for rows that are not paused

	page    storage.Page
	took    time.Duration                            // how long the page's statement took
	blocked []storage.BlockedKey                     // the blocked keys that the query returned
	answers map[storage.LaneKey][]storage.BlockedKey // the answers of all steps, with an entry for each key that was asked about
	scan    *lateScan                                // for readSweep: the scan that this read carries out
	late    *lateScan                                // the scan that must run before this page is merged; nil if no scan is needed

	// lateAfter is the id above which rows may have appeared since the page was read, or `none` if no row can have appeared. Rows
	// that have appeared are merged with the next page.
	lateAfter int64
}

// readKind is the kind of a read.
type readKind int

const (
	readLanes    readKind = iota // new rows, above the highest cursor of each lane
	readSkipped                  // rows of a queue that is behind, from its cursor up to the lane's highest cursor
	readKeys                     // the dropped rows of keys that were unblocked
	readDue                      // deferred rows that are due
	readSweep                    // rows that the other reads have missed; none should exist
	readUnrouted                 // rows without a route
	kindsInTurn                  // the number of the kinds above, which take turns
	readBlocked                  // the blocked keys of lanes whose blocked keys are not all in memory
	readBlockers                 // whether the messages that block keys still exist
	kindsOfReads
)

// readStep is a step of a read.
type readStep int

const (
	stepPage    readStep = iota // read the page
	stepLate                    // scan for rows that appeared below the page
	stepBlocked                 // ask which of the page's keys are blocked
)

// bringsPage is true for the kinds of reads that return a page of pending rows. Such a page also reports the id above which late
// rows may have appeared.
var bringsPage = [kindsOfReads]bool{readLanes: true, readSkipped: true, readKeys: true, readUnrouted: true}
