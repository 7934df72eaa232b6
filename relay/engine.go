package relay

import (
	"context"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// The engine's state, and the interfaces between its parts.

// engine is the part of a Run's state that both ways of claiming (byLanes and byRows) use. The loop owns this state.
// Goroutines that call the database or a sink get jobs through one channel and return results through another.
//
// A message is read into memory through the field `claiming`. It waits in its sink's queue until a worker sends it, and leaves
// memory when its outcome is written.
type engine struct {
	*base
	routes       *router
	queues       []*sinkQueue // the last one is for messages without a route
	names        []string     // the names of the queues
	wake         waker
	aborted      <-chan struct{}
	claiming     claiming
	readers      []func(context.Context) // the functions that the goroutines of `claiming` run
	guards       []guard
	deduplicates bool      // some sink recognises a batch that is sent again
	journalAll   time.Time // until this time, all batches are journalled before they are sent, because a relay has died

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

	sendCtx    context.Context // the parent of every send's context; ends when all sends must be cancelled
	cancelSend context.CancelCauseFunc

	workers sync.WaitGroup
}

// claiming is the interface of the two ways of claiming messages: [byLanes] (bylanes.go) and [byRows] (rows.go).
type claiming interface {
	// startRead starts reading messages if there is a reason and room.
	startRead(now time.Time)

	// rights returns the relay's leases or claims, for the next renewal. The parameter `leave` is true for the last renewal of
	// the run.
	rights(leave bool) rights

	// block blocks the item's key, so that only this item of the key is sent. unblock unblocks the key.
	block(it *item)
	unblock(k *key)

	// settled removes an item from memory once its outcome was written, or was rejected because the lease or claim was lost. giveUp
	// removes an item that this relay won't send now, so that a later read or claim finds it. giveUpQueued gives up all waiting
	// items.
	settled(it *item)
	giveUp(it *item)
	giveUpQueued()

	// abandon is called when a call to a sink hangs. It gives up the lanes of the call's messages. If the relay claims by rows,
	// it instead gives up the rows that wait for the sink, but only when all workers of the sink hang.
	abandon(f *flight)

	// controlled is called when the controls have changed, with the previous pauses of topics and keys. It removes from memory
	// the waiting items that are paused now.
	controlled(was *pauses)

	// returned is called after a job while controls are in force. It removes from memory those items of the job that must be sent
	// again and are paused.
	returned(f *flight)

	// ownLanes returns the lanes whose messages the relay delivers; nil means all lanes.
	ownLanes() map[int]bool

	// lookEverywhere makes reads search for missed rows again. A drain calls it when a survey has failed or has found a message
	// that no read found.
	lookEverywhere()

	// drained reports whether the table has nothing left that could be delivered now.
	drained() bool
}

// guard is a part of the engine that may decide which messages are sent to a sink. The two guards are [quarantine], for messages
// that crash relays, and [dedup], for sinks that recognise a batch that is sent again. A relay has guards only if it claims by
// lanes and its store keeps journals.
type guard interface {
	// start may give the sink its next job. If it returns true, the engine starts no other job of this sink now, even if the guard
	// has started none.
	start(q *sinkQueue, now time.Time) bool

	// answered is called with the outcome of an item. It returns this outcome, or another one that replaces it.
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
	ready    bool // the leaser may remove the relay from the table of relays: nothing is in progress any more, or the stop has given up the sends
	left     bool // the leaser has removed the relay
	leaveErr error
	aborted  bool // the sends were cancelled; until the new deadline their outcomes may be settled
	deadline time.Time
	logAt    time.Time // when to log what the stop waits for; zero once that was logged
	gaveUp   bool      // the new deadline has passed, too, so the stop no longer waits for the sends
	err      error
}

// progress is the outstanding work, which decides whether a run can end.
type progress struct {
	unsettled int  // how many outcomes are not written
	sending   int  // how many calls to sinks are in progress
	buffered  int  // how many messages are in memory for sinks that are not paused
	allPaused bool // every sink is paused
	quiet     bool // nothing is being read, sent or settled
}

// draining is the state of a drain whose reads find no more messages (drain.go).
type draining struct {
	busy bool      // a survey is running
	last *survey   // the last survey; nil if another one must run before the drain can end
	next time.Time // when the next survey may begin

	unread int64     // the id of the message that the last survey found unread; 0 if it found none
	since  time.Time // when a survey first found that message

	failures int       // how many consecutive surveys failed
	failing  time.Time // when the first of these surveys began
}
