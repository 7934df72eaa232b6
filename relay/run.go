package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// engine is one Run of a Relay: what both ways of claiming share. Its loop owns all
// of its state; the goroutines that wait for the database or a sink get a job by a
// channel and give their answer back by another.
//
// A message comes in by the reads of the claiming, waits in its sink's queue, goes out
// by a worker of the sink, and leaves memory when its outcome is written back.
type engine struct {
	*base
	routes   *router
	queues   []*sinkQueue // the last one is for messages without a route
	names    []string     // of the queues
	wake     waker
	aborted  <-chan struct{}
	host     string
	claiming claiming
	guards   []guard

	poll     polling
	settle   *settling
	lease    leasing
	stopping stop
	unrouted map[string]time.Time // topics without a route, and when to tell of them again

	didRead   chan func()
	sent      chan *flight
	journaled chan func()
	leases    chan leaseJob
	leased    chan leaseResult

	sendCtx    context.Context // of every send; ends when the lease is about to
	cancelSend context.CancelCauseFunc

	workers sync.WaitGroup
}

// base is what every part of the engine needs: the table, the options, and whom to tell
// of trouble. Any goroutine may use it.
type base struct {
	store      Store
	options    Options
	health     *health
	logLimiter logLimiter
}

// claiming is one of the two ways to come by messages: [byLanes] and [byRows]. The
// stages that both share ask it this.
type claiming interface {
	// workers are its goroutines, which run starts.
	workers() []func(context.Context)

	// startRead asks the database for messages if there is reason and room. dueTime
	// is when it has reason again, if nothing else happens.
	startRead(now time.Time)
	dueTime() time.Time

	// rights are what the relay has now, for the next renewal.
	rights(leave bool) rights

	// block lets nothing of the item's key be sent but the item; unblock ends that.
	block(it *item)
	unblock(it *item)

	// settled takes an item out of memory whose outcome is written, or is another's to
	// write. giveUp does so with one that this relay doesn't send, at least not now:
	// others have to find it. giveUpQueued gives up all that wait.
	settled(it *item, s *Settlement)
	giveUp(it *item)
	giveUpQueued()

	// abandon lets go of what a send holds that doesn't return.
	abandon(f *flight)

	// drained says that nothing is left that could be delivered now, as far as the
	// table is concerned.
	drained() bool
}

// guard is a concern of few relays, which the plain way asks at these places and knows
// nothing else of. There are two, by lanes only: [quarantine], for messages that bring
// relays down, and [dedup], for sinks that recognise a batch.
type guard interface {
	// leased: the lane is new, and this is what its last holder left. lost: it is
	// forgotten.
	leased(l *lane, g Grant)
	lost(l *lane)

	// known returns the outcome of an item that has come into memory, if the sink has it
	// from before. unsendable returns why one must be parked rather than sent.
	known(it *item) *sinks.Outcome
	unsendable(it *item) *sinks.Outcome

	// start gives the sink its next job, and says whether that is the guard's affair.
	start(q *sinkQueue, now time.Time) bool

	// answered judges what the sink has said of an item. marked: its outcome is written.
	answered(it *item, outcome sinks.Outcome) sinks.Outcome
	marked(it *item)

	// writesDown says that what is sent is written down before, and marked at once.
	// keepsJournal says that what was written down of the lane still counts, so that it
	// can't be released: that would clear it.
	writesDown(now time.Time) bool
	keepsJournal(l *lane) bool
}

// polling is when the table is read for what is new.
type polling struct {
	under      int       // reads under way: more than one by rows only
	fresh      bool      // there may be new rows: look
	polled     bool      // for no other reason than that it is time to
	began      time.Time // of the last look
	at         time.Time // of the next one, if nothing asks for one before
	pauseUntil time.Time
	rowBytes   int // of a row, about

	empty int // looks in a row that found nothing, for a drain
	news  int // how often a look found something, for a drain
}

func (r *Relay) newEngine() *engine {
	host, _ := os.Hostname()
	e := &engine{
		base:   &base{store: r.store, options: r.options, health: r.health},
		routes: r.routes, wake: r.wake, aborted: r.aborted, host: host,
		unrouted: map[string]time.Time{},
		leases:   make(chan leaseJob, 1), leased: make(chan leaseResult, 1),
	}
	e.settle = newSettling(e.base, e.finish)
	e.sendCtx, e.cancelSend = context.WithCancelCause(context.Background())
	workers := 0
	for i, name := range r.names {
		e.queues = append(e.queues, newSinkQueue(e.base, name, i))
		workers += r.options.Sinks[name].Workers
	}
	e.queues = append(e.queues, &sinkQueue{name: unroutedName, index: len(r.names)})
	e.names = append(slices.Clone(r.names), unroutedName)
	e.sent, e.journaled = make(chan *flight, workers), make(chan func(), workers)
	if r.options.Claim == ByRows {
		e.claiming = newByRows(e)
	} else {
		e.claiming = newByLanes(e, r.held, r.far)
	}
	return e
}

// run starts all that runs, loops until the relay has stopped, and waits for
// all of it. Every goroutine of the package is started here.
func (e *engine) run(ctx context.Context) error {
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	start := func(work func(context.Context)) {
		e.workers.Add(1)
		go func() {
			defer e.workers.Done()
			work(background)
		}()
	}
	for _, work := range e.claiming.workers() {
		start(work)
	}
	start(e.leaser)
	start(e.janitor)
	for range settlers {
		start(e.settle.settler)
	}
	for _, q := range e.queues {
		for range q.options.Workers {
			start(func(ctx context.Context) { e.sender(ctx, q) })
		}
	}
	if e.options.Listener != nil {
		start(e.listen)
	}
	err := e.loop(ctx)
	end()
	return errors.Join(err, e.waitForWorkers(), e.closeSinks(ctx))
}

// loop is the only place that changes the engine's state.
func (e *engine) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	for {
		now := time.Now()
		e.health.looped.Store(e.health.now())
		e.advance(now)
		if over, err := e.over(); over {
			return err
		}
		timer.Reset(e.nextTime(now).Sub(now))
		select {
		case <-timer.C:
		case <-e.wake:
			e.woken(time.Now())
		case takeIn := <-e.didRead:
			takeIn()
		case f := <-e.sent:
			e.land(f)
			for len(e.sent) > 0 { // what else has been sent is settled together
				e.land(<-e.sent)
			}
		case takeNote := <-e.journaled:
			takeNote()
		case result := <-e.settle.settled:
			if e.settle.after(result) {
				e.lease.next = time.Now() // something was fenced: whose lanes are they now?
			}
		case result := <-e.leased:
			e.afterLease(result)
		case <-done:
			done = nil
			e.beginStop(time.Now())
		case <-e.aborted:
			e.aborted = nil
			e.abort(time.Now())
		}
	}
}

// advance starts whatever can be started now.
func (e *engine) advance(now time.Time) {
	e.guardLease(now)
	e.findStuck(now)
	e.startLease(now)
	e.settle.start(now, e.mayLinger)
	e.claiming.startRead(now)
	e.startSends(now)
}

// nextTime is when the loop has to come round though nothing happens. What was
// due before now has been started, or waits for something that will happen.
func (e *engine) nextTime(now time.Time) time.Time {
	next := now.Add(time.Second)
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	for _, t := range []time.Time{e.lease.next, e.lease.safeUntil, e.settle.nextTime(), e.stopping.deadline, e.poll.at, e.claiming.dueTime()} {
		sooner(t)
	}
	for _, q := range e.queues {
		sooner(q.circuit.reopenAt)
		sooner(q.pauseUntil)
		sooner(q.askAt)
	}
	return next
}

// wakePace is how long after a look began the next one begins that somebody asks
// for: where messages come one by one, each look finds more of them so, and the
// last of them waits this long.
const wakePace = 2 * time.Millisecond

// woken looks for new messages, at once unless there was a look just now.
func (e *engine) woken(now time.Time) {
	next := e.poll.began.Add(wakePace)
	if now.Before(next) {
		e.poll.at = earliest(e.poll.at, next)
		return
	}
	e.poll.fresh, e.poll.polled = true, false
}

func (e *engine) beginPoll(now time.Time) {
	e.poll.fresh, e.poll.polled = false, false
	e.poll.began, e.poll.at = now, now.Add(e.options.Poll)
}

// listen keeps a Listener listening until the context ends.
func (e *engine) listen(ctx context.Context) {
	pause := Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}
	for failures := 1; ; failures++ {
		began := time.Now()
		err := e.options.Listener.Listen(ctx, e.wake.wake)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 1
		}
		e.failed("listen", err)
		if !sleep(ctx, pause.draw(failures)) {
			return
		}
	}
}

// waitForWorkers waits for every goroutine; a sink that doesn't return though
// it was told to is left behind.
func (e *engine) waitForWorkers() error {
	done := make(chan struct{})
	go func() { e.workers.Wait(); close(done) }()
	grace := abortGrace
	if e.stopping.gaveUp { // it has had its time
		grace = time.Second
	}
	defer func() {
		for len(e.sent) > 0 { // of those that returned after the loop
			f := <-e.sent
			delete(f.queue.flights, f)
		}
	}()
	select {
	case <-done:
		return nil
	case <-time.After(grace):
	}
	now, problems := time.Now(), []error{errors.New("stop the relay: a sink did not return though its context had ended")}
	for _, q := range e.queues {
		for f := range q.flights {
			problems = append(problems, errors.New(q.describe(f, now)))
		}
	}
	return errors.Join(problems...)
}

// closeSink closes a sink, and doesn't wait for one that won't return.
func (e *engine) closeSink(ctx context.Context, q *sinkQueue) error {
	closed := make(chan error, 1)
	go func() { closed <- q.options.Sink.Close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-time.After(2 * abortGrace):
		return errors.New("it did not return though its context had ended")
	}
}

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
