package relay

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The end of a run. Nothing more is read or sent, what is in flight is waited for (up to a
// deadline), settled, and the rights are given back. A drain ends so by itself.

// abortGrace is how long sends and settlements may take after they were told
// to end.
const abortGrace = 5 * time.Second

// stopTellAfter is how long a stop takes until the log says what it waits for.
const stopTellAfter = time.Second

// beginStop reads and sends no more, and waits for what is under way.
func (e *engine) beginStop(now time.Time) {
	if e.stopping.begun {
		return
	}
	e.stopping.begun, e.settle.joiner.patience = true, 0
	e.stopping.deadline, e.stopping.tellAt = now.Add(e.options.DrainTimeout), now.Add(stopTellAfter)
	e.claiming.giveUpQueued()
}

// abort cancels what is being sent.
func (e *engine) abort(now time.Time) {
	e.beginStop(now)
	e.stopping.aborted = true
	e.stopping.deadline = now.Add(abortGrace)
	e.cancelSend(errAborted)
}

// over says whether the loop is at its end, and brings that nearer: a drain stops once
// nothing is left that could be delivered now, a stop leaves once nothing is under way, and
// what takes too long is given up.
func (e *engine) over() (bool, error) {
	s, now := &e.stopping, time.Now()
	unsettled, sending, buffered, allPaused := e.settle.count(), 0, 0, true
	for _, q := range e.queues {
		sending += len(q.flights)
		if !q.paused {
			buffered += q.buffered
			allPaused = allPaused && q.options.Sink == nil
		}
	}
	quiet := sending == 0 && (unsettled == 0 || e.settle.hopeless()) && e.poll.under == 0 && !e.settle.unwritable.trying
	switch {
	case e.options.Drain && !s.begun && quiet && e.settle.unwritable.refusal != nil:
		e.beginStop(now)
	case !e.options.Drain || s.begun || !quiet || e.drain.busy || now.Before(e.drain.next):
	case buffered > 0 && e.poll.empty >= 2 && e.leftAlone(now) != nil && e.claiming.drained():
		s.err = e.leftAlone(now)
		e.beginStop(now)
		return false, nil // what is given back now has to be written
	case allPaused && e.lease.relays > 0 || e.poll.empty >= 2 && buffered == 0 && e.claiming.drained():
		// Either all sinks are paused; or two looks in a row found nothing, nothing that may be sent is in memory, and
		// the table has nothing else that could be delivered now. The survey shows what is left all the same.
		if len(e.settle.unwritable.items) > 0 { // these are due in the table, and the drain fails for them
			e.beginStop(now)
			break
		}
		if e.drain.last == nil {
			e.beginSurvey(allPaused)
			break
		}
		for topic := range e.unrouted.topics {
			e.drain.last.unrouted[topic] = true
		}
		s.err = e.drain.last.drained()
		e.beginStop(now)
	case buffered == 0 && e.poll.empty < 2: // it doesn't wait for the poll's time
		e.drain.last = nil
		e.poll.fresh = true
		e.claiming.startRead(now)
	}
	if !s.begun {
		return false, nil
	}
	if !s.tellAt.IsZero() && !now.Before(s.tellAt) {
		s.tellAt = time.Time{}
		if !quiet && !s.aborted {
			e.logStopping(now, unsettled)
		}
	}
	if !s.left && !now.Before(s.deadline) { // it waits no longer: first for the sends, then for anything
		if s.aborted {
			s.gaveUp = true
		} else {
			e.abort(now)
		}
	}
	if tooLate := s.gaveUp && now.After(s.deadline.Add(2*abortGrace)); s.left || tooLate {
		problems := []error{s.err, s.leaveErr}
		if !s.left {
			problems = append(problems, errors.New("stop the relay: the database didn't take back the lanes; they are free when their leases end"))
		}
		if unsettled += len(e.settle.unwritable.items); sending > 0 || unsettled > 0 {
			text := fmt.Sprintf("stop the relay: %d sends were still under way and %d outcomes not written back; these messages will be sent again", sending, unsettled)
			if e.settle.unwritable.refusal != nil {
				problems = append(problems, fmt.Errorf("%s: %w", text, e.settle.unwritable.refusal))
			} else {
				problems = append(problems, errors.New(text))
			}
		}
		return true, errors.Join(problems...)
	}
	if !s.ready && (s.gaveUp || quiet) {
		s.ready = true
		e.lease.next = time.Time{}
	}
	return false, nil
}

// stopOtherClaim ends a relay that finds out, by whichever call, that the table was
// changed to the other way of claiming while it was taken for dead.
func (e *engine) stopOtherClaim(err error) bool {
	if !errors.Is(err, storage.ErrOtherClaim) || e.stopping.begun {
		return false
	}
	e.stopping.err = fmt.Errorf("stop the relay, which claims by %s: %w", e.options.Claim, err)
	e.beginStop(time.Now())
	return true
}

// logStopping tells whoever has asked for a stop, and waits, for what.
func (e *engine) logStopping(now time.Time, unsettled int) {
	var waits []string
	for _, q := range e.queues {
		if n := q.inFlight(); n > 0 {
			waits = append(waits, fmt.Sprintf("%d messages in flight at sink %q", n, q.name))
		}
	}
	if unsettled > 0 {
		waits = append(waits, fmt.Sprintf("the database, to write %d outcomes", unsettled))
	}
	e.options.Logger.Info("relay: stopping, but not before what is in flight has ended", "relay", e.options.Name,
		"waits for", strings.Join(waits, "; "), "at most", e.stopping.deadline.Sub(now).Round(time.Second))
}
