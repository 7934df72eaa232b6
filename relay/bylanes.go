package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// byLanes is a relay that claims by lanes: it reads what is pending in the lanes that it
// holds, in the order of ids, and keeps in memory what it has read until it is settled.
type byLanes struct {
	engine  *engine
	held    *heldLanes
	blocked *blockedKeys
	late    *lateRows
	sweep   *sweep
	due     dueRows
	share   int // lanes that are this relay's fair part; -1 before the first members
	reads   chan *fetch

	// inherit takes over what a relay that died has left of a lane; nil where the store
	// keeps no journals.
	inherit func(l *lane, g storage.Grant)

	seq               int64 // of the last read
	turn              readKind
	ahead             bool                // the next page is asked for before this one is taken in
	elsewhere         int                 // pages in a row that came from another server than the lanes were leased from
	settledDuringRead []*item             // settled while a read was under way, which may bring them back
	failingSince      [kindsOfReads]int64 // since when each kind of read fails, by its clock; 0 if it doesn't

	mostPassed int       // as the constant; less in tests
	pageStride stride    // of a page that leaves rows out
	keyStride  stride    // of a read that catches up with keys
	unroutedAt time.Time // when to look for what has no route; zero while that goes on
}

func (e *byLanes) block(it *item) { e.blocked.block(it) }
func (e *byLanes) unblock(k *key) { e.blocked.unblock(k) }
