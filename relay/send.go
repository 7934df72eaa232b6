package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// job is what a worker of an outlet does next: open the sink, or send a batch.
type job struct {
	open     bool
	doubts   []*exactBatch // to be sent again
	batch    []*item
	journals []Journal // to be written before the batch is sent
	plan     *plan     // of an exact sink
	turn     int64     // the outlet's jobs have numbers
	flight   *flight
	ctx      context.Context
}

// sendResult is what became of a job.
type sendResult struct {
	outlet   *outlet
	job      job
	outcomes []sinks.Outcome
	settled  []bool // by message: the handler's transaction has settled it
	took     time.Duration
	openErr  error
	notSent  error // the batch's journal could not be written

	fates      fates // of what was in doubt
	resolveErr error
}

// errLeaseEnding is the cause of the end of a send whose relay could not renew
// its leases in time.
var errLeaseEnding = errors.New("the relay's leases are about to end")

// errAborted is the cause of the end of a send that a stopping relay waits for
// no longer.
var errAborted = errors.New("the relay stops")

// startSends gives work to every outlet that can take some.
func (e *engine) startSends(now time.Time) {
	if e.stopping.begun || !now.Before(e.lease.safeUntil) {
		return
	}
	e.stopWaiting(now)
	for _, o := range e.outlets {
		if o.circuit.state == circuitUp {
			e.askRefused(o, now)
		}
		switch {
		case o.options.Sink == nil:
		case o.circuit.state == circuitClosed && o.busy == 0 && !now.Before(o.circuit.reopenAt):
			o.circuit.state = circuitOpening
			e.give(o, job{open: true})
		case o.circuit.state != circuitUp || now.Before(o.pauseUntil):
		case len(o.doubts) > 0:
			e.startDoubts(o)
		case o.owes(e.options.Claim):
		case e.careful(now):
			e.startCarefully(o)
		case o.exact != nil:
			e.startExactly(o)
		default:
			e.startBatches(o)
		}
	}
}

// startBatches sends as many batches as there are free workers. While a sink
// was just unavailable, one batch tries it.
func (e *engine) startBatches(o *outlet) {
	for o.busy < e.workersOf(o) && !o.queue.empty() {
		batch := e.takeBatch(o)
		if len(batch) == 0 {
			return
		}
		e.give(o, job{batch: batch})
	}
}

func (e *engine) workersOf(o *outlet) int {
	if o.circuit.failures > 0 {
		return 1
	}
	return o.options.Workers
}

func (e *engine) give(o *outlet, j job) {
	o.busy++
	o.turn++
	j.ctx, j.turn, j.flight = e.sendCtx, o.turn, &flight{began: time.Now()}
	j.flight.job = j
	o.flights[j.flight] = struct{}{}
	o.jobs <- j
}

// sender carries out an outlet's jobs.
func (e *engine) sender(ctx context.Context, o *outlet) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-o.jobs:
			e.sent <- e.do(o, j)
		}
	}
}

func (e *engine) do(o *outlet, j job) sendResult {
	began := time.Now()
	ctx, cancel := context.WithTimeout(j.ctx, o.options.Timeout)
	defer cancel()
	ctx = leased{ctx, e.pulse}
	result := sendResult{outlet: o, job: j}
	messages := messagesOf(j.batch)
	var unplanned map[int]sinks.Outcome
	if j.plan != nil {
		unplanned = e.makePlan(ctx, o, j, messages)
	}
	if j.journals != nil {
		if result.notSent = e.writeJournals(ctx, j); result.notSent != nil {
			return result
		}
	}
	switch {
	case j.open:
		result.openErr = open(ctx, o.options.Sink)
	case j.doubts != nil:
		result.fates, result.outcomes, result.resolveErr = e.resolve(ctx, o, j.doubts)
	case j.plan != nil:
		result.outcomes = sendPlanned(ctx, o, messages, unplanned)
	case o.tx != nil:
		result.outcomes, result.settled = e.handleAll(ctx, o, j.batch)
	default:
		result.outcomes = send(ctx, o.options.Sink, messages)
	}
	result.took = time.Since(began)
	return result
}

// leased is a context that is over when the lease is, also where the process
// was stopped and nobody has cancelled it yet: a sink that asks before each
// message sends none after the lease.
type leased struct {
	context.Context
	pulse *pulse
}

func (l leased) Err() error {
	if err := l.Context.Err(); err != nil {
		return err
	}
	if l.pulse.now() > l.pulse.safeUntil.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// open opens the sink; one that panics is one that is not there.
func open(ctx context.Context, sink sinks.Sink) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("open the sink: panic: %v", p)
		}
	}()
	return sink.Open(ctx)
}

func messagesOf(batch []*item) []sinks.Message {
	messages := make([]sinks.Message, len(batch))
	for i, it := range batch {
		messages[i] = it.message()
	}
	return messages
}

// send hands a batch over. After a panic nobody knows what was delivered.
func send(ctx context.Context, sink sinks.Sink, messages []sinks.Message) (outcomes []sinks.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			outcomes = sinks.All(len(messages), sinks.Fail(sinks.Retry, sinks.ReasonPanic, "the sink panicked: "+sinks.DescribePanic(p, "/relay.send")))
		}
	}()
	return sink.Send(ctx, messages)
}
