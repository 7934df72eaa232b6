package relay

import (
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// From answers to states. A batch comes back from its sink with an outcome a message, and each
// goes to settle as done, retry or error, or back into the queue uncharged. What must hold: a
// retry blocks its key until it is over, a park until it is written; and what fails for all
// is charged to none (trouble.go). The back-off is drawn in retry; in trouble, wait draws from
// Reopen instead. A table of what each outcome costs stands in DESIGN.md, "A retry and a park
// hold the key".

// done turns what a sink answered into states. First all is counted, as a message is judged by
// what became of the others, too; then each is settled or put back; then the circuit is judged,
// and the keys go on.
func (b *batch) done(e *engine, f *flight) {
	q, outcomes := f.queue, b.outcomes
	q.observeSent(f.took, outcomes)
	delivered, refused := 0, 0
	for i, it := range f.items {
		if it.key != nil {
			it.key.inFlight--
		}
		if q.tx != nil && (b.settled == nil || !b.settled[i]) {
			e.unlend(it)
		}
		for _, g := range e.guards {
			outcomes[i] = g.answered(it, outcomes[i])
		}
		if outcomes[i].Result == sinks.Delivered {
			delivered++
		} else if it.countsAgainst(&outcomes[i]) && it.refusal == nil && it.row.Attempts == 0 { // each message once
			refused++
		}
	}
	if now := time.Now(); now.Sub(q.fuse.since) >= fuseTime {
		q.fuse = fuse{since: now, blown: q.fuse.blown}
	}
	q.fuse.delivered, q.fuse.refused = q.fuse.delivered+delivered, q.fuse.refused+refused
	// What a sink that is well has delivered whole says nothing new of it.
	news := delivered < len(f.items) || len(q.troubles) > 0 || q.circuit.failures > 0 || q.circuit.told
	if news {
		q.watch(f.turn, f.items, outcomes)
	}
	var back []*item
	for i, it := range f.items {
		outcome := outcomes[i]
		if outcome.Result == sinks.Delivered {
			e.delivered(it, outcome, b.settled != nil && b.settled[i])
			continue
		}
		if e.apply(it, outcome, f.ctx.Err() != nil) {
			back = append(back, it)
			if it.key != nil {
				it.key.back = true
			}
		}
	}
	if len(back) > 0 {
		e.requeue(q, back)
	}
	if news {
		q.judgeCircuit(outcomes, b.excused || f.ctx.Err() != nil)
	}
	e.resume(f.items)
}

// observeSent counts outcomes.
func (q *sinkQueue) observeSent(took time.Duration, outcomes []sinks.Outcome) {
	counts := map[OutcomeKind]int{}
	for _, outcome := range outcomes {
		counts[OutcomeKind{outcome.Result, outcome.Reason}]++
	}
	q.base.options.Observer.Sent(q.name, took, counts)
}

// resume lets the next messages of the items' keys have their turn.
func (e *engine) resume(items []*item) {
	for _, it := range items {
		if k := it.key; k != nil {
			e.queues[k.ref.queue].enqueue(k)
			k.lane.forget(k)
		}
	}
}

// apply does what the outcome of an item asks for that wasn't delivered, and says whether the
// item goes back to its queue. What a stop, or the end of the lease, has cut off is charged nothing.
func (e *engine) apply(it *item, outcome sinks.Outcome, cut bool) (back bool) {
	if it.commitUnknown(&outcome) {
		it.maybeCommitted = true
		return true // perhaps it was committed: the next try finds out
	}
	unanswered := outcome.Result == sinks.Retry && (outcome.Reason == sinks.ReasonUnknown || outcome.Reason == sinks.ReasonTimeout)
	if unanswered {
		it.lostAnswer = describe(outcome)
	}
	k, t := it.key, it.queue.troubles[outcome.Destination]
	behind := k != nil && (k.blocked && k.blockedBy != it.row.ID || k.aside != nil)
	switch {
	case behind:
		return true // a message before it in the batch waits: this one goes after it, uncharged
	case unanswered && cut:
		e.logUncharged(it, &outcome)
		return e.putOff(it, outcome, 0, 0)
	case t != nil && t.recognised && it.countsAgainst(&outcome) && (it.refusal == nil || !it.refusal.counts):
		return e.wait(it, t, outcome)
	case outcome.Result == sinks.Reject && isFinal(&outcome):
		return e.reject(it, outcome)
	case outcome.Result == sinks.Reject:
		return e.refuse(it, t, outcome)
	case postponed(outcome): // a retry that charges nothing
		e.logUncharged(it, &outcome)
		if outcome.Reason == sinks.ReasonUnroutable { // nothing behind the sink takes it
			e.alarmUnrouted(it.row.Message.Topic)
		}
		return e.putOff(it, outcome, 0, outcome.RetryAfter)
	case outcome.Result == sinks.Unavailable:
		e.logUncharged(it, &outcome)
		return true
	case outcome.Result == sinks.Unsent:
		return true
	default:
		return e.retry(it, t, outcome)
	}
}

// delivered marks the item done and lets its key go on at once: should the
// mark be lost, its successor begins with this message, and all keeps its order.
func (e *engine) delivered(it *item, outcome sinks.Outcome, settled bool) {
	e.work.delivered++
	e.options.Observer.Delivered(it.queue.name, it.row.Message.Topic, max(0, time.Since(it.row.CreatedAt)))
	delete(e.unrouted, it.row.Message.Topic) // it has a handler now
	if k := it.key; k != nil && k.blocked && k.blockedBy == it.row.ID {
		e.claiming.unblock(k)
	}
	// A lost answer says why the message may have come twice, also where it was charged nothing.
	done := result{state: storage.StateDone, charged: 1, problem: it.lostAnswer}
	if outcome.Receipt != "" {
		done.receipt = shorten(outcome.Receipt, 255)
	}
	if settled { // by the handler's transaction
		it.toWrite = done
		e.finish(it, map[storage.State]int{})
		e.options.Observer.Settled(storage.Settled{Changed: 1}, map[storage.State]int{storage.StateDone: 1})
		return
	}
	e.settle.add(it, done)
}

// reject parks the item, unless the sink's fuse has blown: then it says that the item goes back to its
// queue. So it does where it has to go after others of its key, and is parked once it is the first.
func (e *engine) reject(it *item, outcome sinks.Outcome) (back bool) {
	switch {
	case e.blows(it.queue, &outcome):
		return true
	case it.mustFollow():
		it.condemned = &outcome
		return true
	}
	e.park(it, outcome)
	return false
}

// park has the item parked. Its key waits until that is written: a park that is
// lost would send this message after the next one. With HoldKey it waits for an operator.
// The message may be sent elsewhere, too (deadletter.go).
func (e *engine) park(it *item, outcome sinks.Outcome) {
	holds, what := it.key != nil && it.queue.options.OnPark == HoldKey, "relay: parked a message, which waits for an operator"
	if holds {
		what = "relay: parked a message, which waits for an operator, and all of its key with it"
	}
	e.claiming.block(it)
	parked := result{state: storage.StateError, charged: 1, holds: holds, problem: describe(outcome)}
	what += e.addDeadLetter(it.queue, &it.row, string(outcome.Reason), &parked)
	e.options.Observer.Parked(it.queue.name, outcome.Reason)
	e.logParked(what, it, &outcome)
	e.settle.add(it, parked)
}

// retry puts the item away until its next attempt, and blocks its key; after
// the last attempt it is refused.
func (e *engine) retry(it *item, t *trouble, outcome sinks.Outcome) (back bool) {
	attempts := it.row.Attempts + 1
	limit := it.queue.options.MaxAttempts
	if limit > 0 && attempts >= limit {
		outcome.Detail = strings.TrimSuffix(string(outcome.Reason)+": "+outcome.Detail, ": ")
		outcome.Reason = sinks.ReasonExhausted
		return e.refuse(it, t, outcome)
	}
	if t != nil { // given back should it turn out to be trouble
		t.charged[it.row.ID] = charged{t.charged[it.row.ID].attempts + 1, it.queue.turn}
	}
	wait := max(it.queue.options.Backoff.draw(attempts), outcome.RetryAfter)
	e.logRetry(it, &outcome, attempts, wait)
	return e.putOff(it, outcome, 1, wait)
}

// putOff puts the item away for a while, and blocks its key; or says that it goes back to its
// queue, behind what has to go first.
func (e *engine) putOff(it *item, outcome sinks.Outcome, charged int, delay time.Duration) (back bool) {
	if it.mustFollow() {
		it.row.Attempts += charged
		return true
	}
	e.claiming.block(it)
	e.settle.add(it, result{state: storage.StateRetry, charged: charged, problem: describe(outcome), delay: delay})
	return false
}

// mustFollow says that earlier messages of the item's key still wait in its queue. With HoldKey it must not be parked or
// put off before them: they would wait behind it for an operator. This comes of sinks that refuse one message,
// and leave earlier ones of its key unsent.
func (it *item) mustFollow() bool {
	k := it.key
	return k != nil && it.queue.options.OnPark == HoldKey && (k.back || len(k.items) > 0 && k.items[0].row.ID < it.row.ID)
}

// wait holds back a message of a destination in trouble, uncharged. It stays in memory while the queue has room or
// messages that weren't tried. Else, or where the sink names its destinations, it is written as a retry, so
// that others can be read. wait says whether the item goes back to its queue.
func (e *engine) wait(it *item, t *trouble, outcome sinks.Outcome) (back bool) {
	q := it.queue
	e.logUncharged(it, &outcome)
	if untried := q.roomy() || !q.waiting.empty(); outcome.Destination == "" && untried {
		it.refusedNow(outcome.Destination).withAll()
		return e.keepAside(it)
	}
	return e.putOff(it, outcome, 0, max(q.options.Reopen.Min, q.options.Reopen.draw(t.tries), outcome.RetryAfter))
}

// refuse parks a message whose refusal counts, and sets others aside.
func (e *engine) refuse(it *item, t *trouble, outcome sinks.Outcome) (back bool) {
	q, now, r := it.queue, time.Now(), it.refusal
	if q.options.RejectAfter < 0 || t == nil || r != nil && (r.counts || now.Sub(r.since) >= q.options.RejectAfter) {
		return e.reject(it, outcome)
	}
	e.logUncharged(it, &outcome)
	r = it.refusedNow(outcome.Destination)
	if _, counted := t.failing[failingOf(it)]; !counted {
		r.beside = true
	}
	if !q.askAt.After(now) {
		q.asks++
		q.askAt = now.Add(q.options.Reopen.draw(q.asks))
	}
	q.askAt = earliest(q.askAt, r.since.Add(q.options.RejectAfter))
	return e.keepAside(it)
}

// keepAside keeps an item, and with it its key, out of the queue. It says that the
// item has to go back there all the same, where it can't stay in memory.
func (e *engine) keepAside(it *item) (back bool) {
	if !e.mayStay(it) {
		return true
	}
	it.stage = inQueue
	if it.key != nil {
		it.key.add(it)
		it.key.aside = it
	}
	it.queue.refused = append(it.queue.refused, it)
	return false
}

// requeue queues items again that were not handed over.
func (e *engine) requeue(q *sinkQueue, items []*item) {
	var back []queued
	for _, it := range items {
		if it.stage = inQueue; it.key != nil {
			it.key.back = false
		}
		switch {
		case !e.mayStay(it) || it.key != nil && it.key.blocked && it.key.blockedBy != it.row.ID:
			e.claiming.giveUp(it)
		case it.key == nil:
			back = append(back, queued{item: it})
		default:
			it.key.add(it)
			if !it.key.queued && it.key.aside == nil {
				it.key.queued = true
				back = append(back, queued{key: it.key})
			}
		}
	}
	q.waiting.putFirst(back...)
}

// mayStay says that the item is the relay's to send, for good.
func (e *engine) mayStay(it *item) bool {
	return !e.stopping.begun && (it.lane == nil || !it.lane.lost && !it.lane.draining)
}
