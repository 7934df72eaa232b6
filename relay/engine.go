package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
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
	routes     *router
	queues     []*sinkQueue // the last one is for messages without a route
	names      []string     // of the queues
	wake       waker
	aborted    <-chan struct{}
	host       string
	claiming   claiming
	guards     []guard
	duplicates duplicates // nil without a sink that recognises a batch
	journalAll time.Time  // until then all that is sent is written down before, as a relay has died

	poll     polling
	settle   *settling
	lease    leasing
	stopping stop
	unrouted map[string]time.Time // topics without a route, and when to tell of them again

	didRead   chan func()
	sent      chan *flight
	journaled chan func()
	leases    chan leaseJob
	leased    chan leaseJob

	sendCtx    context.Context // of every send; ends when the lease is about to
	cancelSend context.CancelCauseFunc

	workers sync.WaitGroup
}

// base is what every part of the engine needs: the table, the options, and whom to tell
// of trouble. Any goroutine may use it.
type base struct {
	store      storage.Store
	options    Options
	health     *health
	logLimiter logLimiter
}

// claiming is one of the two ways to come by messages: [byLanes] and [byRows]. The
// stages that both share ask it this.
type claiming interface {
	// workers are its goroutines, which run starts.
	workers() []func(context.Context)

	// startRead asks the database for messages if there is reason and room.
	startRead(now time.Time)

	// rights are what the relay has now, for the next renewal.
	rights(leave bool) rights

	// block lets nothing of the item's key be sent but the item; unblock ends that.
	block(it *item)
	unblock(it *item)

	// settled takes an item out of memory whose outcome is written, or is another's to
	// write. giveUp does so with one that this relay doesn't send, at least not now:
	// others have to find it. giveUpQueued gives up all that wait.
	settled(it *item)
	giveUp(it *item)
	giveUpQueued()

	// abandon lets go of what a send holds that doesn't return.
	abandon(f *flight)

	// drained says that nothing is left that could be delivered now, as far as the
	// table is concerned.
	drained() bool
}

// guard is an optional feature. The shared stages call it at these places, and know nothing
// else of it. There are two, by lanes only: [quarantine], for messages that bring
// relays down, and [dedup], for sinks that recognise a batch.
type guard interface {
	// leased: the lane is new, and this is what its last holder left. lost: it is
	// forgotten.
	leased(l *lane, g storage.Grant)
	lost(l *lane)

	// start gives the sink its next job, and says whether it has: then the shared code
	// sends nothing for the sink now.
	start(q *sinkQueue, now time.Time) bool

	// unsendable returns why an item must be parked rather than sent.
	unsendable(it *item) *sinks.Outcome

	// answered judges what the sink has said of an item.
	answered(it *item, outcome sinks.Outcome) sinks.Outcome
}

// duplicates is what [dedup] knows of rows that its sinks may have. Without such a sink there
// is none.
type duplicates interface {
	// known returns the outcome of an item that has come into memory, if the sink has it
	// from before. marked: its outcome is written.
	known(it *item) *sinks.Outcome
	marked(it *item)

	// keepsJournal says that what was written down of the lane still counts, so that it
	// can't be released: that would clear it.
	keepsJournal(l *lane) bool
}

// polling is when the table is read for what is new.
type polling struct {
	under      int       // reads under way: more than one by rows only
	fresh      bool      // there may be new rows: look
	polled     bool      // the poll's time is the only reason
	began      time.Time // of the last look
	at         time.Time // of the next one, if nothing asks for one before
	dueAt      time.Time // by lanes: of the next look at the held rows
	pauseUntil time.Time
	rowBytes   int // of a row, about

	empty int // looks in a row that found nothing, for a drain
	news  int // how often a look found something, for a drain
}

// begin notes that the table is read for what is new, and when it will be again.
func (p *polling) begin(now time.Time, interval time.Duration) {
	p.fresh, p.polled = false, false
	p.began, p.at = now, now.Add(interval)
}

// count counts the looks in a row that found nothing new.
func (p *polling) count(empty bool) {
	if empty {
		p.empty++
		return
	}
	p.empty = 0
	p.news++
}

// weigh learns what a row weighs.
func (p *polling) weigh(it *item) { p.rowBytes += (it.size() - p.rowBytes) / 16 }

// operationTimeout bounds one call of the database: a connection that answers
// no more must not hold the relay for longer than its lease.
func (b *base) operationTimeout() time.Duration { return max(b.options.Lease, 5*time.Second) }

// reached notes how a call of the database went.
func (b *base) reached(err error) {
	if err == nil {
		b.health.reached.Store(b.health.now())
		b.health.problem.Store(nil)
		return
	}
	text := fmt.Sprint(err)
	b.health.problem.Store(&text)
}

// failed reports trouble with a stage, which will try again. Of trouble that
// lasts, a line now and then is enough.
func (b *base) failed(stage string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	b.options.Observer.Failed(stage, err)
	if again, more := b.logLimiter.again("failed " + stage); again {
		b.options.Logger.Warn("relay: trouble, trying again", "relay", b.options.Name, "stage", stage, "error", err, "unsaid", more)
	}
}

// waker turns any number of calls into one pending look.
type waker chan struct{}

func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// sleep waits for d and says whether the context still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// earliest returns the earliest of the times that are set.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
