package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// trouble is what failed at one destination since it last took a message. Failures of
// many keys in a row are no message's fault: then nothing is charged or parked. If the
// sink names no destinations, its circuit opens, and it is tried with one message after
// the other until one is delivered.
//
// A message alone is judged by its own answers. But the first of an outage looks
// just like it: so a refusal doesn't count before it was repeated by a send that
// began after another message was delivered, or for RejectAfter. Until then the
// message is set aside, and its key waits.
type trouble struct {
	failing    map[failing]struct{}
	fresh      int               // how many of failing had not failed before
	charged    map[int64]charged // attempts, by the row's id, that are given back if it is trouble
	worked     time.Time         // a message was delivered, or the first one failed
	usual      float64           // the recent mean of fresh between two deliveries, while there was no trouble
	recognised bool              // it is the destination's trouble
	tries      int               // in vain, since it is recognised
}

// failing is a key, or without one a message, that fails.
type failing struct {
	key string
	id  int64
}

// charged is how many attempts a message was charged, and when: up to which turn
// of its queue.
type charged struct {
	attempts int
	turn     int64
}

// refusal is what is known of a message whose refusal doesn't count yet.
type refusal struct {
	destination string
	since       time.Time
	turn        int64 // sends up to this one had begun
	asked       int   // how often it was asked again since others were delivered
	enough      int   // so many rounds, and the next refusal counts
	beside      bool  // says nothing of its destination: others were delivered at about the same time
	counts      bool  // the next refusal does
}

// roundsOfTrouble is for messages that were refused together with all others: after so many rounds in which others
// were delivered, the next refusal counts. So one message that slips through in the midst of an outage doesn't condemn
// the rest.
const roundsOfTrouble = 3

// Keys whose messages had failed before, while others were delivered, say little of an
// outage: it takes knownBad times as many of them, and knownBadFor without a delivery. In a
// quiet hour they are all that there is to send.
const (
	knownBad    = 10
	knownBadFor = 5 * time.Second
)

// A destination that refuses three of four messages, each for a reason of its own, has five in a row
// again and again, and yet it works. So for each key that usually fails between two deliveries it takes
// patiencePer times as many in a row more, or as much longer: that hardly ever comes by chance,
// whatever the share that is refused, up to some nine of ten.
const (
	patiencePer = 4
	mostUsual   = 10
	usualOver   = 32   // deliveries, over which the mean is taken
	noUsual     = 0.05 // below it nothing usually fails
)

// mostTroubles bounds the destinations of a sink of which it is known what fails.
const mostTroubles = 10_000

func (q *sinkQueue) troubleOf(destination string) *trouble {
	t := q.troubles[destination]
	if t == nil {
		for other := range q.troubles { // any one but the sink's own
			if len(q.troubles) < mostTroubles {
				break
			}
			if other != "" {
				delete(q.troubles, other)
			}
		}
		t = &trouble{failing: map[failing]struct{}{}, charged: map[int64]charged{}, worked: time.Now()}
		q.troubles[destination] = t
	}
	return t
}

// inTrouble says that trouble of the sink as a whole is recognised.
func (q *sinkQueue) inTrouble() bool {
	t := q.troubles[""]
	return t != nil && t.recognised
}

// countsAgainst says that an outcome may be the destination's trouble: it is not
// where the sink found the message invalid by itself.
func (it *item) countsAgainst(outcome *sinks.Outcome) bool {
	failed := outcome.Result == sinks.Retry || outcome.Result == sinks.Reject && !isFinal(outcome)
	return failed && !it.commitUnknown(outcome)
}

// isFinal says that no destination has a part in the refusal.
func isFinal(outcome *sinks.Outcome) bool {
	return outcome.Reason == sinks.ReasonInvalid || outcome.Reason == sinks.ReasonExhausted || outcome.Reason == sinks.ReasonCrash
}

func failingOf(it *item) failing {
	if it.row.Message.Key == "" {
		return failing{id: it.row.ID}
	}
	return failing{key: it.row.Message.Key}
}

// watch counts what failed in a row at each destination, before anything is done
// about the outcomes of a batch.
func (q *sinkQueue) watch(turn int64, items []*item, outcomes []sinks.Outcome) {
	var worked map[string]bool // and whether it had been in trouble
	var failed map[string]*sinks.Outcome
	for i, it := range items {
		outcome := &outcomes[i]
		switch {
		case outcome.Result == sinks.Delivered:
			if t := q.troubles[outcome.Destination]; t != nil && (outcome.Destination != "" || q.circuit.state == circuitClosed) {
				if worked == nil {
					worked = map[string]bool{}
				}
				worked[outcome.Destination] = q.works(t, outcome.Destination, turn) || worked[outcome.Destination]
			}
		case it.countsAgainst(outcome) && q.options.TroubleAfter > 0:
			if failed == nil {
				failed = map[string]*sinks.Outcome{}
			}
			failed[outcome.Destination] = outcome
			q.troubleOf(outcome.Destination).fail(it)
		}
	}
	for destination, ended := range worked {
		q.reconsider(destination, turn, ended)
		if t := q.troubles[destination]; len(t.failing)+len(t.charged)+len(q.refused) == 0 && t.usual < noUsual && failed[destination] == nil {
			delete(q.troubles, destination)
		}
	}
	for destination, outcome := range failed {
		q.recognise(q.troubles[destination], *outcome)
	}
}

// fail counts a message that failed, once for each key. It doesn't count a message whose refusal says nothing of its
// destination, as others were delivered at about the same time (beside). A message is fresh if all attempts that it was
// charged belong to this run of failures. Among many messages that fail for good, some fail again between any two
// deliveries: these aren't fresh.
func (t *trouble) fail(it *item) {
	name := failingOf(it)
	if _, counted := t.failing[name]; counted || t.recognised || it.refusal != nil && it.refusal.beside {
		return
	}
	t.failing[name] = struct{}{}
	if it.row.Attempts <= t.charged[it.row.ID].attempts {
		t.fresh++
	}
}

// works notes that a message was delivered by a send of this turn, and says whether
// that ends a trouble.
func (q *sinkQueue) works(t *trouble, destination string, turn int64) (ended bool) {
	if !t.recognised {
		t.usual += (min(float64(t.fresh), mostUsual) - t.usual) / usualOver
	}
	clear(t.failing)
	t.fresh, t.tries, t.worked = 0, 0, time.Now()
	for id, c := range t.charged {
		if c.turn < turn {
			delete(t.charged, id)
		}
	}
	ended, t.recognised = t.recognised, false
	if ended && destination != "" {
		q.base.options.Logger.Info("relay: a destination takes messages again", "relay", q.base.options.Name, "sink", q.name, "destination", destination)
	}
	return ended
}

// evident says that what failed in a row is more than chance.
func (t *trouble) evident(limit int, now time.Time) bool {
	patience := 1 + patiencePer*t.usual
	many := t.fresh >= int(patience*float64(limit))
	long := now.Sub(t.worked) >= time.Duration(patience*float64(knownBadFor)) && (t.fresh >= limit || len(t.failing) >= knownBad*limit)
	return many || long
}

// recognise decides, after each batch with failures, whether they are the destination's trouble by now. If so, attempts
// that were charged meanwhile will be given back, and its messages that were set aside count as refused with all others.
func (q *sinkQueue) recognise(t *trouble, last sinks.Outcome) {
	t.tries++
	if t.recognised || !t.evident(q.options.TroubleAfter, time.Now()) {
		return
	}
	t.recognised, t.tries = true, 1
	for id, c := range t.charged {
		q.refunds[id] = c.attempts
	}
	clear(t.charged)
	for _, it := range q.refused {
		if it.refusal.destination == last.Destination {
			it.refusal.withAll()
		}
	}
	if last.Destination == "" {
		return // judgeCircuit tells
	}
	if allowed, more := q.logLimiter.allow("trouble " + q.name); allowed {
		q.base.options.Logger.Warn("relay: a destination refuses everything, its messages wait and are charged nothing", "relay", q.base.options.Name,
			"sink", q.name, "destination", last.Destination, "reason", string(last.Reason), "detail", loggable(&last), "unsaid", more)
	}
}

// judgeCircuit opens the circuit if a batch shows that the sink is unavailable or in trouble. It closes none:
// opening.done does. Otherwise an answer while the circuit is closed ends the count of failures, and the sink is
// reported as available again. A postponed message counts as an answer: the sink works, though not this message's own
// destination. With ended (the context had ended, or the outcomes say nothing of the sink) a batch of which nothing was
// sent isn't held against the sink.
func (q *sinkQueue) judgeCircuit(outcomes []sinks.Outcome, ended bool) {
	var trouble, failed *sinks.Outcome
	answered := false
	for i, outcome := range outcomes {
		switch {
		case outcome.Result == sinks.Unavailable:
			if trouble == nil || outcome.RetryAfter > trouble.RetryAfter {
				trouble = &outcomes[i]
			}
		case outcome.Result != sinks.Unsent || postponed(outcome):
			answered = true
		}
		if outcome.Destination == "" && (outcome.Result == sinks.Retry || outcome.Result == sinks.Reject && !isFinal(&outcome)) {
			failed = &outcomes[i]
		}
	}
	switch {
	case trouble != nil:
		q.trip(*trouble)
	case q.inTrouble() && failed != nil:
		last := *failed
		last.Detail = fmt.Sprintf("the destination is in trouble: messages of %d keys or more failed in a row and none was delivered; the last answer: %s: %s",
			min(q.options.TroubleAfter, len(q.troubles[""].failing)), failed.Reason, loggable(failed))
		q.trip(last)
	case q.inTrouble() && answered: // postponed, or invalid by itself: the next one tries it
	case answered:
		if q.circuit.state != circuitClosed {
			break // another batch has opened the circuit since: it stays open until Open has succeeded
		}
		q.circuit.failures = 0
		if q.circuit.told {
			q.circuit.told = false
			q.base.options.Observer.SinkUp(q.name)
			q.base.options.Logger.Info("relay: the sink is available again", "relay", q.base.options.Name, "sink", q.name)
		}
	case !ended:
		q.trip(sinks.Fail(sinks.Unavailable, sinks.ReasonCancelled, "the sink sent nothing of a whole batch"))
	}
}

// refusedNow notes a refusal that doesn't count.
func (it *item) refusedNow(destination string) *refusal {
	if it.refusal == nil {
		it.refusal = &refusal{since: time.Now(), enough: 1}
	}
	it.refusal.destination, it.refusal.turn = destination, it.queue.turn
	return it.refusal
}

// withAll notes that it was refused as all others were.
func (r *refusal) withAll() {
	r.since, r.enough = time.Now(), roundsOfTrouble
	r.counts, r.beside = r.asked >= r.enough, r.asked >= r.enough
}

// reconsider has messages that were set aside tried again: those of this destination that were refused before the send
// with this turn began, which has delivered others. If that has ended trouble of the whole sink (all, destination ""),
// every message is.
func (q *sinkQueue) reconsider(destination string, turn int64, all bool) {
	var ready, rest []*item
	for _, it := range q.refused {
		r := it.refusal
		since := r.destination == destination && r.turn < turn
		if since {
			r.asked++
			r.counts = r.asked >= r.enough
		}
		r.beside = r.beside || r.counts || r.destination == destination && r.enough == 1
		if since || all && destination == "" {
			ready = append(ready, it)
		} else {
			rest = append(rest, it)
		}
	}
	q.refused, q.asks = append(ready, rest...), 0
	q.askAgain(len(ready))
}

// askAgain puts the first n of what was set aside before all else in the queue.
func (q *sinkQueue) askAgain(n int) {
	var again []queued
	for _, it := range q.refused[:n] {
		k := it.key
		switch {
		case k == nil && it.stage == inQueue:
			again = append(again, queued{item: it})
		case k != nil && k.aside == it:
			k.aside = nil
			if !k.queued && k.inFlight == 0 && len(k.items) > 0 {
				k.queued = true
				again = append(again, queued{key: k})
			}
		}
	}
	q.refused = slices.Delete(q.refused, 0, n)
	q.waiting.putFirst(again...)
}

// askRefused has messages asked again whose time has come. While all fails, that
// is one, once everything else was tried.
func (q *sinkQueue) askRefused(now time.Time) {
	switch {
	case q.inTrouble():
		if len(q.flights) == 0 && q.waiting.empty() {
			q.askAgain(1)
		}
	case !now.Before(q.askAt):
		q.askAgain(len(q.refused))
	}
}
