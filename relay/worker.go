package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Workers. Each sink has SinkOptions.Workers workers, which carry out its jobs: opening the sink, and sending batches. Apart from
// `base`, a worker shares only its current job with the loop.

// job is work for a sink. A worker calls the method `do`, and then the loop calls the method `done`. From the start of `do`
// until the call of `done`, only the worker uses the job's items.
type job interface {
	do(ctx context.Context, b *base, f *flight)
	done(e *engine, f *flight)
}

// flight is a job that was given to a worker.
type flight struct {
	queue *sinkQueue
	job   job
	items []*item         // the items that the job sends
	turn  int64           // the number of the job; see breaker.begin
	ctx   context.Context // ends when the leases are about to expire or the run is aborted
	began time.Time
	took  time.Duration
	stuck bool

	messages []sinks.Message // the items' messages; the worker reuses the slice
}

// batch is the job that sends messages. Its outcomes have the order of the flight's items.
type batch struct {
	outcomes []sinks.Outcome
	settled  []bool // for each message, whether the handler's transaction has settled it; nil if the sink is not a transactional handler
	excused  bool   // if the whole batch is unsent, this doesn't count as a failure of the sink
}

func (b *batch) do(ctx context.Context, use *base, f *flight) {
	if f.queue.tx == nil {
		for _, it := range f.items {
			f.messages = append(f.messages, it.message())
		}
		b.outcomes = send(ctx, f.queue, f.messages)
		return
	}
	for _, it := range f.items { // each message in its own transaction
		outcome, settled := sinks.Cancelled(), false
		if deadline, _ := ctx.Deadline(); ctx.Err() == nil && time.Until(deadline) >= f.queue.options.Timeout {
			own, cancel := context.WithTimeout(ctx, f.queue.options.Timeout)
			outcome, settled = use.handle(own, f.queue, it)
			cancel()
		}
		b.outcomes, b.settled = append(b.outcomes, outcome), append(b.settled, settled)
	}
}

// opening is the job that opens a sink.
type opening struct{ err error }

// do opens the sink. A panic counts as an error.
func (j *opening) do(ctx context.Context, _ *base, f *flight) {
	defer func() {
		if p := recover(); p != nil {
			j.err = fmt.Errorf("open the sink: panic: %v", p)
		}
	}()
	j.err = f.queue.options.Sink.Open(ctx)
}

// work carries out a queue's jobs.
func (q *sinkQueue) work(ctx context.Context, sent chan<- *flight) {
	var messages []sinks.Message
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-q.jobs:
			bounded, cancel := context.WithTimeout(f.ctx, q.longest)
			began := time.Now()
			f.messages = messages
			f.job.do(leaseCtx{bounded, q.base.health}, q.base, f)
			f.took = time.Since(began)
			cancel()
			clear(f.messages)
			messages, f.messages = f.messages[:0], nil
			sent <- f
		}
	}
}

// leaseCtx is a context whose Err also reports that safeUntil has passed. If the process was suspended, the loop may not have
// cancelled the context yet. Even then, a sink that checks Err before each message sends none after safeUntil.
type leaseCtx struct {
	context.Context
	health *health
}

func (l leaseCtx) Err() error {
	if err := l.Context.Err(); err != nil {
		return err
	}
	if l.health.now() > l.health.safeUntil.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// noAnswer is the outcome of a message for which the sink returned no outcome.
var noAnswer = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the sink gave no answer for this message")

// beginFor is how long after the start of a batch a sink that takes messages one by one may still start sending a message. It is
// short because no outcome is written until the whole batch has returned.
const beginFor = 5 * time.Second

// send calls the sink with a batch, traced if the relay has a tracer, and returns one outcome for each message. A panic counts as
// a retryable failure of all messages, since it is unknown which of them were delivered.
func send(ctx context.Context, q *sinkQueue, messages []sinks.Message) (outcomes []sinks.Outcome) {
	if tracer := q.base.options.Tracer; tracer != nil {
		traced, end := tracer.Send(ctx, q.name, q.options.Sink, messages)
		ctx = traced
		defer func() { end(outcomes) }() // runs after the deferred recovery below
	}
	defer func() {
		if p := recover(); p != nil {
			outcomes = sinks.All(len(messages), sinks.Fail(sinks.Retry, sinks.ReasonPanic, "the sink panicked: "+sinks.DescribePanic(p, "/relay.send")))
		}
	}()
	if sink, each := q.options.Sink.(sinks.OneByOne); each {
		outcomes = sink.SendEach(ctx, q.options.Timeout, messages)
	} else {
		outcomes = q.options.Sink.Send(ctx, messages)
	}
	for len(outcomes) < len(messages) {
		outcomes = append(outcomes, noAnswer)
	}
	return outcomes[:len(messages)]
}

// errNotDelivered makes the store roll back a handler's transaction.
var errNotDelivered = errors.New("the handler did not deliver")

// handle runs the handler for a message in a new transaction, which also settles the message.
func (b *base) handle(ctx context.Context, q *sinkQueue, it *item) (outcome sinks.Outcome, settled bool) {
	messages := []sinks.Message{it.message()}
	if tracer := b.options.Tracer; tracer != nil {
		traced, end := tracer.Send(ctx, q.name, q.options.Sink, messages)
		ctx = traced
		defer func() { end([]sinks.Outcome{outcome}) }()
	}
	ran := false
	err := b.store.(storage.TxStore).HandleTx(ctx, b.options.Name, b.options.Retention != KeepNothing, it.settlement(), func(ctx context.Context, tx *sql.Tx) error {
		ran = true
		outcome = handleSafely(ctx, q.tx, tx, messages[0])
		if outcome.Result != sinks.Delivered {
			return errNotDelivered
		}
		return nil
	})
	switch {
	case err == nil:
		return outcome, true
	case errors.Is(err, errNotDelivered):
		return outcome, false
	case errors.Is(err, storage.ErrFenced):
		return sinks.Ok(""), false // the settler writes the outcome, finds it fenced, and counts it
	case !ran && errors.Is(err, storage.ErrInvalid): // the database refuses only this row
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "the database refused to mark the message as delivered, before the handler ran: "+err.Error()), false
	case ran:
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "commit the handler's transaction: "+err.Error()), false
	default:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "begin the handler's transaction: "+err.Error()), false
	}
}

// handleSafely runs the handler and recovers from a panic, so that the transaction is rolled back.
func handleSafely(ctx context.Context, sink sinks.TxSink, tx *sql.Tx, m sinks.Message) (outcome sinks.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			outcome = sinks.Fail(sinks.Retry, sinks.ReasonPanic, "the handler panicked: "+sinks.DescribePanic(p, "/relay.handleSafely"))
		}
	}()
	return sink.HandleTx(ctx, tx, m)
}

// describe returns a text about a stuck call, with the topic and id of the call's first message.
func (q *sinkQueue) describe(f *flight, now time.Time) string {
	call, what := "Send", ", with messages that may have been sent before"
	if _, opens := f.job.(*opening); opens {
		call, what = "Open", ""
	} else if len(f.items) > 0 {
		m := &f.items[0].row.Message
		what = fmt.Sprintf(", with %d messages, the first of topic %q with the id %s", len(f.items), m.Topic, m.ID)
	}
	return fmt.Sprintf("sink %q appears to be stuck: it has not returned from %s for %v%s", q.name, call, now.Sub(f.began).Round(time.Second), what)
}
