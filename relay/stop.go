package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The end. Nothing more is read or sent, what is in flight is waited for (up to a deadline),
// settled, and the rights are given back. A drain ends so by itself.

// stop is how far the engine has come with stopping.
type stop struct {
	begun    bool
	ready    bool // nothing is under way: the relay may leave
	left     bool // the leaser has taken the relay out of its table
	leaveErr error
	aborted  bool // sends were cancelled; the deadline is for settling now
	deadline time.Time
	gaveUp   bool // that deadline has passed, too
	err      error
}

// abortGrace is how long sends and settlements may take after they were told
// to end.
const abortGrace = 5 * time.Second

// beginStop reads and sends no more, and waits for what is under way.
func (e *engine) beginStop(now time.Time) {
	if e.stopping.begun {
		return
	}
	e.stopping.begun = true
	e.stopping.deadline = now.Add(e.options.DrainTimeout)
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
	unsettled, sending, buffered := e.settle.count(), 0, 0
	for _, q := range e.queues {
		sending += len(q.flights)
		buffered += q.buffered
	}
	quiet := sending == 0 && unsettled == 0 && e.poll.under == 0 && !e.settle.trying
	if e.options.Drain && !s.begun && e.poll.empty >= 2 && quiet && buffered == 0 && e.claiming.drained() {
		s.err = e.unroutedLeft() // two looks in a row found nothing, nothing is in memory, and the table has nothing
		e.beginStop(now)
	}
	if !s.begun {
		return false, nil
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
		if unsettled += len(e.settle.unwritable); sending > 0 || unsettled > 0 {
			problems = append(problems, fmt.Errorf("stop the relay: %d sends were still under way and %d outcomes not written back; these messages will be sent again",
				sending, unsettled))
		}
		return true, errors.Join(problems...)
	}
	if !s.ready && (s.gaveUp || quiet) {
		s.ready = true
		e.lease.next = time.Time{}
		e.startLease(now)
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
