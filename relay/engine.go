package relay

import (
	"context"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// The engine's state, and the interfaces between its parts.

// engine is one Run of a Relay, as far as both ways of claiming share it. The loop owns its state. Goroutines that call the
// database or a sink get jobs through one channel and return results through another.
//
// The claiming reads a message into memory. It waits in its sink's queue, a worker sends it, and it leaves memory when its
// outcome is written.
type engine struct {
	*base
	routes       *router
	queues       []*sinkQueue // the last one is for messages without a route
	names        []string     // of the queues
	wake         waker
	aborted      <-chan struct{}
	claiming     claiming
	readers      []func(context.Context) // the goroutines of the claiming, which run starts
	guards       []guard
	deduplicates bool      // some sink recognises a batch that is sent again
	journalAll   time.Time // until when all batches are journalled before they are sent, because a relay has died

	poll       polling
	settle     *settler
	lease      leasing
	leaser     *leaser
	controller *controller
	surveyor   *surveyor
	control    control
	clock      databaseClock
	stopping   stop
	drain      draining
	unrouted   unrouted
	work       work

	results chan func() // functions that apply the results of other goroutines; the loop calls them
	sent    chan *flight

	sendCtx    context.Context // the parent of every send's context; ends when the leases are about to expire
	cancelSend context.CancelCauseFunc

	workers sync.WaitGroup
}

// claiming is one of the two ways to get messages: [byLanes] (bylanes.go) and [byRows] (rows.go).
type claiming interface {
	// startRead starts reading messages if there is a reason and room.
	startRead(now time.Time)

	// rights returns the relay's leases or claims, for the next renewal.
	rights(leave bool) rights

	// block lets only this item of its key be sent; unblock ends that.
	block(it *item)
	unblock(k *key)

	// settled removes an item from memory whose outcome is written, or is left to another relay. giveUp removes an item that this
	// relay doesn't send, or not now, so that it is found again. giveUpQueued gives up all waiting items.
	settled(it *item)
	giveUp(it *item)
	giveUpQueued()

	// abandon gives up the lanes or rows of a call that hangs.
	abandon(f *flight)

	// controlled is called when the controls have changed, with the previous pauses of topics and keys. Waiting items that are
	// paused now leave memory.
	controlled(was *pauses)

	// returned is called after a job while something is paused: some of the job's items may be waiting again.
	returned(f *flight)

	// ownLanes returns the lanes whose messages the relay delivers; nil: all lanes.
	ownLanes() map[int]bool

	// lookEverywhere is called by a drain whose survey has found a message that no read found.
	lookEverywhere()

	// drained reports whether the table has nothing left that could be delivered now.
	drained() bool
}

// guard may decide what a sink is sent. Two exist, by lanes only, for stores that keep journals: [quarantine], for messages that
// crash relays, and [dedup], for sinks that recognise a batch.
type guard interface {
	// start may give the sink its next job. If it returns true, the guard decides what this sink sends now, even if that is
	// nothing.
	start(q *sinkQueue, now time.Time) bool

	// answered returns the outcome of an item, which it may change.
	answered(it *item, outcome sinks.Outcome) sinks.Outcome
}

// waker merges any number of calls into one pending wake-up.
type waker chan struct{}

func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// stop is the state of a stop (stop.go).
type stop struct {
	begun    bool
	ready    bool // nothing is under way, so the leaser may take the relay out of its table
	left     bool // the leaser has taken it out
	leaveErr error
	aborted  bool // the sends were cancelled; the deadline is for settling now
	deadline time.Time
	logAt    time.Time // when to log what the stop waits for; zero once logged
	gaveUp   bool      // the deadline for settling has passed
	err      error
}

// progress is what keeps a run from ending.
type progress struct {
	unsettled int  // outcomes that are not written
	sending   int  // calls of sinks
	buffered  int  // messages in memory for sinks that are not paused
	allPaused bool // every sink is paused
	quiet     bool // nothing is being read, sent or settled
}

// draining is the state of a drain that has found no more messages (drain.go).
type draining struct {
	busy bool      // a survey is running
	last *survey   // the last survey; nil if reads have found a message since
	next time.Time // when the next survey may begin

	unread int64     // the id of the message that the last survey found unread; 0: none
	since  time.Time // when a survey first found it

	failures int       // consecutive surveys that failed
	failing  time.Time // when the first of them began
}
