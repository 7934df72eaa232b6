package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// breaker is the circuit breaker of one sink. It decides what an answer means, whether the message or the destination is the cause
// of a failure, and whether messages are sent to the sink. It has no clock, channel, goroutine or store. The loop calls it and
// acts on what it returns. In the diagram, K is BreakerThreshold, or more if keys usually fail between two deliveries (isEvident).
//
//	 Open     ┌────────┐   a failure   ┌─────────┐   K new keys fail   ┌──────┐  reopenAt, Open ok  ┌─────────┐
//	────────▶ │ CLOSED │ ────────────▶ │ SUSPECT │ ──────────────────▶ │ OPEN │ ──────────────────▶ │ PROBING │
//	succeeds  └────────┘ ◀──────────── └─────────┘                     └──────┘ ◀────────────────── └─────────┘
//	           │      ▲   a delivery                                     ▲    failure; longer back-off         │
//	           │      └───────────────── a delivery ─────────────────────────────────────────────────────────┘
//	           └── Unavailable, or a whole batch unsent (also from SUSPECT) ──┘
//	PROBING ── a failure, if fewer than K keys have failed since the last delivery ──▶ SUSPECT
//	PROBING, SUSPECT ── every failed message was judged as the cause of its own failures ──▶ CLOSED
//	any ── ParkRateLimit messages parked within a minute, and more refused than delivered ──▶ TRIPPED ── an operator resumes ──▶ CLOSED
//
// What must hold: a failure is charged as an attempt of the message only if one of these conditions is true.
//
//   - The message has already failed since it was read. After that failure, another send began and delivered a message to the same
//     destination, and only then did the current send begin.
//   - The message has been failing for JudgeAloneAfter. In this time no message was delivered to its destination, and fewer than K
//     keys failed there.
//   - The sink has found the message invalid (isFinal).
//   - BreakerThreshold is negative.
//
// So while at least K keys fail at a destination, a failure is charged only if the sink has found the message invalid.
type breaker struct {
	options      *SinkOptions
	state        breakerState
	openings     int // how many times the breaker has opened since it was last closed; determines the back-off
	reopenAt     time.Time
	suspectSince time.Time
	last         sinks.Outcome // the last failure that the sink itself may have caused

	turn         int64                   // the number of the last job that began
	period       int                     // how many times the breaker has opened; a failure repeats an earlier one only if both have the same period
	destinations map[string]*destination // by name; "" is the sink itself
	minute       minute
	putOff       map[rowRef]*suspension // the failures of messages that left memory to make room and will return as retries
	probed       map[string]struct{}    // topics of the messages for which the sink has returned Unavailable since the breaker was last closed
}

type breakerState int

const (
	breakerOpen    breakerState = iota // sends nothing; the sink's Open is called at reopenAt
	breakerProbing                     // Open has succeeded after a failure: sends one message at a time
	breakerClosed                      // sends batches
	breakerSuspect                     // sends batches, but a message has failed and none was delivered since
	breakerTripped                     // too many messages were parked: sends nothing until an operator resumes the sink
)

// destination records the recent deliveries and failures at one of a sink's destinations.
type destination struct {
	delivered int64               // the highest job number among the jobs that delivered a message to this destination
	failing   time.Time           // when the first failure after that delivery arrived; zero if no failure has arrived (failures in the delivery's own batch don't count)
	fresh     map[string]struct{} // keys (or ids of messages without a key) whose first failure arrived after that delivery
	usual     float64             // the mean value of len(fresh) at recent deliveries
}

// minute counts the outcomes of a sink's messages within parkWindow.
type minute struct {
	since                      time.Time
	refused, delivered, parked int // refused counts the messages that failed for the first time
}

const (
	parkWindow = time.Minute

	// suspectFor is how long a sink is suspect before it is reported as down.
	suspectFor = 5 * time.Second

	// roundsWithAll is the number of further rejections after which a message is parked, if other messages also failed when the
	// message was first rejected. Before each of these rejections, another message must have been delivered. So a single delivery
	// during an outage doesn't cause other messages to be parked.
	roundsWithAll = 3

	// A destination that rejects three of four messages, each for its own reason, often has five consecutive failures although it
	// works. So the breaker considers how many keys usually fail between two deliveries (at most mostUsual). If this number is u,
	// the breaker opens when (1 + patiencePer × u) × BreakerThreshold keys have failed.
	patiencePer = 4
	mostUsual   = 10
	usualOver   = 32 // the mean is a moving average in which each delivery has the weight 1/usualOver

	mostDestinations = 10_000

	// mostPutOff is the maximum number of entries of breaker.putOff. If a message has no entry, its failures are counted from zero
	// again.
	mostPutOff = 10_000
)

// sent is a batch with its outcomes.
type sent struct {
	turn     int64
	items    []*item
	outcomes []sinks.Outcome
	cut      bool // the send's context had ended, so unsent messages don't count against the sink
	excused  bool // if the whole batch is unsent, this doesn't count as a failure of the sink
	paused   bool // the sink is paused; see mayPark
	relays   int  // how many relays send to the sink
}

// verdict is the decision about a message.
type verdict struct {
	action  action
	charged int
	delay   time.Duration // until the next attempt
}

type action int

const (
	done    action = iota
	retry          // settle as a retry with the delay; the key waits
	park           // settle as parked
	suspend        // keep the message in memory, uncharged, while its key waits; or settle it as a retry if there is no room
	back           // send again, uncharged
)

// news is a change of the sink's state, which the loop reports.
type news struct {
	up      bool
	down    *sinks.Outcome // why the sink is down; nil for other changes
	tripped string         // why the sink must be paused for all relays; empty if it need not be
}

// sending reports whether messages may be sent to the sink.
func (b *breaker) sending() bool { return b.state != breakerOpen && b.state != breakerTripped }

func newBreaker(options *SinkOptions) breaker {
	return breaker{options: options, destinations: map[string]*destination{"": {fresh: map[string]struct{}{}}}, putOff: map[rowRef]*suspension{}, probed: map[string]struct{}{}}
}

// begin returns the number of the next job, which starts now. For each of the job's messages that failed before, begin records
// whether another message was delivered since that failure. A delivery during the job's own send doesn't count, because the message
// may have failed again in an outage that ended before that delivery.
func (b *breaker) begin(items []*item) (turn int64) {
	b.turn++
	for _, it := range items {
		if len(b.putOff) > 0 && it.suspension == nil {
			ref := it.ref()
			it.suspension = b.putOff[ref]
			delete(b.putOff, ref)
		}
		if s := it.suspension; s != nil {
			s.repeats = b.hasDelivered(s)
		}
	}
	return b.turn
}

// remember keeps the failures of a message that leaves memory and will return as a retry. Otherwise each failure of the message
// would count as its first, and bad messages that don't all fit into the buffer would never be parked.
func (b *breaker) remember(it *item) {
	for ref := range b.putOff {
		if len(b.putOff) < mostPutOff {
			break
		}
		delete(b.putOff, ref)
	}
	b.putOff[it.ref()] = it.suspension
}

// hasDelivered reports whether a send that began after the message's last failure has delivered a message to the same destination.
func (b *breaker) hasDelivered(s *suspension) bool {
	d := b.destinations[s.destination]
	return d != nil && d.delivered > s.turn
}

// opened processes the result of Open.
func (b *breaker) opened(err error, now time.Time) news {
	b.state = breakerProbing
	if err != nil {
		return b.open(sinks.Unopened(err), now)
	}
	if b.openings > 0 {
		return news{}
	}
	return b.close()
}

// resumed restarts the counting of parked messages when an operator has resumed the sink.
func (b *breaker) resumed(now time.Time) { b.minute = minute{since: now} }

// open stops sending until the sink's Open has succeeded.
func (b *breaker) open(why sinks.Outcome, now time.Time) news {
	if b.state != breakerOpen {
		b.openings++
		b.period++
	}
	b.state, b.last = breakerOpen, why
	b.reopenAt = laterOf(b.reopenAt, now.Add(max(b.options.BreakerBackoff.draw(b.openings), why.RetryAfter)))
	return news{down: &b.last}
}

// close closes the breaker, so that batches are sent.
func (b *breaker) close() news {
	b.state, b.openings = breakerClosed, 0
	clear(b.probed)
	return news{up: true}
}

// overdue reports the sink as down if it has been suspect for suspectFor.
func (b *breaker) overdue(now time.Time) news {
	if b.state != breakerSuspect || now.Before(b.suspectSince.Add(suspectFor)) {
		return news{}
	}
	why := b.last
	why.Detail = fmt.Sprintf("messages have failed and none was delivered since; the last answer: %s", b.lastAnswer())
	return news{down: &why}
}

// lastAnswer returns one line about the last failure.
func (b *breaker) lastAnswer() string {
	line, _, _ := strings.Cut(string(b.last.Reason)+": "+loggable(&b.last), "\n")
	return line
}

// judge returns a verdict on each message of a batch, or nil if all messages were delivered. It first counts all outcomes,
// because the judgement of each message depends on the outcomes of the others.
func (b *breaker) judge(s sent, now time.Time) (verdicts []verdict, told news) {
	if now.Sub(b.minute.since) >= parkWindow {
		b.minute = minute{since: now}
	}
	c := b.count(&s, now)
	b.minute.delivered += c.delivered
	if all := c.delivered == len(s.items); all {
		return nil, b.move(&c, now)
	}
	verdicts = make([]verdict, len(s.items))
	var unfinished []*key
	for i, it := range s.items {
		outcome, k := &s.outcomes[i], it.key
		if outcome.Result == sinks.Delivered {
			verdicts[i] = verdict{action: done}
			continue
		}
		v := b.decide(it, outcome, &s, k != nil && (slices.Contains(unfinished, k) || it.isBehind()), now)
		if v.action == park && !b.mayPark(outcome, &s, &told) {
			v = verdict{action: back}
		}
		if k != nil {
			unfinished = append(unfinished, k)
		}
		c.suspended = c.suspended || v.action == suspend && outcome.Destination == ""
		verdicts[i] = v
	}
	if told.tripped == "" {
		told = b.move(&c, now)
	}
	return verdicts, told
}

// counted is a summary of a batch's outcomes.
type counted struct {
	delivered   int
	answered    bool           // the sink has tried to send some message, or has postponed one
	excused     bool           // if the whole batch is unsent, this doesn't count as a failure of the sink
	suspended   bool           // some message is suspended, and the sink itself may be the cause
	failed      *sinks.Outcome // the last failure that the sink itself may have caused
	unavailable *sinks.Outcome // the Unavailable outcome with the longest RetryAfter
}

// count counts the failures and deliveries at each destination.
func (b *breaker) count(s *sent, now time.Time) counted {
	c := counted{excused: s.cut || s.excused}
	var works []*destination
	for i := range s.outcomes {
		outcome := &s.outcomes[i]
		c.answered = c.answered || outcome.Result != sinks.Unsent && outcome.Result != sinks.Unavailable || postponed(*outcome)
		switch {
		case outcome.Result == sinks.Delivered:
			c.delivered++
			if d := b.destinations[outcome.Destination]; d != nil && !slices.Contains(works, d) {
				works = append(works, d)
			}
		case outcome.Result == sinks.Unavailable:
			if c.unavailable == nil || outcome.RetryAfter > c.unavailable.RetryAfter {
				c.unavailable = outcome
			}
			if s.items != nil {
				b.probed[s.items[i].row.Message.Topic] = struct{}{}
			}
		case s.items != nil && s.items[i].countsAgainst(outcome):
			b.fail(s.items[i], outcome, now)
			if outcome.Destination == "" {
				c.failed = outcome
			}
		}
	}
	for _, d := range works {
		d.delivered = max(d.delivered, s.turn)
		if b.state == breakerOpen && d == b.destinations[""] {
			continue // the send began before the breaker opened
		}
		if !b.isEvident(d) {
			d.usual += (min(float64(len(d.fresh)), mostUsual) - d.usual) / usualOver
		}
		clear(d.fresh)
		d.failing = time.Time{}
	}
	return c
}

// fail counts a failure at a destination. It adds the message's key to d.fresh only if the message was never charged and has not
// failed before, because the message itself may be the cause of repeated failures.
func (b *breaker) fail(it *item, outcome *sinks.Outcome, now time.Time) {
	d := b.destinations[outcome.Destination]
	if d == nil {
		if len(b.destinations) >= mostDestinations { // forget all named destinations; their messages are charged later, because deliveries to these destinations are forgotten, too
			maps.DeleteFunc(b.destinations, func(name string, _ *destination) bool { return name != "" })
		}
		d = &destination{fresh: map[string]struct{}{}}
		b.destinations[outcome.Destination] = d
	}
	if d.failing.IsZero() {
		d.failing = now
	}
	if it.row.Attempts > 0 || it.suspension != nil {
		return
	}
	b.minute.refused++
	if !b.isEvident(d) {
		d.fresh[cmp.Or(it.row.Message.Key, it.row.Message.ID)] = struct{}{}
	}
}

// isEvident reports whether the destination must be the cause of the failures, because enough keys have failed since its last
// delivery.
func (b *breaker) isEvident(d *destination) bool {
	threshold := b.options.BreakerThreshold
	return threshold > 0 && len(d.fresh) >= int((1+patiencePer*d.usual)*float64(threshold))
}

// move changes the breaker's state after a batch. The sink becomes suspect only if a message is suspended.
func (b *breaker) move(c *counted, now time.Time) news {
	if c.failed != nil {
		b.last = *c.failed
	}
	own := b.destinations[""]
	switch evident := b.isEvident(own); {
	case b.state == breakerTripped:
	case c.unavailable != nil:
		return b.open(*c.unavailable, now)
	case b.state == breakerOpen: // the send began before the breaker opened
	case c.delivered > 0 && !evident:
		return b.close()
	case c.failed != nil && evident:
		why := b.last
		why.Detail = fmt.Sprintf("the destination fails: messages of at least %d keys have failed and none was delivered; the last answer: %s",
			min(b.options.BreakerThreshold, len(own.fresh)), b.lastAnswer())
		return b.open(why, now)
	case !c.answered && !c.excused:
		return b.open(sinks.Fail(sinks.Unavailable, sinks.ReasonCancelled, "the sink sent none of the messages of a batch"), now)
	case c.suspended && b.state != breakerSuspect:
		b.state, b.suspectSince = breakerSuspect, now
	case c.answered && !c.suspended && !evident && b.state == breakerProbing: // each failure was judged to be caused by its message
		return b.close()
	}
	return news{}
}

// decide returns the verdict on a message that wasn't delivered.
func (b *breaker) decide(it *item, outcome *sinks.Outcome, s *sent, behind bool, now time.Time) verdict {
	switch {
	case it.commitUnknown(outcome): // the next attempt shows whether the handler's transaction was committed
		it.maybeCommitted = true
		return verdict{action: back}
	case behind:
		if it.countsAgainst(outcome) {
			b.charges(it, outcome, now) // records the failure, so that a later batch contains the message only as the first one of its key (key.take)
		}
		return verdict{action: back}
	case s.cut && isUnanswered(outcome):
		return verdict{action: retry}
	case postponed(*outcome):
		return verdict{action: retry, delay: outcome.RetryAfter}
	case outcome.Result == sinks.Unavailable, outcome.Result == sinks.Unsent:
		return verdict{action: back}
	case outcome.Result == sinks.Reject && isFinal(outcome):
		return verdict{action: park, charged: 1}
	}
	switch judged, wait := b.charges(it, outcome, now); {
	case !judged:
		return verdict{action: suspend, delay: wait}
	case outcome.Result == sinks.Reject:
		return verdict{action: park, charged: 1}
	}
	attempts := it.row.Attempts + 1
	if limit := b.options.MaxAttempts; limit > 0 && attempts >= limit {
		outcome.Result, outcome.Detail = sinks.Reject, strings.TrimSuffix(string(outcome.Reason)+": "+outcome.Detail, ": ")
		outcome.Reason = sinks.ReasonExhausted
		return verdict{action: park, charged: 1}
	}
	return verdict{action: retry, charged: 1, delay: max(b.options.Backoff.draw(attempts), outcome.RetryAfter)}
}

// charges reports whether the message counts as the cause of its failure: the failure is repeated, or the message has been
// failing for JudgeAloneAfter without a delivery to its destination. Otherwise it records the failure, and returns how long the
// message waits for its next attempt if no other message is delivered.
func (b *breaker) charges(it *item, outcome *sinks.Outcome, now time.Time) (judged bool, wait time.Duration) {
	s, d := it.suspension, b.destinations[outcome.Destination]
	if s == nil {
		s = &suspension{destination: outcome.Destination, turn: b.turn, period: b.period, rounds: 1}
		if it.row.Attempts == 0 {
			s.since = now
		}
		it.suspension = s
	}
	evident := b.isEvident(d)
	alone := b.options.judgeAloneAfter(outcome) - d.failsAlone(s, now)
	switch {
	case b.options.BreakerThreshold < 0, !evident && alone <= 0:
		return true, 0
	case s.destination != outcome.Destination || s.period != b.period || evident || b.state == breakerOpen || b.state == breakerProbing:
		s.rounds = roundsWithAll // other messages have failed, too
	case s.repeats:
		if outcome.Result == sinks.Retry {
			return true, 0
		}
		if s.rejected { // a rejection counts as repeated only if the earlier failure was a rejection, too
			s.rounds--
		}
		if s.rounds <= 0 {
			return true, 0
		}
		s.tries = 0
	}
	s.rejected = outcome.Result == sinks.Reject
	s.destination, s.turn, s.period = outcome.Destination, b.turn, b.period
	s.tries++
	s.soonest = now.Add(outcome.RetryAfter)
	if outcome.Result == sinks.Retry {
		s.soonest = laterOf(s.soonest, now.Add(b.options.BreakerBackoff.draw(1)))
	}
	if wait = b.options.BreakerBackoff.draw(s.tries); alone > 0 {
		wait = min(wait, alone)
	}
	wait = max(wait, outcome.RetryAfter)
	s.retryAt = now.Add(wait)
	return false, wait
}

// failsAlone returns how long the message has been failing while no message was delivered to the destination.
func (d *destination) failsAlone(s *suspension, now time.Time) time.Duration {
	return now.Sub(laterOf(s.since, cmp.Or(d.failing, now)))
}

// retryAt returns when a suspended message is sent again.
func (b *breaker) retryAt(s *suspension) time.Time {
	if b.hasDelivered(s) {
		return s.soonest
	}
	return s.retryAt
}

// resolved processes the outcomes of batches that were sent again to a deduplicating sink. Only Unavailable counts against the
// sink.
func (b *breaker) resolved(turn int64, outcomes []sinks.Outcome, excused bool, now time.Time) news {
	c := b.count(&sent{turn: turn, outcomes: outcomes, excused: excused}, now)
	return b.move(&c, now)
}

// mayPark counts a message that is about to be parked. If ParkRateLimit is reached and the sink refuses more messages than it
// accepts, mayPark trips the breaker and returns false. The cause may be, for example, an expired credential that only some
// messages need. A relay counts only its own messages. If two or more relays send to the sink, each of them applies half of the
// limit. A smaller share would be too low: the bad messages of a single key, which all go to one relay, would pause the sink.
func (b *breaker) mayPark(outcome *sinks.Outcome, s *sent, told *news) bool {
	limit, m := b.options.ParkRateLimit, &b.minute
	if limit < 0 || outcome.Reason == sinks.ReasonInvalid || outcome.Reason == sinks.ReasonCrash {
		return true // the sink is not the cause
	}
	if s.paused || b.state == breakerTripped {
		return false // the message is sent again after the pause
	}
	if s.relays > 1 {
		limit = (limit + 1) / 2
	}
	if m.parked < limit || max(m.refused, m.parked) <= m.delivered {
		m.parked++
		return true
	}
	b.state, b.last = breakerTripped, *outcome
	told.tripped = fmt.Sprintf("within a minute %d messages were parked, %d refused, and %d delivered; the last answer: %s", m.parked, m.refused, m.delivered, describe(*outcome))
	return false
}

// countsAgainst reports whether an outcome is a failure that the destination may have caused. If the sink found the message
// invalid, the destination is not the cause.
func (it *item) countsAgainst(outcome *sinks.Outcome) bool {
	failed := outcome.Result == sinks.Retry || outcome.Result == sinks.Reject && !isFinal(outcome)
	return failed && !it.commitUnknown(outcome)
}

// isBehind reports whether another message of the item's key must be sent first.
func (it *item) isBehind() bool {
	k := it.key
	if k.blocked {
		return k.blockedBy != it.row.ID
	}
	return k.suspended != nil || len(k.items) > 0 && k.items[0].row.ID < it.row.ID
}
