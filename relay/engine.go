package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
	process    process
	named      bool // its name is an operator's
	setup      storage.Setup
	claiming   claiming
	readers    []func(context.Context) // the goroutines of the claiming, which run starts
	guards     []guard                 // those that have something to guard
	duplicates duplicates              // nil without a sink that recognises a batch
	journalAll time.Time               // until then all that is sent is written down before, as a relay has died

	poll     polling
	settle   *settler
	lease    leasing
	control  control
	clock    databaseClock
	stopping stop
	drain    draining
	unrouted map[string]time.Time // topics without a route, and when to tell of them again
	missing  map[string]time.Time // as rows name them, sinks that this relay does not have, and when to tell of them again
	work     work

	results chan func() // of all other goroutines' work: the loop calls each, to take it in
	sent    chan *flight
	trips   chan storage.Control // pauses that tripped breakers want
	leases  chan leaseJob

	sendCtx    context.Context // of every send; ends when the lease is about to
	cancelSend context.CancelCauseFunc

	workers sync.WaitGroup
}

// base is what every part of the engine needs: the table, the options, and whom to tell
// of trouble. Any goroutine may use it.
type base struct {
	store       storage.Store
	options     Options
	callTimeout time.Duration // of one call of the database, which must not hold the relay for longer than its lease
	health      *health
	logLimiter  logLimiter
}

// claiming is one of the two ways to come by messages: [byLanes] and [byRows]. The
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

// byLanes is a relay that claims by lanes: it reads what is pending in the lanes that it
// holds, in the order of ids, and keeps in memory what it has read until it is settled.
type byLanes struct {
	*engine
	*heldLanes
	*blockedKeys
	late  *lateRows
	sweep *sweep
	due   dueRows
	share int // lanes that are this relay's fair part; -1 before the first members
	reads chan *fetch

	// inherit takes over what a relay that died has left of a lane; nil where the store
	// keeps no journals.
	inherit func(l *lane, g storage.Grant)

	seq               int64 // of the last read
	turn              readKind
	ahead             bool                // the next page is asked for before this one is taken in
	skipping          bool                // the last page was passed over for the most part
	elsewhere         int                 // pages in a row that came from another server than the lanes were leased from
	settledDuringRead []*item             // settled while a read was under way, which may bring them back
	failingSince      [kindsOfReads]int64 // since when each kind of read fails, by its clock; 0 if it doesn't

	keyStride  stride    // of a read that catches up with keys
	unroutedAt time.Time // when to look for what has no route; zero while that goes on
}

// dueRows is when deferred rows are read, in passes over those whose time has come.
type dueRows struct {
	cursor storage.DueCursor // where the next read begins

	// All rows up to here are paused: a pass begins behind them. What appears among them is found by one page a second,
	// which begins at again.
	pausedTo storage.DueCursor
	again    storage.DueCursor
	againAt  time.Time
	next     time.Time // when the next deferred row that is known of becomes due
	none     bool      // the last read took nothing into memory, and probably nothing more is due
}

// restart has the next pass begin with the first deferred row.
func (d *dueRows) restart() {
	d.cursor, d.pausedTo, d.again = storage.DueCursor{}, storage.DueCursor{}, storage.DueCursor{}
}

// guard is an optional feature. The shared stages call it at these places, and know nothing
// else of it. There are two, by lanes only: [quarantine], for messages that bring
// relays down, which guards from when a lane of a relay that died is taken over; and
// [dedup], for sinks that recognise a batch.
type guard interface {
	// lost: the lane is forgotten.
	lost(l *lane)

	// start may give the sink its next job. True means that the guard decides what this sink
	// sends now, also if that is nothing: the shared code sends nothing for it.
	start(q *sinkQueue, now time.Time) bool

	// unsendable returns why an item must be parked rather than sent.
	unsendable(it *item) *sinks.Outcome

	// answered judges what the sink has said of an item.
	answered(it *item, outcome sinks.Outcome) sinks.Outcome
}

// duplicates is what [dedup] knows of rows that its sinks may have. Without such a sink there
// is none.
type duplicates interface {
	// outcomeOf returns the outcome of an item that has come into memory, if the sink has it
	// from before. marked: its outcome is written.
	outcomeOf(it *item) *sinks.Outcome
	marked(it *item)

	// mayHave says that the sink may have an item from before, or has it: nobody knows yet,
	// or its outcome isn't written.
	mayHave(it *item) bool

	// keepsJournal says that what was written down of the lane still counts, so that it
	// can't be released: that would clear it.
	keepsJournal(l *lane) bool
}

// polling is when the table is read for what is new.
type polling struct {
	under      int           // reads under way: by lanes 2 while a full page is taken in, else 1 at most; by rows as many as there are claimers
	fresh      bool          // there may be new rows: look
	polled     bool          // the poll's time is the only reason for the next look
	unasked    bool          // the poll's time was the only reason for the last look
	pace       time.Duration // until the next look, at most Options.Poll
	began      time.Time     // of the last look
	at         time.Time     // of the next one, if nothing asks for one before
	dueAt      time.Time     // by lanes: of the next look at the deferred rows
	pauseUntil time.Time
	rowBytes   int // of a row, about

	empty int // looks in a row that found nothing, for a drain
}

// quickPoll is the pace of looks that nobody asked for, while they find something. Each that finds
// nothing makes the next one later, by a sixteenth: so a message that comes after a pause waits for little
// more than a sixteenth of that pause, and a pause costs few looks.
const quickPoll = 7 * time.Millisecond

// begin notes that a look begins, and when the next one is due.
func (p *polling) begin(now time.Time, longest time.Duration) {
	p.unasked, p.fresh, p.polled = p.polled, false, false
	p.pace = min(cmp.Or(p.pace, longest), longest)
	p.began, p.at = now, now.Add(p.pace)
}

// count counts the looks in a row that found nothing new, and says how soon the next one is.
func (p *polling) count(empty bool) {
	if empty {
		p.empty++
		p.pace += p.pace / 16
		return
	}
	p.empty = 0
	if p.unasked {
		p.pace = min(p.pace, quickPoll)
		p.at = earliest(p.at, p.began.Add(p.pace))
	}
}

// reached notes how a call of the database went that began then.
func (b *base) reached(call string, began time.Time, err error) {
	b.options.Observer.Called(call, time.Since(began))
	if err == nil {
		b.health.reached.Store(b.health.now())
		b.health.problem.Store(nil)
		if since := b.health.silentSince.Swap(0); since != 0 {
			b.logBack(time.Duration(b.health.now() - since))
		}
		return
	}
	text := fmt.Sprint(err)
	b.health.problem.Store(&text)
	if !errors.Is(err, context.Canceled) {
		b.health.silentSince.CompareAndSwap(0, max(1, b.health.now()))
	}
}

// traceClaimed tells the tracer of rows that came into memory.
func (b *base) traceClaimed(began time.Time, rows []storage.Row) {
	if len(rows) == 0 {
		return
	}
	messages := make([]sinks.Message, len(rows))
	for i := range rows {
		messages[i] = (&item{row: rows[i]}).message()
	}
	b.options.Tracer.Claimed(began, messages)
}

// traceSettled tells it of outcomes that were written back.
func (b *base) traceSettled(began time.Time, items []*item, err error) {
	messages := make([]sinks.Message, len(items))
	for i, it := range items {
		messages[i] = it.message()
	}
	b.options.Tracer.Settled(began, messages, err)
}

// failed reports trouble with a stage, which will try again. Of trouble that
// lasts, a line now and then is enough.
func (b *base) failed(stage string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	b.options.Observer.Failed(stage, err)
	if allowed, more := b.logLimiter.allow("failed " + stage); allowed {
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

// earliest returns the earlier of two times. A zero one isn't set.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// describe is what an operator reads on the row.
func describe(outcome sinks.Outcome) string {
	return shorten(strings.TrimSuffix(string(outcome.Reason)+": "+outcome.Detail, ": "), 1000)
}

// health tells Healthy how the loop does.
type health struct {
	started atomic.Bool
	looped  atomic.Int64 // when the loop last came round, in nanoseconds since epoch
	reached atomic.Int64 // when the database last answered
	epoch   time.Time

	safeUntil atomic.Int64 // nothing is sent after it
	readFails atomic.Int64 // since when some kind of read has been failing; 0 if none is

	lease   lasting // the leases can't be renewed
	journal lasting // what is to be sent can't be written down
	reclaim lasting // by rows: what is due can't be brought back

	silentSince atomic.Int64 // since when every call of the database fails; 0 if the last one didn't

	readError  atomic.Pointer[string] // the last error of a read
	problem    atomic.Pointer[string] // the last error of the database; none once anything succeeds
	stuck      atomic.Pointer[string] // the last send that doesn't return
	unwritable atomic.Pointer[string] // what of the outcomes it refuses
	waits      atomic.Pointer[string] // why it takes no part; empty if it does, none before it is known
}

func (p *health) now() int64 { return int64(time.Since(p.epoch)) }

// readFailed is told of each read's error before readFails is.
func (p *health) readFailed(err error) {
	text := err.Error()
	p.readError.Store(&text)
}

// lasting is trouble with one kind of call. What isn't needed any more isn't tried any more: so
// trouble that didn't come again for a while is over.
type lasting struct {
	since, last atomic.Int64 // as health.now has it; 0: there is none
	problem     atomic.Pointer[string]
}

// tried notes how a call went whose trouble may last.
func (b *base) tried(l *lasting, err error) {
	if err == nil {
		l.since.Store(0)
		return
	}
	text, now := err.Error(), max(1, b.health.now())
	l.problem.Store(&text)
	if last := l.last.Swap(now); l.since.Load() == 0 || time.Duration(now-last) > 2*b.callTimeout {
		l.since.Store(now)
	}
}

// unhealthy is the trouble if it has lasted for longer than a lease.
func (l *lasting) unhealthy(now int64, what string, lease time.Duration) error {
	since := l.since.Load()
	if since == 0 || time.Duration(now-since) <= lease || time.Duration(now-l.last.Load()) > 2*max(lease, 5*time.Second) {
		return nil
	}
	return fmt.Errorf("%s for %v: %s", what, time.Duration(now-since).Round(time.Second), *l.problem.Load())
}

func (p *health) lastProblem() string {
	if text := p.problem.Load(); text != nil {
		return *text
	}
	return "no answer"
}

// notMade is an error if New didn't make it.
func (r *Relay) notMade() error {
	if r == nil || r.store == nil {
		return errors.New("relay: the Relay is nil or empty: use what New returned, once its error was looked at")
	}
	return nil
}
