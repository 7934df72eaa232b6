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

// The breaker of a sink decides what an answer means: whether a failure is the message's or the destination's, and whether
// the sink is sent anything. It has no clock, channel, goroutine or store: the loop calls it, and acts on what it returns.
//
//	 Open     ┌────────┐   a failure   ┌─────────┐   K new keys fail   ┌──────┐  reopenAt, Open ok  ┌─────────┐
//	────────▶ │ CLOSED │ ────────────▶ │ SUSPECT │ ──────────────────▶ │ OPEN │ ──────────────────▶ │ PROBING │
//	succeeds  └────────┘ ◀──────────── └─────────┘                     └──────┘ ◀────────────────── └─────────┘
//	           │      ▲   a delivery                                     ▲    failure; longer back-off         │
//	           │      └───────────────── a delivery ─────────────────────────────────────────────────────────┘
//	           └── Unavailable, or a whole batch unsent (also from SUSPECT) ──┘
//	PROBING ── a failure, if the sink was unavailable before and too few keys have failed to open it again ──▶ SUSPECT
//	any ── ParkRateLimit messages parked within a minute, and more refused than delivered ──▶ TRIPPED ── an operator resumes ──▶ CLOSED
//
// What must hold: a failure is charged only if it repeats an earlier one, and a send that began after that one had delivered
// something else to the same destination before this one's send began; or if the message has failed alone for JudgeAloneAfter.
// So an outage charges nothing, whatever is answered.
type breaker struct {
	options      *SinkOptions
	state        breakerState
	openings     int // in a row, without a delivery between: for the back-off
	reopenAt     time.Time
	suspectSince time.Time
	last         sinks.Outcome // the last failure that was the reason for a state

	turn         int64                   // of the last send that began
	period       int                     // how often the breaker has opened; failures before that don't count as repeated
	destinations map[string]*destination // "", which is the sink's own, and others that something has failed at
	minute       minute
	putOff       map[rowRef]*suspension // of messages that left memory to make room, and come back as retries
	probed       map[string]struct{}    // topics of messages that found the sink unavailable since something was delivered
}

type breakerState int

const (
	breakerOpen    breakerState = iota // nothing is sent; Open is called once reopenAt has come
	breakerProbing                     // Open has succeeded after a failure: one message at a time is sent
	breakerClosed                      // batches are sent
	breakerSuspect                     // batches are sent, but something has failed and nothing was delivered since
	breakerTripped                     // too many messages were parked: nothing is sent until an operator resumes the sink
)

// destination is what the breaker remembers of one of a sink's destinations.
type destination struct {
	delivered int64               // the latest turn that delivered something
	failing   time.Time           // when the first failure since then came; zero: none did, but in the same batch
	fresh     map[string]struct{} // keys, or messages without one, that first failed since then
	usual     float64             // the recent mean of len(fresh) between two deliveries
}

// minute counts what became of a sink's messages within parkWindow.
type minute struct {
	since                      time.Time
	refused, delivered, parked int // refused: messages that failed for the first time
}

const (
	parkWindow = time.Minute

	// suspectFor is how long a sink is suspect until it is reported as down.
	suspectFor = 5 * time.Second

	// roundsWithAll is how often a message that was first rejected together with all others must be rejected again, each time
	// after a delivery, before it is parked: one message that slips through an outage condemns no other.
	roundsWithAll = 3

	// A destination that rejects three of four messages, each for a reason of its own, often has five failures in a row. So for
	// each key that usually fails between two deliveries it takes patiencePer times as many more to open the breaker.
	patiencePer = 4
	mostUsual   = 10
	usualOver   = 32 // deliveries, over which the mean is taken

	mostDestinations = 10_000

	// mostPutOff bounds the messages out of memory whose failures are remembered. One that is forgotten starts over.
	mostPutOff = 10_000
)

// sent is a batch with its answers.
type sent struct {
	turn     int64
	items    []*item
	outcomes []sinks.Outcome
	cut      bool // the context had ended: what wasn't sent says nothing of the sink
	excused  bool // neither do the outcomes of a whole batch that wasn't sent
	paused   bool // the sink is paused: nothing may be parked
	relays   int  // that send to the sink
}

// verdict is what becomes of a message.
type verdict struct {
	action  action
	charged int
	delay   time.Duration // until the next attempt
}

type action int

const (
	done    action = iota
	retry          // written, and tried again after the delay; its key waits
	park           // written, and left to an operator
	suspend        // kept in memory, uncharged, with its key; or a retry where it can't be kept
	back           // sent again, uncharged
)

// news is what a batch has told about the sink. The loop reports it.
type news struct {
	up      bool
	down    *sinks.Outcome // why the sink is down
	tripped string         // why the sink is to be paused for all relays
}

// sending says that the sink may be given messages.
func (b *breaker) sending() bool { return b.state != breakerOpen && b.state != breakerTripped }

func newBreaker(options *SinkOptions) breaker {
	return breaker{options: options, destinations: map[string]*destination{"": {fresh: map[string]struct{}{}}}, putOff: map[rowRef]*suspension{}, probed: map[string]struct{}{}}
}

// begin counts a send that begins, and returns its turn. It notes which of its messages failed earlier, with something delivered since
// then. A delivery during the send doesn't count: the message may fail first, and the outage end between the two.
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

// remember keeps what is known of a message that leaves memory, and comes back as a retry. Without that, bad messages that fill the
// buffer would take turns in it, and none would ever have failed before.
func (b *breaker) remember(it *item) {
	for ref := range b.putOff {
		if len(b.putOff) < mostPutOff {
			break
		}
		delete(b.putOff, ref)
	}
	b.putOff[it.ref()] = it.suspension
}

// hasDelivered says that a send that began after the message's last failure has delivered something to the same destination.
func (b *breaker) hasDelivered(s *suspension) bool {
	d := b.destinations[s.destination]
	return d != nil && d.delivered > s.turn
}

// opened takes in how a call of Open went.
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

// resumed forgets what was parked before an operator resumed the sink.
func (b *breaker) resumed(now time.Time) { b.minute = minute{since: now} }

// open has nothing sent until Open has succeeded.
func (b *breaker) open(why sinks.Outcome, now time.Time) news {
	if b.state != breakerOpen {
		b.openings++
		b.period++
	}
	b.state, b.last = breakerOpen, why
	b.reopenAt = laterOf(b.reopenAt, now.Add(max(b.options.BreakerBackoff.draw(b.openings), why.RetryAfter)))
	return news{down: &b.last}
}

func (b *breaker) close() news {
	b.state, b.openings = breakerClosed, 0
	clear(b.probed)
	return news{up: true}
}

// overdue reports the sink as down if it has been suspect for long enough.
func (b *breaker) overdue(now time.Time) news {
	if b.state != breakerSuspect || now.Before(b.suspectSince.Add(suspectFor)) {
		return news{}
	}
	why := b.last
	why.Detail = fmt.Sprintf("no message was delivered since some failed; the last answer: %s", b.lastAnswer())
	return news{down: &why}
}

// lastAnswer is one line about the last failure.
func (b *breaker) lastAnswer() string {
	line, _, _ := strings.Cut(string(b.last.Reason)+": "+loggable(&b.last), "\n")
	return line
}

// judge decides about the messages of a batch. Nil verdicts mean that all were delivered. First everything is counted, as what
// became of the other messages of the batch is evidence, too.
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

// counted is what a batch says of its sink.
type counted struct {
	delivered   int
	answered    bool           // also by a postponement: the sink works, though not the message's own destination
	excused     bool           // that nothing was sent says nothing of the sink
	suspended   bool           // some message waits until it is known whose fault its failure is
	failed      *sinks.Outcome // the last failure that may be the sink's own
	unavailable *sinks.Outcome // the one that asks for the longest pause
}

// count counts what failed, and what was delivered, at each destination.
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

// fail counts a failure. A message is new to its destination if it was never charged, and hasn't failed before: others were
// delivered since. What fails again and again says little.
func (b *breaker) fail(it *item, outcome *sinks.Outcome, now time.Time) {
	d := b.destinations[outcome.Destination]
	if d == nil {
		if len(b.destinations) >= mostDestinations { // what is forgotten is charged later
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

// isEvident says that so many keys failed in a row that it is the destination's trouble, and not chance.
func (b *breaker) isEvident(d *destination) bool {
	threshold := b.options.BreakerThreshold
	return threshold > 0 && len(d.fresh) >= int((1+patiencePer*d.usual)*float64(threshold))
}

// move changes the state after a batch. Only failures that leave messages suspended make the sink suspect.
func (b *breaker) move(c *counted, now time.Time) news {
	if c.failed != nil {
		b.last = *c.failed
	}
	own := b.destinations[""]
	switch evident := b.isEvident(own); {
	case b.state == breakerTripped:
	case c.unavailable != nil:
		return b.open(*c.unavailable, now)
	case b.state == breakerOpen: // an answer to a send that began before
	case c.delivered > 0 && !evident:
		return b.close()
	case c.failed != nil && evident:
		why := b.last
		why.Detail = fmt.Sprintf("the destination is in trouble: messages of %d keys or more failed in a row and none was delivered; the last answer: %s",
			min(b.options.BreakerThreshold, len(own.fresh)), b.lastAnswer())
		return b.open(why, now)
	case !c.answered && !c.excused:
		return b.open(sinks.Fail(sinks.Unavailable, sinks.ReasonCancelled, "the sink sent nothing of a whole batch"), now)
	case c.suspended && b.state != breakerSuspect:
		b.state, b.suspectSince = breakerSuspect, now
	case c.answered && !c.suspended && !evident && b.state == breakerProbing: // what failed was judged by its own answers
		return b.close()
	}
	return news{}
}

// decide says what becomes of one message that wasn't delivered.
func (b *breaker) decide(it *item, outcome *sinks.Outcome, s *sent, behind bool, now time.Time) verdict {
	switch {
	case it.commitUnknown(outcome): // the next attempt finds out
		it.maybeCommitted = true
		return verdict{action: back}
	case behind:
		if it.countsAgainst(outcome) {
			b.charges(it, outcome, now) // that it has failed is known: it is sent apart from others of its key
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

// charges says that a failure counts as the message's own: it has repeated, or the message has failed alone for long enough.
// Otherwise it notes the failure, and returns the wait until the message is tried again even if nothing is delivered.
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
		s.rounds = roundsWithAll // it has failed with all others
	case s.repeats:
		if outcome.Result == sinks.Retry {
			return true, 0
		}
		if s.rejected { // a rejection after failures of another kind is the first one
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

// failsAlone is for how long the message has failed with nothing else delivered.
func (d *destination) failsAlone(s *suspension, now time.Time) time.Duration {
	return now.Sub(laterOf(s.since, cmp.Or(d.failing, now)))
}

// retryAt is when a suspended message is sent again.
func (b *breaker) retryAt(s *suspension) time.Time {
	if b.hasDelivered(s) {
		return s.soonest
	}
	return s.retryAt
}

// resolved takes in what a deduplicating sink has said of batches that were sent again. What it turned down says nothing
// against it.
func (b *breaker) resolved(turn int64, outcomes []sinks.Outcome, excused bool, now time.Time) news {
	c := b.count(&sent{turn: turn, outcomes: outcomes, excused: excused}, now)
	return b.move(&c, now)
}

// mayPark counts a message that is to be parked. It trips the breaker, and returns false, if the sink has parked too many and
// refuses more than it takes: a login may have expired for some of the messages. A relay counts only its own. Of two or more
// relays each allows half: with a smaller part one key's bad messages, which all come to one relay, would pause the sink.
func (b *breaker) mayPark(outcome *sinks.Outcome, s *sent, told *news) bool {
	limit, m := b.options.ParkRateLimit, &b.minute
	if limit < 0 || outcome.Reason == sinks.ReasonInvalid || outcome.Reason == sinks.ReasonCrash {
		return true // the sink has no part in it
	}
	if s.paused || b.state == breakerTripped {
		return false // it is sent once more after the pause
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

// countsAgainst says that an outcome may be the destination's trouble: it isn't where the sink found the message invalid.
func (it *item) countsAgainst(outcome *sinks.Outcome) bool {
	failed := outcome.Result == sinks.Retry || outcome.Result == sinks.Reject && !isFinal(outcome)
	return failed && !it.commitUnknown(outcome)
}

// isBehind says that another message of the item's key has to be sent first.
func (it *item) isBehind() bool {
	k := it.key
	if k.blocked {
		return k.blockedBy != it.row.ID
	}
	return k.suspended != nil || len(k.items) > 0 && k.items[0].row.ID < it.row.ID
}
