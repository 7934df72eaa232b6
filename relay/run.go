package relay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// engine is one Run of a Relay. Its loop owns all of its state; the goroutines
// that wait for the database or a sink get a job by a channel and give their
// answer back by another.
type engine struct {
	store     Store
	journaler Journaler // nil if the store is none, or without lanes
	options   Options
	routes    *router
	outlets   []*outlet // the last one is for messages without a route
	exact     bool      // one of them is exact
	wake      waker
	aborted   <-chan struct{}
	host      string

	lanes    map[int]*lane
	sorted   []*lane // the same by their numbers; nil since one has come or gone
	read     reading
	holds    holding
	settle   settling
	lease    leasing
	care     care
	stopping stop
	unrouted map[string]time.Time // topics without a route, and when to tell of them again

	reads   chan readJob
	didRead chan readResult
	sent    chan sendResult
	settles chan settleJob
	settled chan settleResult
	leases  chan leaseJob
	leased  chan leaseResult

	journaled chan journaled

	sendCtx    context.Context // of every send; ends when the lease is about to
	cancelSend context.CancelCauseFunc

	quieter quieter
	pulse   *pulse
	workers sync.WaitGroup
}

func (r *Relay) newEngine() *engine {
	host, _ := os.Hostname()
	e := &engine{
		store: r.store, options: r.options, routes: r.routes, wake: r.wake, aborted: r.aborted, host: host,
		lanes: map[int]*lane{}, unrouted: map[string]time.Time{}, pulse: r.pulse,
		settles: make(chan settleJob, settlers+1), settled: make(chan settleResult, settlers+1),
		leases: make(chan leaseJob, 1), leased: make(chan leaseResult, 1),
	}
	e.holds.most, e.read.farBehind, e.read.scanStride = r.held, r.far, stride(8*r.far)
	e.settle.atOnce = min(settlers, e.store.AtOnce().Settles)
	e.reads, e.didRead = make(chan readJob, e.mostReads()), make(chan readResult, e.mostReads())
	e.lease.share, e.lease.claimed, e.read.rowBytes, e.read.owed = -1, -1, 4096, none
	e.read.sweep.ids = leastStride
	e.care.suspects = map[rowRef]suspicion{}
	e.sendCtx, e.cancelSend = context.WithCancelCause(context.Background())
	workers := 0
	for i, name := range r.names {
		e.outlets = append(e.outlets, newOutlet(name, i, r.options.Sinks[name]))
		workers += r.options.Sinks[name].Workers
		e.exact = e.exact || e.outlets[i].exact != nil
	}
	e.outlets = append(e.outlets, newUnrouted(len(r.names)))
	e.sent, e.journaled = make(chan sendResult, workers), make(chan journaled, workers)
	if journaler, ok := r.store.(Journaler); ok && r.options.Claim == ByLanes {
		e.journaler = journaler
	}
	if r.options.Claim == ByRows {
		e.beginRows()
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
	for range e.mostReads() {
		start(e.reader)
	}
	start(e.leaser)
	start(e.janitor)
	for range settlers {
		start(e.settler)
	}
	for _, o := range e.outlets {
		for range o.options.Workers {
			start(func(ctx context.Context) { e.sender(ctx, o) })
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
		e.pulse.looped.Store(e.pulse.now())
		e.advance(now)
		if over, err := e.over(); over {
			return err
		}
		timer.Reset(e.nextTime(now).Sub(now))
		select {
		case <-timer.C:
		case <-e.wake:
			e.woken(time.Now())
		case result := <-e.didRead:
			e.merge(result)
		case result := <-e.sent:
			e.judge(result)
			e.judgeMore()
		case j := <-e.journaled:
			e.afterJournal(j)
		case result := <-e.settled:
			e.afterSettle(result)
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

// judgeMore takes what else has been sent, so that it is settled together.
func (e *engine) judgeMore() {
	for len(e.sent) > 0 {
		e.judge(<-e.sent)
	}
}

// advance starts whatever can be started now.
func (e *engine) advance(now time.Time) {
	e.guardLease(now)
	e.lookForStuck(now)
	e.startLease(now)
	e.startSettles(now)
	e.startRead(now)
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
	for _, t := range []time.Time{e.lease.next, e.lease.safeUntil, e.settle.nextTime(), e.stopping.deadline, e.read.pollAt, e.read.dueAt} {
		sooner(t)
	}
	for _, o := range e.outlets {
		sooner(o.circuit.reopenAt)
		sooner(o.pauseUntil)
		sooner(o.askAt)
	}
	return next
}

// wakePace is how long after a look began the next one begins that somebody asks
// for: where messages come one by one, each look finds more of them so, and the
// last of them waits this long.
const wakePace = 2 * time.Millisecond

// woken looks for new messages, at once unless there was a look just now.
func (e *engine) woken(now time.Time) {
	next := e.read.began.Add(wakePace)
	if now.Before(next) {
		e.read.pollAt = earliest(e.read.pollAt, next)
		return
	}
	e.read.fresh, e.read.polled = true, false
}

func (e *engine) beginLook(now time.Time) {
	e.read.fresh, e.read.polled = false, false
	e.read.began, e.read.pollAt = now, now.Add(e.options.Poll)
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
			result := <-e.sent
			delete(result.outlet.flights, result.job.flight)
		}
	}()
	select {
	case <-done:
		return nil
	case <-time.After(grace):
	}
	now, problems := time.Now(), []error{errors.New("stop the relay: a sink did not return though its context had ended")}
	for _, o := range e.outlets {
		for f := range o.flights {
			problems = append(problems, errors.New(o.describe(f, now)))
		}
	}
	return errors.Join(problems...)
}

// closeSink closes a sink, and doesn't wait for one that won't return.
func (e *engine) closeSink(ctx context.Context, o *outlet) error {
	closed := make(chan error, 1)
	go func() { closed <- o.options.Sink.Close(ctx) }()
	select {
	case err := <-closed:
		return err
	case <-time.After(2 * abortGrace):
		return errors.New("it did not return though its context had ended")
	}
}

// operationTimeout bounds one call of the database: a connection that answers
// no more must not hold the relay for longer than its lease.
func (e *engine) operationTimeout() time.Duration { return max(e.options.Lease, 5*time.Second) }

// reached notes how a call of the database went.
func (e *engine) reached(err error) {
	if err == nil {
		e.pulse.reached.Store(e.pulse.now())
		e.pulse.problem.Store(nil)
		return
	}
	text := fmt.Sprint(err)
	e.pulse.problem.Store(&text)
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
