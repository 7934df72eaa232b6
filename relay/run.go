package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// pulse tells Healthy how the loop does.
type pulse struct {
	started atomic.Bool
	looped  atomic.Int64 // when the loop last came round, in nanoseconds since epoch
	reached atomic.Int64 // when the database last answered
	epoch   time.Time

	safeUntil atomic.Int64 // nothing is sent after it
	readFails atomic.Int64 // since when no read has succeeded; 0 while they do

	reclaims, freed atomic.Int64           // by rows: how often ended claims were freed, and how many the last time
	problem         atomic.Pointer[string] // the last error of the database
	stuck           atomic.Pointer[string] // the last send that doesn't return
	unwritable      atomic.Pointer[string] // what of the outcomes it refuses
}

func (p *pulse) lastProblem() string {
	if text := p.problem.Load(); text != nil {
		return *text
	}
	return "no answer"
}

func newPulse() *pulse { return &pulse{epoch: time.Now()} }

func (p *pulse) now() int64 { return int64(time.Since(p.epoch)) }

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

// failed reports trouble with a stage, which will try again. Of trouble that
// lasts, a line now and then is enough.
func (e *engine) failed(stage string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	e.options.Observer.Failed(stage, err)
	if again, more := e.quieter.again("failed " + stage); again {
		e.options.Logger.Warn("relay: trouble, trying again", "relay", e.options.Name, "stage", stage, "error", err, "unsaid", more)
	}
}

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
