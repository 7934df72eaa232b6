package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

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

// closeSinks closes every sink, however long the others take.
func (e *engine) closeSinks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortGrace)
	defer cancel()
	var problems []error
	for _, q := range e.queues {
		if q.options.Sink == nil || len(q.flights) > 0 { // never while it is in use
			continue
		}
		if err := e.closeSink(ctx, q); err != nil {
			problems = append(problems, fmt.Errorf("close sink %q: %w", q.name, err))
		}
	}
	return errors.Join(problems...)
}

// countPoll counts the looks in a row that found nothing new.
func (e *engine) countPoll(empty bool) {
	if empty {
		e.poll.empty++
		return
	}
	e.poll.empty = 0
	e.poll.news++
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

// drained says that nothing was passed over, and that the relay holds all the lanes
// that are its part: those of a relay that died are waited for. What is known to have no
// route is passed over for good, as are those of a key whose next attempt is still to come.
func (e *byLanes) drained() bool {
	if !e.read.noDue || len(e.read.resuming) > 0 || len(e.lanes) != e.share {
		return false
	}
	for _, l := range e.lanes {
		if l.draining || l.recheck != none {
			return false
		}
		for i, lag := range l.skippedFrom {
			if lag != none && (e.queues[i].options.Sink != nil || !l.alarmed) {
				return false
			}
		}
	}
	if e.sweptClean() {
		return true
	}
	e.startRead(time.Now()) // the sweep waits for no poll
	return false
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
