package relay

import (
	"regexp"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// This file turns the outcomes of a batch into settlements. A sink returns one outcome for each message, and its breaker judges what
// each outcome means (breaker.go). The message is then settled as done, retry or error, is suspended in memory, or returns to the
// queue. What must hold: a retry blocks its key until the message is done or parked. A parked message blocks its key until its state is
// written. A suspended message blocks its key until it is sent again.

// done processes the outcomes of a batch.
func (b *batch) done(e *engine, f *flight) {
	q, outcomes := f.queue, b.outcomes
	q.observeSent(f.took, outcomes)
	cut := f.ctx.Err() != nil || !time.Now().Before(e.lease.safeUntil)
	for i, it := range f.items {
		if q.oneByOne && !cut && outcomes[i].Result == sinks.Unsent && outcomes[i].Reason == sinks.ReasonCancelled {
			q.unstarted++
		}
		if it.key != nil {
			it.key.inFlight--
		}
		if q.tx != nil && (b.settled == nil || !b.settled[i]) {
			e.settle.write(e.settle.joiner.takeBack(it, time.Now())...)
		}
		for _, g := range e.guards {
			outcomes[i] = g.answered(it, outcomes[i])
		}
		if isUnanswered(&outcomes[i]) {
			it.lostAnswer = describe(outcomes[i])
		}
	}
	probed := q.breaker.state == breakerProbing
	verdicts, told := q.breaker.judge(sent{
		turn: f.turn, items: f.items, outcomes: outcomes, cut: cut, excused: b.excused, paused: q.paused, relays: q.relays,
	}, time.Now())
	var rest []*item
	for i, it := range f.items {
		if verdicts == nil || verdicts[i].action == done {
			e.delivered(it, outcomes[i], b.settled != nil && b.settled[i])
			continue
		}
		if result := outcomes[i].Result; result == sinks.Retry || result == sinks.Reject {
			it.failed = it.failed.With(f.attempt(e, &outcomes[i]))
		}
		if e.apply(it, &outcomes[i], verdicts[i]) {
			rest = append(rest, it)
		}
	}
	e.requeue(q, rest, probed)
	e.report(q, told)
	q.retryAt = time.Time{} // a delivery or a new suspended message may change which suspended message is due next
	e.resume(f.items)
}

// attempt returns the record of a failed attempt of this flight, for a message with the given outcome.
func (f *flight) attempt(e *engine, outcome *sinks.Outcome) storage.Attempt {
	return storage.Attempt{
		At: e.clock.now().Add(-time.Since(f.began)), Relay: e.options.Name, Sink: f.queue.name, Answer: describe(*outcome), DurationMS: f.took.Milliseconds(),
	}
}

// observeSent passes the number of outcomes of each kind to the observer.
func (q *sinkQueue) observeSent(took time.Duration, outcomes []sinks.Outcome) {
	counts := map[OutcomeKind]int{}
	for _, outcome := range outcomes {
		counts[OutcomeKind{outcome.Result, outcome.Reason}]++
	}
	q.base.options.Observer.Sent(q.name, took, counts)
}

// resume queues the keys of these items again, if the keys have more messages to send.
func (e *engine) resume(items []*item) {
	for _, it := range items {
		if k := it.key; k != nil {
			e.queues[k.ref.queue].enqueue(k)
			k.lane.forget(k)
		}
	}
}

// apply carries out the verdict on an item that wasn't delivered, and reports whether the item returns to its queue.
func (e *engine) apply(it *item, outcome *sinks.Outcome, v verdict) (returns bool) {
	switch v.action {
	case park:
		e.park(it, *outcome)
		return false
	case retry:
		if v.charged > 0 {
			e.logRetry(it, outcome, it.row.Attempts+1, v.delay)
		} else {
			e.logUncharged(it, outcome)
		}
		if postponed(*outcome) && outcome.Reason == sinks.ReasonUnroutable {
			e.unrouted.postponed(it.row.Message.Topic, it.queue.name, outcome.Detail)
		}
		e.putOff(it, *outcome, v)
		return false
	case suspend:
		e.logUncharged(it, outcome)
		return e.suspend(it, outcome, v)
	default:
		if outcome.Result == sinks.Unavailable {
			e.logUncharged(it, outcome)
		}
		return true
	}
}

// delivered settles the item as done. The next message of its key may be sent before this settlement is written: if the
// settlement is lost, the lane's next holder sends this message again before the later ones, so the order is kept.
func (e *engine) delivered(it *item, outcome sinks.Outcome, settled bool) {
	e.work.delivered++
	e.options.Observer.Delivered(it.queue.name, it.row.Message.Topic, max(0, time.Since(it.row.CreatedAt)))
	delete(e.unrouted.topics, it.row.Message.Topic) // the topic has a handler or destination now
	if k := it.key; k != nil && k.blocked && k.blockedBy == it.row.ID {
		e.claiming.unblock(k)
	}
	// The error of an earlier attempt without an answer explains why the message may have been delivered twice.
	done := result{state: storage.StateDone, charged: 1, problem: it.lostAnswer}
	if outcome.Receipt != "" {
		done.receipt = shorten(outcome.Receipt, 255)
	}
	if settled { // the handler's transaction has settled it
		it.toWrite = done
		e.finish(it, map[storage.State]int{})
		e.options.Observer.Settled(storage.Settled{Changed: 1}, map[storage.State]int{storage.StateDone: 1})
		return
	}
	e.settle.add(it, done)
}

// deliveredBefore settles a waiting item whose message the sink already has.
func (e *engine) deliveredBefore(it *item, outcome sinks.Outcome) {
	if it.key != nil {
		it.key.remove(it)
	}
	e.delivered(it, outcome, false)
	e.resume([]*item{it})
}

// park settles the item as parked. Its key is blocked until the settlement is written. Otherwise, if the settlement were lost,
// this message would be sent after later ones. With HoldKey the key stays blocked until an operator decides what happens to the
// message. A dead letter may be written with the parked message (deadletter.go).
func (e *engine) park(it *item, outcome sinks.Outcome) {
	holds, what := it.key != nil && it.queue.options.OnPark == HoldKey, "relay: parked a message, which waits for an operator"
	if holds {
		what = "relay: parked a message, which waits for an operator; the later messages of its key wait, too"
	}
	e.claiming.block(it)
	parked := result{state: storage.StateError, charged: 1, holds: holds, problem: describe(outcome)}
	what += it.queue.addDeadLetter(&it.row, string(outcome.Reason), &parked, e.clock.now())
	e.options.Observer.Parked(it.queue.name, outcome.Reason)
	e.logParked(what, it, &outcome)
	e.settle.add(it, parked)
}

// putOff settles the item as a retry with a delay, and blocks its key.
func (e *engine) putOff(it *item, outcome sinks.Outcome, v verdict) {
	e.claiming.block(it)
	e.settle.add(it, result{state: storage.StateRetry, charged: v.charged, problem: describe(outcome), delay: v.delay})
}

// suspend keeps an item in memory, but out of the queue, until it is tried again. Its key waits. If other messages need the room,
// the item is settled as a retry instead. So the messages of one destination don't fill the buffer of a sink that has several
// destinations. If the lane is being given up or the relay stops, suspend does nothing and returns true, and the caller passes the
// item to requeue().
func (e *engine) suspend(it *item, outcome *sinks.Outcome, v verdict) (returns bool) {
	q := it.queue
	if !e.mayStay(it) {
		return true
	}
	if !q.hasReadRoom() && (outcome.Destination != "" || q.waiting.empty()) {
		q.breaker.remember(it)
		e.putOff(it, *outcome, v)
		return false
	}
	it.stage = inQueue
	if it.key != nil {
		it.key.add(it)
		it.key.suspended = it
	}
	q.suspended = append(q.suspended, it)
	return false
}

// requeue queues items that are to be sent again: probes at the end of the queue, and other items at its front.
func (e *engine) requeue(q *sinkQueue, items []*item, probed bool) {
	var back []queued
	for _, it := range items {
		it.stage = inQueue
		switch {
		case !e.mayStay(it) || it.key != nil && it.key.blocked && it.key.blockedBy != it.row.ID:
			e.claiming.giveUp(it)
		case probed:
			q.putLast(it)
		case it.key == nil:
			back = append(back, queued{item: it})
		default:
			it.key.add(it)
			if !it.key.queued && it.key.suspended == nil {
				it.key.queued = true
				back = append(back, queued{key: it.key})
			}
		}
	}
	q.waiting.putFirst(back...)
}

// mayStay reports whether the item may stay in memory: the relay isn't stopping, and the item's lane is neither lost nor being
// given up.
func (e *engine) mayStay(it *item) bool {
	return !e.stopping.begun && (it.lane == nil || !it.lane.lost && !it.lane.draining)
}

// written removes items from memory after their outcomes were written, and unblocks the keys that waited for these outcomes.
// It also forgets keys that are no longer needed. The method finish must not forget keys, because batch.done calls finish before
// unsent items return to their keys.
func (e *engine) written(items []*item, counts storage.Settled) {
	states := map[storage.State]int{}
	for _, it := range items {
		together := it.together()
		e.finish(it, states)
		for _, it := range together {
			if it.key != nil {
				it.lane.forget(it.key)
			}
		}
	}
	e.work.retried, e.work.parked = e.work.retried+states[storage.StateRetry], e.work.parked+states[storage.StateError]
	e.options.Observer.Settled(counts, states)
	if counts.Fenced > 0 {
		e.options.Logger.Warn("relay: settlements rejected: lease lost (fenced)", "relay", e.options.Name, "rows", counts.Fenced)
		e.lease.next = time.Now() // the renewal shows which lanes are lost
	}
}

// finish removes an item whose outcome is written, and the items that were written with it. It counts the states of these
// items in the map `states`, and unblocks the keys that waited for the outcomes.
func (e *engine) finish(it *item, states map[storage.State]int) {
	if letter := it.toWrite.refusedLetter; letter != nil {
		e.options.Logger.Error("relay: the database refuses a dead letter: the original message is parked without it", "relay", e.options.Name,
			"row", it.row.ID, "id", it.row.Message.ID, "topic", letter.Topic)
	}
	if it.toWrite.deadLetter != nil { // the dead letter is pending now, and must be read before a drain ends
		e.poll.fresh, e.poll.empty = true, 0
	}
	for _, with := range it.together() {
		if with.row.Holds == storage.NoHold { // skipped and discarded rows were counted when they were parked
			states[with.toWrite.state]++
		}
		with.endBatchRef()
		if q := with.queue; q != nil {
			if with.stage == inSettle { // the outcome was not written by a handler's transaction
				q.settling--
			}
			q.release(with)
		}
		with.stage = written
		e.claiming.settled(with)
	}
	if it.joint != nil {
		e.settle.write(e.settle.joiner.written(it, time.Now())...)
	}
}

// done reports to the breaker whether the sink was opened.
func (j *opening) done(e *engine, f *flight) {
	e.report(f.queue, f.queue.breaker.opened(j.err, time.Now()))
}

// remindAfter is how often the log repeats that a sink is unavailable, if the detail doesn't change.
const remindAfter = 10 * time.Minute

// localPort matches the local port in the text of a network error, "read tcp 127.0.0.1:51026->10.0.0.1:9092: …".
var localPort = regexp.MustCompile(`:\d+->`)

// isSameTrouble reports whether two details differ only in a connection's local port.
func isSameTrouble(a, b string) bool {
	return a == b || localPort.ReplaceAllString(a, "->") == localPort.ReplaceAllString(b, "->")
}

// report passes a change of a sink's state to the observer and the log.
func (e *engine) report(q *sinkQueue, n news) {
	switch why := n.down; {
	case n.tripped != "":
		q.paused = true
		e.options.Logger.Error("relay: the breaker has tripped: the sink refuses most messages and is paused until you resume it", "relay", e.options.Name,
			"sink", q.name, "detail", loggable(&q.breaker.last))
		e.controller.trips <- storage.Control{Kind: storage.PauseSink, Name: q.name, By: shorten("breaker of "+e.options.Name, 255), Reason: shorten(n.tripped, 255)}
	case why != nil && !q.isDown:
		q.isDown, q.downDetail, q.downSince, q.downLogged = true, shorten(why.Detail, 1000), time.Now(), time.Now()
		e.options.Observer.SinkDown(q.name, why.Reason, q.downDetail)
		e.options.Logger.Warn("relay: the sink is unavailable; its messages wait", "relay", e.options.Name,
			"sink", q.name, "reason", string(why.Reason), "detail", q.downDetail)
	case why != nil: // the detail may have changed; for example, while the Kafka sink searches a partition for a batch, the detail shows the progress
		detail, now := shorten(why.Detail, 1000), time.Now()
		if isSameTrouble(detail, q.downDetail) && now.Sub(q.downLogged) < remindAfter {
			break
		}
		if allowed, _ := e.logLimiter.allow("still down " + q.name); allowed {
			q.downDetail, q.downLogged = detail, now
			e.options.Logger.Warn("relay: the sink is still unavailable", "relay", e.options.Name, "sink", q.name, "reason", string(why.Reason), "detail", detail,
				"unavailable_for", now.Sub(q.downSince).Round(time.Second))
		}
	case n.up && (q.isDown || !q.wasUp):
		if q.isDown {
			e.options.Logger.Info("relay: the sink is available again", "relay", e.options.Name, "sink", q.name)
		}
		q.isDown, q.wasUp = false, true
		e.options.Observer.SinkUp(q.name)
	}
}

// expire settles an expired item as parked or discarded. It does nothing and returns false if the transaction of the message's handler
// may have been committed, or if the message has a reference to a batch. The item's key waits until the settlement is written.
func (e *engine) expire(q *sinkQueue, it *item) bool {
	if it.maybeCommitted || it.batchRef() != nil {
		return false
	}
	_, by := e.routes.expiryOf(&it.row)
	it.expired = true
	e.work.expired++
	if it.key != nil {
		it.key.inFlight++
	}
	var gone result
	gone.state, gone.problem = by.expire(&it.row)
	note := ""
	if gone.state == storage.StateError {
		note = q.addDeadLetter(&it.row, "expired", &gone, e.clock.now())
	}
	by.reportExpired(e.options.Observer, e.options.Logger, &e.logLimiter, e.options.Name, q.name, &it.row, note)
	it.row.Message.Payload, it.row.Message.Headers = nil, nil // frees memory: an expired message isn't sent
	e.settle.add(it, gone)
	return true
}
