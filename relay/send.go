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

// takeBatch takes what may be sent together, sorted as it was written.
func (e *engine) takeBatch(o *outlet) []*item {
	most := o.mostAtOnce()
	batch := make([]*item, 0, min(most, o.buffered))
	bytes := 0
	for len(batch) < most && (bytes < o.options.BatchBytes || len(batch) == 0) {
		entry, ok := o.queue.pop()
		if !ok {
			break
		}
		if len(batch) > 0 && o.deservesMore(entry, most-len(batch)) {
			o.queue.giveBack(entry)
			break
		}
		for _, it := range e.takeEntry(o, entry, most-len(batch), o.options.BatchBytes-bytes) {
			batch = append(batch, it)
			bytes += it.size()
		}
	}
	if e.options.Claim == ByLanes { // rows come in the order in which they were picked
		slices.SortFunc(batch, func(a, b *item) int { return cmp.Compare(a.row.ID, b.row.ID) })
	}
	return batch
}

// takeEntry takes up to n items of one place in the queue, and about so many
// bytes.
func (e *engine) takeEntry(o *outlet, entry queued, n, bytes int) []*item {
	if entry.key == nil {
		return e.launch(nil, []*item{entry.item})
	}
	k := entry.key
	k.queued = false
	return e.launch(k, k.take(min(n, o.perKey(), k.fits(bytes))))
}

// launch marks items as under way. Those that were dropped meanwhile are left
// out, and those that can't be sent are parked, with what comes after them
// left for later.
func (e *engine) launch(k *key, items []*item) []*item {
	for i, it := range items {
		if it.stage != inQueue {
			return items[:i] // only items without a key are dropped, or turn out to be delivered, where they stand
		}
		if why, bad := e.unsendable(it); bad {
			e.putBack(k, items[i+1:])
			e.reject(it, why)
			return items[:i]
		}
		it.outlet.refund(it)
		it.stage = inFlight
		it.lane.pinned++
		if k != nil {
			k.flying++
		}
	}
	return items
}

func (e *engine) putBack(k *key, items []*item) {
	for _, it := range items {
		k.add(it)
	}
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

// handleAll runs the handler for each message in a transaction of its own.
func (e *engine) handleAll(ctx context.Context, o *outlet, batch []*item) ([]sinks.Outcome, []bool) {
	outcomes, settled := make([]sinks.Outcome, len(batch)), make([]bool, len(batch))
	for i, it := range batch {
		outcomes[i], settled[i] = e.handle(ctx, o, it)
	}
	return outcomes, settled
}

// errNotDelivered rolls a handler's transaction back.
var errNotDelivered = errors.New("the handler did not deliver")

func (e *engine) handle(ctx context.Context, o *outlet, it *item) (outcome sinks.Outcome, settled bool) {
	if ctx.Err() != nil {
		return sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""), false
	}
	ran := false
	err := e.store.(TxStore).HandleTx(ctx, e.options.Name, e.keeps(), it.settlement(StateDone), func(ctx context.Context, tx *sql.Tx) error {
		ran = true
		outcome = handleSafely(ctx, o.tx, tx, it.message())
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

// flight is a job under way.
type flight struct {
	job   job
	began time.Time
	stuck bool
}

// lookForStuck notes which sends should have returned long ago.
func (e *engine) lookForStuck(now time.Time) {
	for _, o := range e.outlets {
		for f := range o.flights {
			if !f.stuck && now.Sub(f.began) > o.options.Timeout+stuckGrace {
				f.stuck = true
				e.isStuck(o, f, now)
			}
		}
	}
}

// isStuck tells of a send that doesn't return, and lets its lanes go.
func (e *engine) isStuck(o *outlet, f *flight, now time.Time) {
	text := o.describe(f, now)
	e.pulse.stuck.Store(&text)
	e.options.Logger.Error("relay: "+text+"; it ignores its context, and its lanes are left to end", "relay", e.options.Name, "sink", o.name)
	e.options.Observer.Failed("stuck", fmt.Errorf("%s", text))
	for _, it := range f.job.batch {
		if l := it.lane; e.lanes[l.Lane] == l && e.options.Claim == ByLanes {
			e.dropLane(l)
		}
	}
	if e.options.Claim == ByRows && o.allStuck() {
		e.giveUpOutlet(o)
	}
}

// describe names a send, and what it sends.
func (o *outlet) describe(f *flight, now time.Time) string {
	text := fmt.Sprintf("sink %q appears to be stuck: it did not return from %s for %v", o.name, "Open", now.Sub(f.began).Round(time.Second))
	if len(f.job.batch) > 0 {
		m := &f.job.batch[0].row.Message
		text = fmt.Sprintf("sink %q appears to be stuck: it did not return from Send for %v, with %d messages, the first of topic %q with the id %s",
			o.name, now.Sub(f.began).Round(time.Second), len(f.job.batch), m.Topic, m.ID)
	}
	return text
}

// landed forgets a job that has returned.
func (e *engine) landed(o *outlet, f *flight) {
	delete(o.flights, f)
	if f.stuck && !e.anyStuck() {
		e.pulse.stuck.Store(nil)
		e.options.Logger.Info("relay: what was stuck has returned", "relay", e.options.Name, "sink", o.name)
	}
}

func (e *engine) anyStuck() bool {
	for _, o := range e.outlets {
		for f := range o.flights {
			if f.stuck {
				return true
			}
		}
	}
	return false
}

// allStuck says that the outlet has no worker left.
func (o *outlet) allStuck() bool {
	if len(o.flights) < o.options.Workers || len(o.flights) == 0 {
		return false
	}
	for f := range o.flights {
		if !f.stuck {
			return false
		}
	}
	return true
}

// standsDown says that a sink has no worker left here, so that others should have
// the lanes.
func (e *engine) standsDown() bool {
	for _, o := range e.outlets {
		if o.allStuck() {
			return true
		}
	}
	return false
}

// stuckItems are those of sends that don't return.
func (e *engine) stuckItems() map[*item]bool {
	var stuck map[*item]bool
	for _, o := range e.outlets {
		for f := range o.flights {
			if !f.stuck {
				continue
			}
			if stuck == nil {
				stuck = map[*item]bool{}
			}
			for _, it := range f.job.batch {
				stuck[it] = true
			}
		}
	}
	return stuck
}
