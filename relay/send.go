package relay

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Sending. The loop makes batches of the queued messages and hands them to the sink's workers. Each key has at most one batch in
// flight. What must hold: nothing is sent after safeUntil or while the sink's breaker is open. If a call hangs, the relay drops
// the lanes of the call's messages, as if the relay had died.
//
// The path of a batch: startSends calls takeBatch and gives the batch to a worker, which sends it (worker.go). The loop receives
// the batch with its outcomes (batch.done in outcome.go), and the settler writes the outcomes (settle.go).

// errLeaseEnding is the cancellation cause of the sends' context if the leases were not renewed in time.
var errLeaseEnding = errors.New("the relay's leases are about to expire")

// errAborted is the cancellation cause of the sends' context if a stop takes longer than DrainTimeout, or if Abort is called.
var errAborted = errors.New("the relay is stopping")

// startSends gives jobs to every queue that can send.
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
			if q.buffered == 0 { // every failed message has been judged
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

// takeBatch removes the messages of the next batch from the queue, sorts them by id, and marks them as in flight. It parks
// messages that can't be sent; the later messages of their keys wait.
func (e *engine) takeBatch(q *sinkQueue) []*item {
	most, perKey := q.options.Batch, q.options.Batch
	if q.breaker.state == breakerProbing {
		q.waiting.preferOther(q.breaker.probed)
		// Send one message at a time, unless one of the sink's destinations fails and may have filled the buffer with its
		// messages. In that case, send a batch, so that the sink can postpone the messages for that destination.
		if q.hasReadRoom() || q.breaker.last.Destination == "" {
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
			// A key with many messages waits for the next batch if this one has little room left. Only one batch of a key is in
			// flight at a time, so a busy key is fast only with large batches.
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
	if q.ordered { // otherwise the order of the claim is kept (Options.Pick)
		slices.SortFunc(batch, func(a, b *item) int { return cmp.Compare(a.row.ID, b.row.ID) })
	}
	return batch
}

// appendReady appends to the batch the items that may be sent, and marks them as in flight. The items have one key, or there is a
// single item without a key. The first item that may not be sent, and all items after it, wait in their key. If the result
// `blocked` is true, a settlement for another sink is being written for the row of the first waiting item. Then takeBatch puts
// the entry back at the front of the queue.
func (e *engine) appendReady(batch []*item, q *sinkQueue, k *key, items []*item) (_ []*item, blocked bool) {
	wait := func(items []*item) {
		if k != nil {
			k.addAll(items)
		}
	}
	expired := false // an item has expired: until its settlement is written, no later item of its key is sent
	for i, it := range items {
		if it.stage != inQueue { // an item without a key may have been dropped, or settled as delivered, while it was queued
			break
		}
		if it.batchRef() != nil { // the item waits until the relay knows whether the sink has it
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
		if expired || why != nil && i > 0 && q.options.OnPark == HoldKey { // the item waits until the earlier items of its key are settled or sent
			wait(items[i:])
			break
		}
		if why != nil {
			wait(items[i+1:])
			e.park(it, *why)
			break
		}
		if q.tx != nil && !e.settle.joiner.lend(it) { // a settlement of its row for another sink is being written
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

// give hands a job to a worker, with the items that the job sends.
func (e *engine) give(q *sinkQueue, j job, items []*item) {
	f := &flight{queue: q, job: j, items: items, turn: q.breaker.begin(items), ctx: e.sendCtx, began: time.Now()}
	q.flights[f] = struct{}{}
	q.jobs <- f
}

// Stuck calls. If a call to a sink ignores the end of its context, the relay can't stop the call. Then the relay sends nothing
// more from the lanes of the call's messages and lets the leases of these lanes expire, so another relay sends the messages
// again, as after a crash. If all workers of a sink are stuck, the relay leaves its lanes to other relays, if any are active.

// stuckGrace is how long a call may exceed its time-out before it counts as stuck.
const stuckGrace = 5 * time.Second

// findStuck finds calls that have become stuck, and logs a line once all stuck calls have returned.
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
				consequence += "; leaving its messages to other relays"
			}
			e.options.Logger.Error("relay: "+text+consequence, "relay", e.options.Name, "sink", q.name)
			e.options.Observer.Failed("stuck", errors.New(text))
			e.claiming.abandon(f)
		}
	}
	if !anyStuck && e.health.stuck.Load() != nil {
		e.health.stuck.Store(nil)
		e.options.Logger.Info("relay: all stuck calls have returned", "relay", e.options.Name)
	}
}

// findBusyHandlers logs that messages wait for handlers. It logs this if a batch has returned messages whose handlers were not
// called within beginFor, or if messages wait while all workers have been busy for beginFor. It logs at most one line a minute for
// each sink.
func (e *engine) findBusyHandlers(now time.Time) {
	for _, q := range e.queues {
		busy := len(q.flights) == q.options.Workers && !q.waiting.empty()
		for f := range q.flights {
			busy = busy && now.Sub(f.began) >= beginFor
		}
		if q.oneByOne && (busy || q.unstarted > 0) && now.Sub(q.waitLogged) >= time.Minute {
			q.waitLogged = now
			e.options.Logger.Warn("relay: messages wait for handlers: raise Concurrency, or give a slow topic a sink of its own", "relay", e.options.Name, "sink", q.name, "in_memory", q.buffered)
		}
		q.unstarted = 0
	}
}
