package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// byLanes implements claiming by lanes: it reads the pending rows of the lanes that the relay holds, in the order of ids, and
// keeps them in memory until they are settled.
type byLanes struct {
	engine  *engine
	held    *heldLanes
	blocked *blockedKeys
	late    *lateRows
	sweep   *sweep
	due     dueRows
	share   int // the relay's fair share of lanes; -1 until the members are known
	reads   chan *fetch

	// inherit takes over the journal of a lane whose last holder died. It is nil if the store keeps no journals.
	inherit func(l *lane, g storage.Grant)

	seq               int64 // the number of the last read
	turn              readKind
	ahead             bool                // true while readAhead starts the next read
	elsewhere         int                 // how many consecutive pages came from a server other than the one that granted the leases
	settledDuringRead []*item             // items that were settled during the read in progress, which may return their rows
	failingSince      [kindsOfReads]int64 // when each kind of read began to fail, on the clock of health.now; 0 if its last read succeeded

	mostPassed int       // the value of the constant mostPassed; smaller in tests
	pageStride stride    // the range of a page that excludes topics
	keyStride  stride    // the range of a read for unblocked keys
	unroutedAt time.Time // when rows without a route are read next; zero means now
}

func (e *byLanes) block(it *item) { e.blocked.block(it) }
func (e *byLanes) unblock(k *key) { e.blocked.unblock(k) }
