package relay

import (
	"context"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// The engine's state, and how its parts see each other.

// engine is one Run of a Relay: what both ways of claiming share. Its loop owns all
// of its state; the goroutines that wait for the database or a sink get a job by a
// channel and give their answer back by another.
//
// A message comes in by the reads of the claiming, waits in its sink's queue, goes out
// by a worker of the sink, and leaves memory when its outcome is written back.
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
	deduplicates bool      // some sink recognises a batch that comes again
	journalAll   time.Time // until then all that is sent is written down before, as a relay has died

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

	results chan func() // of all other goroutines' work: the loop calls each, to take it in
	sent    chan *flight

	sendCtx    context.Context // of every send; ends when the lease is about to
	cancelSend context.CancelCauseFunc

	workers sync.WaitGroup
}

// claiming is one of the two ways to come by messages: [byLanes] (bylanes.go) and [byRows] (rows.go). The
// stages that both share ask it this.
type claiming interface {
	// startRead asks the database for messages if there is reason and room.
	startRead(now time.Time)

	// rights are what the relay has now, for the next renewal.
	rights(leave bool) rights

	// block lets nothing of the item's key be sent but the item; unblock ends that for a
	// key that is blocked.
	block(it *item)
	unblock(k *key)

	// settled takes an item out of memory whose outcome is written, or is another's to
	// write. giveUp does so with one that this relay doesn't send, at least not now:
	// others have to find it. giveUpQueued gives up all that wait.
	settled(it *item)
	giveUp(it *item)
	giveUpQueued()

	// abandon lets go of what a send holds that doesn't return.
	abandon(f *flight)

	// controlled is called when the controls in force have changed, with the pauses of topics and keys from before: what waits in memory and
	// is paused now leaves it.
	controlled(was *pauses)

	// returned is told of a job that is done, of whose items some may wait again, where something
	// is paused.
	returned(f *flight)

	// ownLanes are the lanes whose messages the relay delivers; nil: all.
	ownLanes() map[int]bool

	// lookEverywhere is called by a drain that has found a message which no read did.
	lookEverywhere()

	// drained says that nothing is left that could be delivered now, as far as the
	// table is concerned.
	drained() bool
}

// guard has a say in what a sink is sent. There are two, by lanes only, for stores that keep journals: [quarantine], for
// messages that bring relays down, and [dedup], for sinks that recognise a batch.
type guard interface {
	// start may give the sink its next job. True means that the guard decides what this sink
	// sends now, also if that is nothing: the shared code sends nothing for it.
	start(q *sinkQueue, now time.Time) bool

	// answered judges what the sink has said of an item.
	answered(it *item, outcome sinks.Outcome) sinks.Outcome
}

// waker turns any number of calls into one pending look.
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
