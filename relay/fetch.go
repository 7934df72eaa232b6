package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// fetch is one read, with its question and its answer. It goes from the loop to the reader
// and back, once for each of its steps.
type fetch struct {
	kind  readKind
	step  readStep
	seq   int64 // lanes that were leased after it had started don't take its rows
	began time.Time
	err   error

	queue     *sinkQueue // readSkipped, readKeys, readUnrouted
	lanes     []int      // readDue, readBlocked
	positions []storage.Position
	reads     func(queue int) bool // whether the page is for a queue, whose readers meet its rows; nil: it is for all
	except    []string             // the topics that the page leaves out
	limit     int
	maxBytes  int
	keys      []*key            // readKeys, at the same places as the positions
	asked     []storage.LaneKey // readBlockers, stepBlocked: of these the database is asked
	holders   map[*key]int64    // readBlockers: what each key waits for
	forgotten int64             // readBlocked: blockedKeys.forgotten when the read began; if it has grown, the answer is incomplete
	cursor    storage.DueCursor // readDue: where it begins, and then where the next one does
	from      storage.DueCursor // readDue: where it began
	again     bool              // readDue: it looks among rows that are paused

	page    storage.Page
	took    time.Duration                            // by the page's statement
	blocked []storage.BlockedKey                     // what was said of the keys
	answers map[storage.LaneKey][]storage.BlockedKey // what was said of them in all steps; there for each key that was asked of
	scan    *lateScan                                // readSweep: the scan that this read is
	late    *lateScan                                // the scan that must run before this page is merged; nil if none is needed

	// Rows may have appeared above this id since the page was read; the next page reports
	// them. none: nowhere.
	lateAfter int64
}

type readKind int

const (
	readLanes    readKind = iota // what is new
	readSkipped                  // a queue's rows that were passed over
	readKeys                     // a key's rows that were passed over
	readDue                      // deferred rows that are due
	readSweep                    // rows where there can be none
	readUnrouted                 // what waits without a route
	kindsInTurn                  // those above take turns
	readBlocked                  // blocked keys, of lanes that do not know all of theirs
	readBlockers                 // what keys wait for
	kindsOfReads
)

type readStep int

const (
	stepPage    readStep = iota // the question itself
	stepLate                    // the scan for rows that appeared below what was read
	stepBlocked                 // which of the page's keys wait for another attempt
)

// bringsPage says which kinds of read bring a page of pending rows, which tells what else may
// have appeared.
var bringsPage = [kindsOfReads]bool{readLanes: true, readSkipped: true, readKeys: true, readUnrouted: true}
