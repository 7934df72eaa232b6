package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// The loop. Only the loop changes the engine's state. It receives results through channels, applies them, and then starts the
// work that is due: renewals, settlements, reads and sends. It never waits for the database or a sink; other goroutines do. This
// file starts all goroutines.

func (r *Relay) newEngine() *engine {
	now, options := time.Now(), r.options
	e := &engine{
		work:   work{started: now, began: now, housekept: now},
		base:   &base{store: r.store, options: options, health: r.health, callTimeout: max(r.options.Lease, 5*time.Second)},
		routes: r.routes, wake: r.wake, aborted: r.aborted,
		lease: leasing{interval: min(options.Lease/3, 2*time.Second)},
	}
	e.sendCtx, e.cancelSend = context.WithCancelCause(context.Background())
	workers := 0
	for i, name := range r.names {
		e.queues = append(e.queues, newSinkQueue(e.base, name, i))
		workers += r.options.Sinks[name].Workers
	}
	e.queues = append(e.queues, &sinkQueue{name: unroutedName, index: len(r.names)})
	e.names = append(slices.Clone(r.names), unroutedName)
	e.sent = make(chan *flight, workers)
	// The capacity is the maximum number of outstanding results. They come from journals, settlements, a renewal, reads or
	// claims, controls, and a survey. With this capacity, no goroutine blocks on results after the loop has ended.
	e.results = make(chan func(), workers+settlers+1+1+max(1, e.store.Parallelism().Claims)+1+1)
	e.unrouted = unrouted{base: e.base, topics: map[string]*unroutedTopic{}, sinks: map[string]time.Time{}}
	e.settle = newSettler(e.base, e.names, e.store.Parallelism().Settles, e.results, e.written)
	e.leaser = &leaser{
		base: e.base, process: thisProcess(), setup: setupOf(options, r.names), named: r.named, jobs: make(chan leaseJob, 1), results: e.results, after: e.afterLease,
	}
	e.surveyor = &surveyor{base: e.base, routes: e.routes, jobs: make(chan *survey, 1), results: e.results, after: e.afterSurvey}
	e.controller = &controller{base: e.base, trips: make(chan storage.Control, len(e.queues)), results: e.results, heard: e.heard}
	if r.options.Claim == storage.ByRows {
		e.claiming = newByRows(e)
	} else {
		e.claiming = newByLanes(e, r.mostBlocked, r.mostPassed)
	}
	return e
}

// newByLanes returns a byLanes, which claims by lanes. mostBlocked is the maximum number of blocked keys in memory. mostPassed is
// how many rows of a sink that is behind may be read and ignored before the sink is set apart (apart.go).
func newByLanes(e *engine, mostBlocked, mostPassed int) *byLanes {
	held := &heldLanes{lanes: map[int]*lane{}}
	late := &lateRows{base: e.base, held: held, poll: &e.poll, routes: e.routes, queues: e.queues, control: &e.control, lateAfter: none, stride: leastStride}
	b := &byLanes{
		engine: e, held: held, late: late, share: -1, reads: make(chan *fetch, 1), mostPassed: mostPassed, pageStride: stride(8 * mostPassed),
		blocked: &blockedKeys{held: held, routes: e.routes, queues: e.queues, poll: &e.poll, control: &e.control, most: mostBlocked},
		sweep:   &sweep{base: e.base, held: held, late: late, poll: &e.poll, ids: leastStride, clean: e.work.started, next: e.work.started.Add(sweepSoonest)},
	}
	e.readers = []func(context.Context){b.reader}
	e.poll.rowBytes = 4096
	store, ok := e.store.(storage.Journaler)
	if !ok {
		return b
	}
	j := &journal{engine: e, held: held, store: store}
	g := &quarantine{journal: j}
	b.inherit = g.inherit
	deduplicating := map[*sinkQueue]*dedupSink{}
	for _, q := range e.queues {
		if sink, ok := q.options.Sink.(sinks.Deduplicating); ok {
			deduplicating[q] = &dedupSink{sink: sink}
		}
	}
	if len(deduplicating) > 0 {
		g.dedup, e.deduplicates = &dedup{journal: j, sinks: deduplicating}, true
		e.guards = []guard{g.dedup}
	}
	e.guards = append(e.guards, g)
	return b
}

// run starts the goroutines, runs the loop until the relay has stopped, and waits for the goroutines. It abandons calls to sinks
// that do not return after their contexts have ended. Except for the goroutines of closeSinks, every goroutine of the package is
// started here.
func (e *engine) run(ctx context.Context) error {
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	start := func(work func(context.Context)) { e.workers.Go(func() { work(background) }) }
	for _, work := range e.readers {
		start(work)
	}
	start(e.leaser.work)
	start(e.janitor)
	start(e.controller.work)
	for range settlers {
		start(e.settle.work)
	}
	for _, q := range e.queues {
		for range q.options.Workers {
			start(func(ctx context.Context) { q.work(ctx, e.sent) })
		}
	}
	if e.options.Drain {
		start(e.surveyor.work)
	}
	if e.options.Listener != nil && !e.options.Drain { // a drain reads until nothing is left, without notifications
		start(e.listen)
	}
	problems := []error{e.loop(ctx)}
	end()
	ended := make(chan struct{})
	go func() { e.workers.Wait(); close(ended) }()
	grace := abortGrace
	if e.stopping.gaveUp {
		grace = workerGrace
	}
	select {
	case <-ended:
	case <-time.After(grace):
		problems = append(problems, errors.New("stop the relay: a sink did not return though its context had ended"))
		for _, q := range e.queues {
			for f := range q.flights {
				problems = append(problems, errors.New(q.describe(f, time.Now())))
			}
		}
	}
	for len(e.sent) > 0 { // these jobs returned after the loop had ended
		f := <-e.sent
		delete(f.queue.flights, f)
	}
	return errors.Join(append(problems, e.closeSinks(ctx))...)
}

// wakePace is the shortest time between the starts of two requested reads. If messages arrive one by one, a read thus finds
// several of them. The pause delays a message by at most this time.
const wakePace = 2 * time.Millisecond

// loop starts the work that is due, waits for the next result, request or due time, and repeats this until the run has ended.
func (e *engine) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	for {
		now := time.Now()
		e.health.looped.Store(e.health.now())
		e.startLease(now)
		e.startSettlements(now)
		over, err := e.over() // before startRead: a drain or stop continues only while no read is in progress; on a slow database, startRead would always start the next read first
		if now.Sub(e.work.housekept) >= time.Second || over && now.Sub(e.work.started) >= time.Minute {
			e.work.housekept = now
			e.findStuck(now)
			e.findBusyHandlers(now)
			e.reportIdle(now)
			e.reportWork(now, over)
		}
		if over {
			return err
		}
		e.startLease(now) // again, since over() may have found that the relay can now be deregistered
		e.claiming.startRead(now)
		e.startSends(now)
		if e.settle.urgent { // startSends has parked messages or has found expired ones
			e.startSettlements(now)
		}
		// Only times after now count: work that was due earlier has just been started, or waits for a result, and a result
		// wakes the loop.
		times := []time.Time{e.lease.next, e.lease.safeUntil, e.settle.dueAt, e.settle.unwritable.tryAt, e.settle.joiner.due(), e.stopping.deadline, e.stopping.logAt, e.poll.at, e.poll.dueAt, e.poll.pauseUntil}
		for _, q := range e.settle.lists {
			times = append(times, q.retryAt)
		}
		for _, q := range e.queues {
			times = append(times, q.breaker.reopenAt, q.breaker.suspectSince.Add(suspectFor), q.pauseUntil, q.retryAt, q.limitAt)
		}
		next := now.Add(time.Second)
		for _, t := range times {
			if t.After(now) && t.Before(next) {
				next = t
			}
		}
		timer.Reset(next.Sub(now))
		select {
		case <-timer.C:
		case <-e.wake: // there may be new messages, so read now, but not earlier than wakePace after the last read began
			if soonest := e.poll.began.Add(wakePace); time.Now().Before(soonest) {
				e.poll.at = earliest(e.poll.at, soonest)
			} else {
				e.poll.fresh, e.poll.polled = true, false
			}
		case apply := <-e.results:
			apply()
		case f := <-e.sent:
			sent := []*flight{f}
			for len(e.sent) > 0 { // batches that returned at about the same time are settled together
				sent = append(sent, <-e.sent)
			}
			for _, f := range sent {
				delete(f.queue.flights, f)
				f.job.done(e, f)
				if f.queue.paused || len(e.control.inForce) > 0 {
					e.claiming.returned(f)
				}
			}
		case <-done:
			done = nil
			e.beginStop(time.Now())
		case <-e.aborted:
			e.aborted = nil
			e.abort(time.Now())
		}
	}
}

// startSettlements starts settlements, unless the leases are being given back, since the outcomes would then be fenced.
// Deliveries may wait to be written together (settleLinger). If the relay dies, they are sent again, so they wait only while
// their number is smaller than the smallest batch size of any sink. No delivery waits if the buffer of a sink is more than a
// quarter full, in a stop or a drain, or while batches are journalled before they are sent.
func (e *engine) startSettlements(now time.Time) {
	if e.stopping.ready {
		return
	}
	few := settleFew
	if e.stopping.begun || e.options.Drain || e.deduplicates || now.Before(e.journalAll) {
		few = 0
	}
	for _, q := range e.queues {
		switch o := &q.options; {
		case o.Sink == nil:
		case q.buffered > o.Buffer/4 || q.bytes > o.BufferBytes/4:
			few = 0
		default:
			few = min(few, o.Batch)
		}
	}
	e.settle.start(now, few)
}

// closeSinks closes all sinks that have no call in progress. It abandons a sink whose Close does not return.
func (e *engine) closeSinks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
	defer cancel()
	var problems []error
	for _, q := range e.queues {
		if q.options.Sink == nil || len(q.flights) > 0 { // a sink in use is never closed
			continue
		}
		closed := make(chan error, 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					closed <- fmt.Errorf("panic: %v", p)
				}
			}()
			closed <- q.options.Sink.Close(ctx)
		}()
		var err error
		select {
		case err = <-closed:
		case <-time.After(2 * abortGrace):
			err = errors.New("Close did not return though its context had ended")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("close sink %q: %w", q.name, err))
		}
	}
	return errors.Join(problems...)
}

// listen runs the Listener until the context ends, and restarts it when it fails.
func (e *engine) listen(ctx context.Context) {
	pause := Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}
	for failures := 1; ; failures++ {
		var listened atomic.Bool
		err := e.options.Listener.Listen(ctx, func() { listened.Store(true); e.wake.wake() })
		if ctx.Err() != nil {
			return
		}
		if listened.Load() { // the Listener worked before its connection ended, for example because of idle_session_timeout
			failures = 1
		}
		if err != nil {
			e.failed("listen", err)
		}
		if !sleep(ctx, pause.draw(failures)) {
			return
		}
	}
}

// reportWork is called once a second. It reports to the observer how many messages are in memory. Once a minute, and at the
// end of a run that took at least a minute, it logs what the relay has done, unless there is nothing to log.
func (e *engine) reportWork(now time.Time, over bool) {
	w, inFlight, buffered := &e.work, 0, 0
	for _, q := range e.queues {
		sending := q.inFlight()
		inFlight, buffered = inFlight+sending, buffered+q.buffered
		if q.options.Sink != nil {
			e.options.Observer.InMemory(q.name, sending, q.buffered)
		}
	}
	if now.Sub(w.began) < time.Minute && (!over || now.Sub(w.started) < time.Minute) {
		return
	}
	if w.delivered+w.retried+w.parked+w.expired+buffered > 0 {
		e.options.Logger.Info("relay: work done", "relay", e.options.Name, "within", now.Sub(w.began).Round(time.Millisecond),
			"delivered", w.delivered, "retried", w.retried, "parked", w.parked, "expired", w.expired, "in_flight", inFlight, "in_memory", buffered)
	}
	*w = work{started: w.started, began: now, housekept: w.housekept}
}
