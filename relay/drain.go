package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The end of a drain. Once its reads find nothing more, a survey asks the store for all rows that are due, which it finds by
// their times alone: messages that are paused, and messages that could be delivered but that no read found. What must hold:
// a drain ends without an error only if no message is left that is due, whatever hides it from the reads. Two kinds of messages
// don't count: those of other relays' lanes or topics, and those whose key waits at each of their sinks for a message that is
// not due.

const (
	// surveyInterval is the time between two surveys of a drain, where one has failed or has found an unread message.
	surveyInterval = 500 * time.Millisecond

	// unreadFor is how long a message stays unread, or surveys fail, until the drain fails: another transaction may have
	// locked the message, or have written it just now.
	unreadFor = 10 * time.Second

	// mostFailures is how many surveys fail at least until the drain does.
	mostFailures = 3
)

// beginSurvey has the table surveyed. all: the messages of other relays' lanes count, too.
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

// afterSurvey has the drain look again if the survey has found a message that could be delivered, or has failed, unless that
// lasts.
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

// leftAlone returns what a drain ends with whose last messages fail while nothing else is delivered: they may be bad, or their
// sink is down. It returns nil while others may still be sent.
func (e *engine) leftAlone(now time.Time) error {
	var problems []error
	for _, q := range e.queues {
		switch {
		case q.paused || q.buffered == 0:
		case !q.fails(now):
			return nil
		default:
			problems = append(problems, fmt.Errorf("drained, but %d messages are left that sink %q does not take, or that wait behind those; the last answer: %s", q.buffered, q.name, q.breaker.lastAnswer()))
		}
	}
	return errors.Join(problems...)
}
