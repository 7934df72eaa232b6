package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The end of a drain. When the reads find nothing more, a survey asks the store for all rows that are due. The store finds these
// rows by their due times, regardless of the lanes' positions. So the survey also finds paused messages, and messages that could be
// delivered but that the reads missed. What must hold: a drain ends without an error only if no due message is left, whether or not
// the reads can find it. Some messages don't count: messages in other relays' lanes, messages of topics that this relay doesn't
// claim, and messages whose key is blocked at each of their sinks by another message, which is parked or not due yet.

const (
	// surveyInterval is the pause after a survey that failed or found an unread message.
	surveyInterval = 500 * time.Millisecond

	// unreadFor is how long a message must stay unread, or surveys must keep failing, before the drain fails. Until then a
	// message may be unread because another transaction has locked it or has just written it.
	unreadFor = 10 * time.Second

	// mostFailures is how many consecutive surveys must fail before the drain fails.
	mostFailures = 3
)

// continueDrain takes the next step towards the end of a drain, and reports whether the drain has ended and with which error. It
// is called while nothing is being read, sent or settled. The drain reads until two consecutive reads have found nothing, then
// surveys the table, and ends with the survey's result.
func (e *engine) continueDrain(p progress, now time.Time) (ended bool, err error) {
	readsAreEmpty := e.poll.empty >= 2
	switch {
	case e.settle.unwritable.refusal != nil:
		return true, nil // the stop returns an error with the refusal
	case e.drain.busy || now.Before(e.drain.next):
	case p.buffered > 0 && readsAreEmpty && e.leftAlone(now) != nil && e.claiming.drained():
		return true, e.leftAlone(now)
	case p.allPaused && e.lease.relays > 0 || readsAreEmpty && p.buffered == 0 && e.claiming.drained():
		if len(e.settle.unwritable.items) > 0 { // these messages are still due in the table, and the stop returns an error for them
			return true, nil
		}
		if e.drain.last == nil {
			e.beginSurvey(p.allPaused)
			return false, nil
		}
		for topic := range e.unrouted.topics {
			e.drain.last.unrouted[topic] = true
		}
		return true, e.drain.last.drained()
	case p.buffered == 0 && !readsAreEmpty:
		e.drain.last = nil
		e.poll.fresh = true
		e.claiming.startRead(now) // without waiting for the next poll
	}
	return false, nil
}

// beginSurvey starts a survey. If the parameter `all` is true, messages in other relays' lanes count, too.
func (e *engine) beginSurvey(all bool) {
	s := &survey{byRows: e.options.Claim == storage.ByRows, topics: e.options.Topics, pauses: e.control.pauses, before: e.drain.unread, began: time.Now(),
		heldUp: map[int64]bool{}, isPaused: map[storage.ControlKind]map[string]bool{}, unrouted: map[string]bool{}}
	for _, q := range e.queues {
		s.sinks = append(s.sinks, q.paused)
	}
	if !all && e.lease.relays > 1 {
		s.lanes = e.claiming.ownLanes()
	}
	e.drain.busy = true
	e.surveyor.jobs <- s
}

// afterSurvey keeps the result of a survey. If the survey failed or found an unread message, the drain reads and surveys again,
// and fails only if this lasts for unreadFor.
func (e *engine) afterSurvey(s *survey) {
	d, now := &e.drain, time.Now()
	d.busy, d.last = false, s
	again := false
	switch {
	case s.err != nil:
		if d.failures++; d.failures == 1 {
			d.failing = s.began
		}
		again = d.failures < mostFailures || now.Sub(d.failing) < unreadFor
	case s.unread != nil:
		d.failures = 0
		if d.since.IsZero() || d.unread != s.unread.ID {
			d.unread, d.since = s.unread.ID, now
		}
		again = now.Sub(d.since) < unreadFor
	default:
		d.failures = 0
	}
	if again {
		d.last, d.next = nil, now.Add(surveyInterval)
		e.poll.empty = 0
		e.claiming.lookEverywhere()
	}
}

// leftAlone returns the drain's error if all messages in memory, except messages for paused sinks, keep failing. It returns nil
// while some sink has other messages to send, or while the breaker of a sink with messages is open.
func (e *engine) leftAlone(now time.Time) error {
	var problems []error
	for _, q := range e.queues {
		switch {
		case q.paused || q.buffered == 0:
		case !q.fails(now):
			return nil
		default:
			problems = append(problems, fmt.Errorf("drained, but %d messages are left: sink %q does not accept them, or they wait behind messages that it does not accept; the last answer: %s", q.buffered, q.name, q.breaker.lastAnswer()))
		}
	}
	return errors.Join(problems...)
}
