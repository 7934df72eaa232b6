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

// Workers. Each sink has some, which carry out its jobs: they open it, or send a batch. They share nothing with the loop but the
// job that they have.

// job is what a worker does for a sink, and what the loop makes of it afterwards. Its
// items are lent to the worker until it is done.
type job interface {
	do(ctx context.Context, b *base, f *flight)
	done(e *engine, f *flight)
}

// flight is a job under way.
type flight struct {
	queue *sinkQueue
	job   job
	items []*item         // that it sends
	turn  int64           // the queue's jobs have numbers
	ctx   context.Context // ends when the lease is about to
	began time.Time
	took  time.Duration
	stuck bool

	messages []sinks.Message // of the items; in the same memory as those of the worker's send before
}

// batch is the job that sends messages. Its outcomes stand at the same places as they.
type batch struct {
	outcomes []sinks.Outcome
	settled  []bool // the handler's transaction has settled it; nil where there is none
	excused  bool   // the outcomes say nothing of the sink
}

func (b *batch) do(ctx context.Context, use *base, f *flight) {
	if f.queue.tx == nil {
		for _, it := range f.items {
			f.messages = append(f.messages, it.message())
		}
		b.outcomes = send(ctx, f.queue, f.messages)
		return
	}
	for _, it := range f.items { // each in a transaction of its own
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

// do opens the sink; one that panics is one that is not there.
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

// leaseCtx is a context whose Err also reports that safeUntil has passed. So it is over even if the process was stopped
// meanwhile and nobody has cancelled it yet: a sink that asks Err before each message sends none after that.
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

// noAnswer is the outcome of a message of which the sink has said nothing.
var noAnswer = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the sink gave no answer for this message")

// beginFor bounds how long a sink that takes messages one by one goes on to begin new ones of a batch: the messages that
// it has already handled aren't written back before the whole batch has returned.
const beginFor = 5 * time.Second

// send hands a batch over, traced if the relay is, and returns one outcome a message. After a panic
// nobody knows what was delivered.
func send(ctx context.Context, q *sinkQueue, messages []sinks.Message) (outcomes []sinks.Outcome) {
	if tracer := q.base.options.Tracer; tracer != nil {
		traced, end := tracer.Send(ctx, q.name, messages)
		ctx = traced
		defer func() { end(outcomes) }() // after what recovers
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

// errNotDelivered rolls a handler's transaction back.
var errNotDelivered = errors.New("the handler did not deliver")

// handle runs the handler for a message in a transaction of its own, which also settles it.
func (b *base) handle(ctx context.Context, q *sinkQueue, it *item) (outcome sinks.Outcome, settled bool) {
	messages := []sinks.Message{it.message()}
	if tracer := b.options.Tracer; tracer != nil {
		traced, end := tracer.Send(ctx, q.name, messages)
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
		return sinks.Ok(""), false // settled in vain, and so counted, as any other
	case !ran && errors.Is(err, storage.ErrInvalid): // of this row alone
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "mark the message as delivered, before its handler runs: "+err.Error()), false
	case ran:
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "commit the handler's transaction: "+err.Error()), false
	default:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "begin the handler's transaction: "+err.Error()), false
	}
}

// handleSafely runs the handler; a panic must not leave the transaction open.
func handleSafely(ctx context.Context, sink sinks.TxSink, tx *sql.Tx, m sinks.Message) (outcome sinks.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			outcome = sinks.Fail(sinks.Retry, sinks.ReasonPanic, "the handler panicked: "+sinks.DescribePanic(p, "/relay.handleSafely"))
		}
	}()
	return sink.HandleTx(ctx, tx, m)
}

// describe names a call of the sink that doesn't return, and what it sends.
func (q *sinkQueue) describe(f *flight, now time.Time) string {
	call, what := "Send", ", with what may have been sent before"
	if _, opens := f.job.(*opening); opens {
		call, what = "Open", ""
	} else if len(f.items) > 0 {
		m := &f.items[0].row.Message
		what = fmt.Sprintf(", with %d messages, the first of topic %q with the id %s", len(f.items), m.Topic, m.ID)
	}
	return fmt.Sprintf("sink %q appears to be stuck: it did not return from %s for %v%s", q.name, call, now.Sub(f.began).Round(time.Second), what)
}
