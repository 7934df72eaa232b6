package relay

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// The end. Nothing more is read or sent, what is in flight is waited for (up to a deadline),
// settled, and the rights are given back. A drain ends so by itself.

// stop is how far the engine has come with stopping.
type stop struct {
	begun    bool
	ready    bool // nothing is under way: the relay may leave
	left     bool
	leaveErr error
	aborted  bool
	deadline time.Time
	gaveUp   bool
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

// over says whether the loop is at its end.
func (e *engine) over() (bool, error) {
	e.checkDrained()
	s := &e.stopping
	if !s.begun {
		return false, nil
	}
	if s.left {
		return true, errors.Join(s.err, s.leaveErr, e.unsettled())
	}
	now := time.Now()
	if !now.Before(s.deadline) { // it waits no longer: first for the sends, then for anything
		if s.aborted {
			s.gaveUp = true
		} else {
			e.abort(now)
		}
	}
	if s.gaveUp && now.After(s.deadline.Add(2*abortGrace)) {
		return true, errors.Join(s.err, errors.New("stop the relay: the database didn't take back the lanes; they are free when their leases end"), e.unsettled())
	}
	if !s.ready && (s.gaveUp || e.quiet()) {
		s.ready = true
		e.lease.next = time.Time{}
		e.startLease(now)
	}
	return false, nil
}

// quiet says that nothing is under way.
func (e *engine) quiet() bool {
	busy := e.poll.under > 0 || e.settle.count() > 0 || e.settle.trying
	for _, q := range e.queues {
		busy = busy || q.busy > 0
	}
	return !busy
}

// unsettled is the error of a relay that had to go before all was written.
func (e *engine) unsettled() error {
	sending := 0
	for _, q := range e.queues {
		sending += q.busy
	}
	unsettled := e.settle.count() + len(e.settle.unwritable.items)
	if sending == 0 && unsettled == 0 {
		return nil
	}
	return fmt.Errorf("stop the relay: %d sends were still under way and %d outcomes not written back; these messages will be sent again",
		sending, unsettled)
}

// checkDrained ends a drain once nothing is left that could be delivered now: two
// looks in a row found nothing, nothing is in memory, and the table has nothing.
func (e *engine) checkDrained() {
	if !e.options.Drain || e.stopping.begun || e.poll.empty < 2 || !e.quiet() {
		return
	}
	if slices.ContainsFunc(e.queues, func(q *sinkQueue) bool { return q.buffered > 0 }) || !e.claiming.drained() {
		return
	}
	e.stopping.err = e.unroutedLeft()
	e.beginStop(time.Now())
}

// stopOtherClaim ends a relay that finds out, by whichever call, that the table was
// changed to the other way of claiming while it was taken for dead.
func (e *engine) stopOtherClaim(err error) bool {
	if !errors.Is(err, ErrOtherClaim) || e.stopping.begun {
		return false
	}
	e.stopping.err = fmt.Errorf("stop the relay, which claims by %s: %w", e.options.Claim, err)
	e.beginStop(time.Now())
	return true
}
