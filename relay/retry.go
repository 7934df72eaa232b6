package relay

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks"
)

// judge turns what a sink answered into states.
func (e *engine) judge(result sendResult) {
	o := result.outlet
	o.busy--
	if result.job.open {
		e.afterOpen(o, result.openErr)
		return
	}
	outcomes := complete(result.outcomes, len(result.job.batch))
	e.observeSent(o, result.took, outcomes)
	var back []*item
	for i, it := range result.job.batch {
		if it.key != nil {
			it.key.flying--
		}
		switch {
		case result.settled != nil && result.settled[i]:
			e.delivered(it, outcomes[i], true)
		case e.apply(it, outcomes[i]):
			back = append(back, it)
		}
	}
	e.takeBack(o, back)
	e.judgeCircuit(o, outcomes)
	for _, it := range result.job.batch {
		e.nextOfKey(it.lane, it.key)
	}
}

// complete makes one outcome a message of what the sink returned.
func complete(outcomes []sinks.Outcome, n int) []sinks.Outcome {
	if len(outcomes) > n {
		return outcomes[:n]
	}
	for len(outcomes) < n {
		outcomes = append(outcomes, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the sink gave no answer for this message"))
	}
	return outcomes
}

// apply does what an outcome asks for, and says whether the item goes back to
// its queue.
func (e *engine) apply(it *item, outcome sinks.Outcome) (back bool) {
	switch outcome.Result {
	case sinks.Delivered:
		e.delivered(it, outcome, false)
	case sinks.Reject:
		e.reject(it, outcome)
	case sinks.Unavailable, sinks.Unsent:
		return true
	default:
		e.retry(it, outcome)
	}
	return false
}

// delivered marks the item done and lets its key go on at once: should the
// mark be lost, its successor begins with this message, and all keeps its order.
func (e *engine) delivered(it *item, outcome sinks.Outcome, settled bool) {
	e.options.Observer.Delivered(it.outlet.name, it.row.Message.Topic, max(0, time.Since(it.row.CreatedAt)))
	if it.key != nil && it.key.held && it.key.holder == it.row.ID {
		e.letGo(it.lane, it.key)
	}
	done := it.settlement(StateDone)
	done.Attempts++
	done.Receipt = shorten(outcome.Receipt, 255)
	e.conclude(it, done, settled)
}

// reject parks the item. Its key waits until that is written: a park that is
// lost would send this message after the next one.
func (e *engine) reject(it *item, outcome sinks.Outcome) {
	if it.key != nil {
		if it.stage == inQueue {
			it.key.queued--
		}
		e.hold(it.key, it.row.ID)
	}
	parked := it.settlement(StateError)
	parked.Attempts++
	parked.Error = describe(outcome)
	e.conclude(it, parked, false)
}

// retry puts the item away until its next attempt, and holds its key; after
// the last attempt it is parked.
func (e *engine) retry(it *item, outcome sinks.Outcome) {
	attempts := it.row.Attempts + 1
	limit := it.outlet.options.MaxAttempts
	if limit > 0 && attempts >= limit {
		outcome.Detail = strings.TrimSuffix(string(outcome.Reason)+": "+outcome.Detail, ": ")
		outcome.Reason = sinks.ReasonExhausted
		e.reject(it, outcome)
		return
	}
	if it.key != nil {
		e.hold(it.key, it.row.ID)
	}
	again := it.settlement(StateRetry)
	again.Attempts = attempts
	again.Error = describe(outcome)
	again.Delay = max(it.outlet.options.Backoff.draw(attempts), outcome.RetryAfter)
	e.conclude(it, again, false)
}

// conclude hands the item's new state to the settling.
func (e *engine) conclude(it *item, s Settlement, settled bool) {
	if it.stage != inFlight {
		it.lane.pinned++
	}
	it.stage = inSettle
	if settled {
		e.finish(it)
		return
	}
	e.settle.add(it, s)
}

// takeBack queues items again that were not handed over.
func (e *engine) takeBack(o *outlet, items []*item) {
	if e.options.Claim == ByRows && e.stopping.begun {
		e.giveUp(items)
		return
	}
	kept := items[:0]
	for _, it := range items {
		it.stage = inQueue
		it.lane.pinned--
		if it.key != nil {
			it.key.queued++
		}
		if e.mayStay(it) {
			kept = append(kept, it)
		}
	}
	o.queue.giveBack(kept)
}

// mayStay drops an item whose lane was lost or is being given up.
func (e *engine) mayStay(it *item) bool {
	if e.lanes[it.lane.Lane] == it.lane && !it.lane.draining && !e.stopping.begun {
		return true
	}
	e.abandon(it)
	return false
}

// hold lets nothing of the key be sent but the message with this id.
func (e *engine) hold(k *key, id int64) {
	if !k.held {
		e.outlets[k.ref.outlet].held++
	}
	k.held, k.holder = true, id
}

// letGo ends a hold, and has what was left behind read again.
func (e *engine) letGo(l *lane, k *key) {
	if !k.held {
		return
	}
	k.held, k.holder = false, 0
	e.outlets[k.ref.outlet].held--
	if k.lagging {
		e.read.behind = append(e.read.behind, keyBehind{l, k})
	}
}

// nextOfKey lets go on what waited behind the key's messages that were under
// way, unless some of these came back and go first; behind a held key nothing
// is kept.
func (e *engine) nextOfKey(l *lane, k *key) {
	if k == nil {
		return
	}
	if k.held {
		for _, it := range k.waiting {
			e.leaveBehind(it)
		}
		k.waiting = nil
	} else if k.flying == 0 && k.queued == 0 && len(k.waiting) > 0 {
		e.releaseWaiting(k)
	}
	l.forget(k)
}

// releaseWaiting queues what may be sent next: all that waits where the sink
// keeps the order of a batch, else one message.
func (e *engine) releaseWaiting(k *key) {
	n := len(k.waiting)
	o := e.outlets[k.ref.outlet]
	if !o.ordered() {
		n = 1
	}
	next := k.waiting[:n:n]
	k.waiting = k.waiting[n:]
	k.queued += n
	o.queue.giveBack(next)
}

// describe is what an operator reads on the row.
func describe(outcome sinks.Outcome) string {
	return shorten(strings.TrimSuffix(string(outcome.Reason)+": "+outcome.Detail, ": "), 1000)
}

// shorten cuts a text to at most n bytes of valid UTF-8, without NUL, which
// some databases can't store.
func shorten(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
