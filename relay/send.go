package relay

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// Sending. Queues come in, and jobs for their workers go out: a batch holds what stands first
// in the queue, and of one key one batch at most is in flight. What must hold: nothing is sent
// after safeUntil or by a circuit that is open, and what doesn't return is let go of as if
// the relay had died.

// job is what a worker does for a sink, and what the loop makes of it afterwards. What
// it needs of the engine is lent to the worker until it is done.
type job interface {
	items() []*item // those that it sends
	do(ctx context.Context, e *engine, f *flight)
	done(e *engine, f *flight)
}

// flight is a job under way.
type flight struct {
	queue *sinkQueue
	job   job
	turn  int64           // the queue's jobs have numbers
	ctx   context.Context // ends when the lease is about to
	began time.Time
	took  time.Duration
	stuck bool
}

// batch is the job that sends messages. Its outcomes stand at the same places as they.
type batch struct {
	lent     []*item
	outcomes []sinks.Outcome
	settled  []bool // the handler's transaction has settled it; nil where there is none
}

func (b *batch) items() []*item { return b.lent }

func (b *batch) do(ctx context.Context, e *engine, f *flight) {
	if f.queue.tx != nil {
		b.outcomes, b.settled = e.handleAll(ctx, f.queue, b.lent)
		return
	}
	b.outcomes = send(ctx, f.queue.options.Sink, messagesOf(b.lent))
}

// errLeaseEnding is the cause of the end of a send whose relay could not renew
// its leases in time.
var errLeaseEnding = errors.New("the relay's leases are about to end")

// errAborted is the cause of the end of a send that a stopping relay waits for
// no longer.
var errAborted = errors.New("the relay stops")

// startSends gives work to every queue that can take some.
func (e *engine) startSends(now time.Time) {
	if e.stopping.begun || !now.Before(e.lease.safeUntil) {
		return
	}
	for _, q := range e.queues {
		if q.circuit.state == circuitClosed {
			q.askRefused(now)
		}
		switch {
		case q.options.Sink == nil:
		case q.circuit.state == circuitOpen && q.busy == 0 && !now.Before(q.circuit.reopenAt):
			q.circuit.state = circuitHalfOpen
			e.give(q, &opening{})
		case q.circuit.state != circuitClosed || now.Before(q.pauseUntil) || q.mayOwe > 0 && q.settling >= q.mayOwe:
		case slices.ContainsFunc(e.guards, func(g guard) bool { return g.start(q, now) }):
		default:
			for q.busy < q.atOnce() && !q.waiting.empty() {
				items := e.takeBatch(q)
				if len(items) == 0 {
					break
				}
				e.give(q, &batch{lent: items})
			}
		}
	}
}

// atOnce is how many jobs the queue has at once. While the sink was just unavailable,
// one batch tries it.
func (q *sinkQueue) atOnce() int {
	if q.circuit.failures > 0 {
		return 1
	}
	return q.options.Workers
}

// takeBatch takes what may be sent together, sorted as it was written.
func (e *engine) takeBatch(q *sinkQueue) []*item {
	most := q.options.Batch
	if q.inTrouble() {
		most = 1 // it is tried with one message after the other
	}
	batch := make([]*item, 0, min(most, q.buffered))
	bytes := 0
	for len(batch) < most && (bytes < q.options.BatchBytes || len(batch) == 0) {
		entry, ok := q.waiting.pop()
		if !ok {
			break
		}
		items, left := []*item{entry.item}, most-len(batch)
		if k := entry.key; k != nil {
			// A key with many messages begins the next batch rather than get the little that is
			// left of this one: of a key one batch is under way at a time, and a busy key goes
			// no faster than its batches are large.
			if len(batch) > 0 && left < q.options.Batch/2 && left < min(len(k.items), q.perKey()) {
				q.waiting.putFirst(entry)
				break
			}
			k.queued = false
			items = k.take(min(left, q.perKey()), q.options.BatchBytes-bytes)
		}
		for _, it := range e.launch(entry.key, items) {
			batch = append(batch, it)
			bytes += it.size()
		}
	}
	if q.ordered { // rows come in the order in which they were picked
		slices.SortFunc(batch, func(a, b *item) int { return cmp.Compare(a.row.ID, b.row.ID) })
	}
	return batch
}

// launch marks items as under way. Those that were dropped meanwhile are left
// out, and those that can't be sent are parked, with what comes after them
// left for later.
func (e *engine) launch(k *key, items []*item) []*item {
	for i, it := range items {
		if it.stage != inQueue {
			return items[:i] // only items without a key are dropped, or turn out to be delivered, where they stand
		}
		if why := e.unsendable(it); why != nil {
			for _, next := range items[i+1:] {
				k.add(next)
			}
			e.reject(it, *why)
			return items[:i]
		}
		it.queue.refund(it)
		it.stage = inFlight
		if k != nil {
			k.inFlight++
		}
	}
	return items
}

// unsendable returns why an item must be parked rather than sent.
func (e *engine) unsendable(it *item) *sinks.Outcome {
	if it.row.BadHeaders != "" {
		why := sinks.Fail(sinks.Reject, sinks.ReasonInvalid, it.row.BadHeaders)
		return &why
	}
	for _, g := range e.guards {
		if why := g.unsendable(it); why != nil {
			return why
		}
	}
	return nil
}

// give hands a job to a worker.
func (e *engine) give(q *sinkQueue, j job) {
	q.busy++
	q.turn++
	f := &flight{queue: q, job: j, turn: q.turn, ctx: e.sendCtx, began: time.Now()}
	q.flights[f] = struct{}{}
	q.jobs <- f
}

// sender carries out a queue's jobs.
func (e *engine) sender(ctx context.Context, q *sinkQueue) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-q.jobs:
			e.carryOut(f)
			e.sent <- f
		}
	}
}

func (e *engine) carryOut(f *flight) {
	ctx, cancel := context.WithTimeout(f.ctx, f.queue.options.Timeout)
	defer cancel()
	began := time.Now()
	f.job.do(leased{ctx, e.health}, e, f)
	f.took = time.Since(began)
}

// land takes a job back from its worker.
func (e *engine) land(f *flight) {
	f.queue.busy--
	delete(f.queue.flights, f)
	if f.stuck && !e.anyStuck() {
		e.health.stuck.Store(nil)
		e.options.Logger.Info("relay: what was stuck has returned", "relay", e.options.Name, "sink", f.queue.name)
	}
	f.job.done(e, f)
}

// leased is a context that is over when the lease is, also where the process
// was stopped and nobody has cancelled it yet: a sink that asks before each
// message sends none after the lease.
type leased struct {
	context.Context
	health *health
}

func (l leased) Err() error {
	if err := l.Context.Err(); err != nil {
		return err
	}
	if l.health.now() > l.health.safeUntil.Load() {
		return context.DeadlineExceeded
	}
	return nil
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

// handleAll runs the handler for each message in a transaction of its own.
func (e *engine) handleAll(ctx context.Context, q *sinkQueue, batch []*item) ([]sinks.Outcome, []bool) {
	outcomes, settled := make([]sinks.Outcome, len(batch)), make([]bool, len(batch))
	for i, it := range batch {
		outcomes[i], settled[i] = e.handle(ctx, q, it)
	}
	return outcomes, settled
}

// errNotDelivered rolls a handler's transaction back.
var errNotDelivered = errors.New("the handler did not deliver")

func (e *engine) handle(ctx context.Context, q *sinkQueue, it *item) (outcome sinks.Outcome, settled bool) {
	if ctx.Err() != nil {
		return sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""), false
	}
	ran := false
	err := e.store.(TxStore).HandleTx(ctx, e.options.Name, e.keeps(), it.settlement(StateDone), func(ctx context.Context, tx *sql.Tx) error {
		ran = true
		outcome = handleSafely(ctx, q.tx, tx, it.message())
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
	case errors.Is(err, ErrFenced):
		return sinks.Ok(""), false // settled in vain, and so counted, as any other
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

// A sink that doesn't return though its context has ended can't be stopped from
// outside. Nothing of its lanes is sent any more, and their leases end by
// themselves: another relay sends the messages again, as where a process had been
// stopped in the midst of them. A relay all of whose workers of a sink are stuck
// leaves its lanes to others, if there are any.

// stuckGrace is how long a send may take beyond its time-out.
const stuckGrace = 5 * time.Second

// findStuck notes which sends should have returned long ago.
func (e *engine) findStuck(now time.Time) {
	for _, q := range e.queues {
		for f := range q.flights {
			if !f.stuck && now.Sub(f.began) > q.options.Timeout+stuckGrace {
				f.stuck = true
				text := q.describe(f, now)
				e.health.stuck.Store(&text)
				e.options.Logger.Error("relay: "+text+"; it ignores its context, and its lanes are left to end", "relay", e.options.Name, "sink", q.name)
				e.options.Observer.Failed("stuck", errors.New(text))
				e.claiming.abandon(f)
			}
		}
	}
}

// describe names a send, and what it sends.
func (q *sinkQueue) describe(f *flight, now time.Time) string {
	text := fmt.Sprintf("sink %q appears to be stuck: it did not return from %s for %v", q.name, "Open", now.Sub(f.began).Round(time.Second))
	if items := f.job.items(); len(items) > 0 {
		m := &items[0].row.Message
		text = fmt.Sprintf("sink %q appears to be stuck: it did not return from Send for %v, with %d messages, the first of topic %q with the id %s",
			q.name, now.Sub(f.began).Round(time.Second), len(items), m.Topic, m.ID)
	}
	return text
}

func (e *engine) anyStuck() bool {
	return slices.ContainsFunc(e.queues, func(q *sinkQueue) bool {
		for f := range q.flights {
			if f.stuck {
				return true
			}
		}
		return false
	})
}

// standsDown says that a sink has no worker left here, so that others should have
// the lanes.
func (e *engine) standsDown() bool { return slices.ContainsFunc(e.queues, (*sinkQueue).allStuck) }
