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
	batch    []*item
	journals []Journal // to be written before the batch is sent
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
	for _, o := range e.outlets {
		switch {
		case o.options.Sink == nil:
		case o.circuit.state == circuitClosed && o.busy == 0 && !now.Before(o.circuit.reopenAt):
			o.circuit.state = circuitOpening
			e.give(o, job{open: true})
		case o.circuit.state != circuitUp || now.Before(o.pauseUntil):
		case e.careful(now):
			e.startCarefully(o)
		default:
			e.startBatches(o)
		}
	}
}

// startBatches sends as many batches as there are free workers. While a sink
// was just unavailable, one batch tries it.
func (e *engine) startBatches(o *outlet) {
	workers := o.options.Workers
	if o.circuit.failures > 0 {
		workers = 1
	}
	for o.busy < workers && !o.queue.empty() {
		batch := e.takeBatch(o)
		if len(batch) == 0 {
			return
		}
		e.give(o, job{batch: batch})
	}
}

func (e *engine) give(o *outlet, j job) {
	o.busy++
	j.ctx = e.sendCtx
	o.jobs <- j
}

// takeBatch takes what may be sent together, and sorts it as it was written.
func (e *engine) takeBatch(o *outlet) []*item {
	batch := make([]*item, 0, min(o.options.Batch, o.buffered))
	bytes := 0
	for len(batch) < o.options.Batch && (bytes < o.options.BatchBytes || len(batch) == 0) {
		entry, ok := o.queue.pop()
		if !ok {
			break
		}
		for _, it := range e.takeEntry(o, entry, o.options.Batch-len(batch), o.options.BatchBytes-bytes) {
			batch = append(batch, it)
			bytes += it.size()
		}
	}
	slices.SortFunc(batch, func(a, b *item) int { return cmp.Compare(a.row.ID, b.row.ID) })
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

// fits is how many of the key's items make up so many bytes; one at least.
func (k *key) fits(bytes int) int {
	for i, it := range k.items {
		if bytes -= it.size(); bytes < 0 {
			return max(1, i)
		}
	}
	return max(1, len(k.items))
}

// launch marks items as under way. Those that were dropped meanwhile are left
// out, and those that can't be sent are parked, with what comes after them
// left for later.
func (e *engine) launch(k *key, items []*item) []*item {
	for i, it := range items {
		if it.stage == dropped {
			return items[:i] // only items without a key are dropped where they stand
		}
		if why, bad := e.unsendable(it); bad {
			e.putBack(k, items[i+1:])
			e.reject(it, why)
			return items[:i]
		}
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
	if j.journals != nil {
		if result.notSent = e.writeJournals(ctx, j.journals); result.notSent != nil {
			return result
		}
	}
	switch {
	case j.open:
		result.openErr = open(ctx, o.options.Sink)
	case o.tx != nil:
		result.outcomes, result.settled = e.handleAll(ctx, o, j.batch)
	default:
		result.outcomes = send(ctx, o.options.Sink, j.batch)
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

// send hands a batch over. After a panic nobody knows what was delivered.
func send(ctx context.Context, sink sinks.Sink, batch []*item) (outcomes []sinks.Outcome) {
	messages := make([]sinks.Message, len(batch))
	for i, it := range batch {
		messages[i] = it.message()
	}
	defer func() {
		if p := recover(); p != nil {
			outcomes = sinks.All(len(batch), sinks.Fail(sinks.Retry, sinks.ReasonPanic, fmt.Sprintf("the sink panicked: %v", p)))
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
			outcome = sinks.Fail(sinks.Retry, sinks.ReasonPanic, fmt.Sprintf("the handler panicked: %v", p))
		}
	}()
	return sink.HandleTx(ctx, tx, m)
}
