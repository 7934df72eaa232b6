package relay

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Sending. Queues come in, and jobs for their workers go out: a batch holds what stands first
// in the queue, and of one key one batch at most is in flight. What must hold: nothing is sent
// after safeUntil or by a breaker that is open, and what doesn't return is let go of as if
// the relay had died.
//
// A batch's way: startSends has takeBatch make it up and gives it to a worker, which
// does it; the loop takes it back, it is done (outcome.go), and written back (settle.go).

// errLeaseEnding is the cause of the end of a send whose relay could not renew
// its leases in time.
var errLeaseEnding = errors.New("the relay's leases are about to end")

// errAborted is the cause of the end of a send that a stopping relay waits for
// no longer.
var errAborted = errors.New("the relay stops")

// startSends gives work to every queue that can take some.
func (e *engine) startSends(now time.Time) {
	if !e.control.heard || e.stopping.begun || !now.Before(e.lease.safeUntil) || !e.settle.mayHaveMore() {
		return
	}
	for _, q := range e.queues {
		b := &q.breaker
		q.retrySuspended(now)
		e.report(q, b.overdue(now))
		atOnce := q.options.Workers
		switch b.state {
		case breakerProbing:
			atOnce = 1
		case breakerSuspect:
			if q.buffered == 0 { // each failure was judged
				e.report(q, b.close())
			}
		}
		switch {
		case q.options.Sink == nil || q.paused:
		case b.state == breakerOpen && len(q.flights) == 0 && !now.Before(b.reopenAt):
			e.give(q, &opening{}, nil)
		case !b.sending() || now.Before(q.pauseUntil) || q.maxUnsettled > 0 && q.settling >= q.maxUnsettled:
		case slices.ContainsFunc(e.guards, func(g guard) bool { return g.start(q, now) }):
		default:
			for len(q.flights) < atOnce && !q.waiting.empty() {
				items := e.takeBatch(q)
				if len(items) == 0 {
					break
				}
				e.give(q, &batch{}, items)
			}
		}
	}
}

// takeBatch takes what may be sent together, sorted as it was written, and marks it as in
// flight. What can't be sent is parked, and what comes after it in its key left for later.
func (e *engine) takeBatch(q *sinkQueue) []*item {
	most, perKey := q.options.Batch, q.options.Batch
	if q.breaker.state == breakerProbing {
		q.waiting.preferOther(q.breaker.probed)
		if q.hasReadRoom() || q.breaker.last.Destination == "" { // else one of several destinations may fill the buffer: the sink is to postpone the rest of a batch
			most = 1
		}
	}
	if q.rate > 0 {
		if most = q.allowed(time.Now(), most); most == 0 {
			return nil
		}
	}
	if q.order == sinks.OrderNone {
		perKey = 1
	}
	batch, bytes := make([]*item, 0, min(most, q.buffered)), 0
	for len(batch) < most && (bytes < q.options.BatchBytes || len(batch) == 0) && !q.waiting.empty() {
		entry := q.waiting.next()
		k, items, left := entry.key, []*item{entry.item}, most-len(batch)
		if k != nil {
			// A key with many messages begins the next batch rather than get the little that is
			// left of this one: of a key one batch is under way at a time, and a busy key goes
			// no faster than its batches are large.
			if len(batch) > 0 && left < q.options.Batch/2 && left < min(len(k.items), perKey) {
				q.waiting.putFirst(entry)
				break
			}
			k.queued = false
			items = k.take(min(left, perKey), q.options.BatchBytes-bytes)
		}
		had, blocked := len(batch), false
		batch, blocked = e.appendReady(batch, q, k, items)
		for _, it := range batch[had:] {
			bytes += it.bytes
		}
		if blocked {
			q.waiting.putFirst(entry)
			break
		}
	}
	if q.rate > 0 {
		q.credit -= float64(len(batch))
	}
	if q.ordered { // rows come in the order in which they were picked
		slices.SortFunc(batch, func(a, b *item) int { return cmp.Compare(a.row.ID, b.row.ID) })
	}
	return batch
}

// appendReady appends to the batch what of the items may be sent, and marks it as in flight. The items are a key's, or one
// without a key. With the first that may not be sent, all that follow it wait in their key. blocked says that this one must be
// the next to be sent, and can't be yet.
func (e *engine) appendReady(batch []*item, q *sinkQueue, k *key, items []*item) (_ []*item, blocked bool) {
	wait := func(items []*item) {
		if k != nil {
			k.addAll(items)
		}
	}
	expired := false // one was too old: until that is written nothing that follows is sent
	for i, it := range items {
		if it.stage != inQueue { // one without a key may have been dropped, or found delivered, while it stood in line
			break
		}
		if it.batchRef() != nil { // it waits until it is known whether its sink has it
			if wait(items[i:]); k != nil {
				k.suspended = it
			}
			break
		}
		if e.routes.tooOld(&it.row, &e.clock) && e.expire(q, it) {
			expired = true
			continue
		}
		why := it.unsendable()
		if expired || why != nil && i > 0 && q.options.OnPark == HoldKey { // what is before it in its key goes first
			wait(items[i:])
			break
		}
		if why != nil {
			wait(items[i+1:])
			e.park(it, *why)
			break
		}
		if q.tx != nil && !e.settle.joiner.lend(it) { // its row is being written for another sink: this one follows
			if wait(items[i:]); k != nil {
				k.queued = true
			}
			return batch, true
		}
		it.stage = inFlight
		if q.tx != nil {
			it.toWrite = result{state: storage.StateDone, charged: 1}
		}
		if k != nil {
			k.inFlight++
		}
		batch = append(batch, it)
	}
	return batch, false
}

// give hands a job to a worker, and the items to send with it.
func (e *engine) give(q *sinkQueue, j job, items []*item) {
	f := &flight{queue: q, job: j, items: items, turn: q.breaker.begin(items), ctx: e.sendCtx, began: time.Now()}
	q.flights[f] = struct{}{}
	q.jobs <- f
}

// A sink that doesn't return though its context has ended can't be stopped from
// outside. Nothing of its lanes is sent any more, and their leases end by
// themselves: another relay sends the messages again, as where a process had been
// stopped in the midst of them. A relay all of whose workers of a sink are stuck
// leaves its lanes to others, if there are any.

// stuckGrace is how long a send may take beyond its time-out.
const stuckGrace = 5 * time.Second

// findStuck notes which sends should have returned long ago, and when all of these did at last.
func (e *engine) findStuck(now time.Time) {
	anyStuck := false
	for _, q := range e.queues {
		stuck, found := 0, []*flight(nil)
		for f := range q.flights {
			if now.Sub(f.began) > q.longest+stuckGrace {
				stuck++
				if !f.stuck {
					found = append(found, f)
				}
			}
		}
		q.allStuck = stuck > 0 && stuck == q.options.Workers
		anyStuck = anyStuck || stuck > 0
		for _, f := range found {
			f.stuck = true
			text := q.describe(f, now)
			e.health.stuck.Store(&text)
			consequence := "; it ignores its context"
			if len(f.items) > 0 {
				consequence += ", and its lanes are left to end"
			}
			e.options.Logger.Error("relay: "+text+consequence, "relay", e.options.Name, "sink", q.name)
			e.options.Observer.Failed("stuck", errors.New(text))
			e.claiming.abandon(f)
		}
	}
	if !anyStuck && e.health.stuck.Load() != nil {
		e.health.stuck.Store(nil)
		e.options.Logger.Info("relay: what was stuck has returned", "relay", e.options.Name)
	}
}
