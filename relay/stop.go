package relay

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The end of a run. The relay stops reading and sending, waits until the messages in flight are settled or the deadline passes,
// and gives back its leases or claims. A drain stops in the same way when no message is left (drain.go).

// abortGrace is how long the run waits, after it has cancelled the sends, until they have returned and the outcomes are written.
// It is also how long the run waits for its goroutines to end, and the time-out for closing the sinks.
const abortGrace = 5 * time.Second

// leaveGrace is how long the run waits for the database to release the lanes or claims once the relay has given up its sends.
const leaveGrace = 2 * abortGrace

// workerGrace is how long the run waits for the workers to end if the relay has given up its sends. It is short, because the
// sends have already had abortGrace to return.
const workerGrace = time.Second

// logStopAfter is how long a stop may take before it logs what it waits for.
const logStopAfter = time.Second

// beginStop ends reading and sending.
func (e *engine) beginStop(now time.Time) {
	if e.stopping.begun {
		return
	}
	e.stopping.begun, e.settle.joiner.patience = true, 0
	e.stopping.deadline, e.stopping.logAt = now.Add(e.options.DrainTimeout), now.Add(logStopAfter)
	e.claiming.giveUpQueued()
}

// abort cancels the sends in flight.
func (e *engine) abort(now time.Time) {
	e.beginStop(now)
	e.stopping.aborted = true
	e.stopping.deadline = now.Add(abortGrace)
	e.cancelSend(errAborted)
}

func (e *engine) progress() progress {
	p := progress{unsettled: e.settle.count(), allPaused: true}
	for _, q := range e.queues {
		p.sending += len(q.flights)
		if !q.paused {
			p.buffered += q.buffered
			p.allPaused = p.allPaused && q.options.Sink == nil
		}
	}
	p.quiet = p.sending == 0 && (p.unsettled == 0 || e.settle.hopeless()) && e.poll.under == 0 && !e.settle.unwritable.trying
	return p
}

// over reports whether the run has ended, and with which error. Until then it takes the next step of the drain or, once a stop
// has begun, of the stop.
func (e *engine) over() (bool, error) {
	now, p := time.Now(), e.progress()
	if e.options.Drain && !e.stopping.begun && p.quiet {
		if ended, err := e.continueDrain(p, now); ended {
			e.stopping.err = err
			e.beginStop(now)
			p = e.progress() // giving up messages may have added outcomes, which must be written
		}
	}
	if !e.stopping.begun {
		return false, nil
	}
	return e.continueStop(p, now)
}

// continueStop lets the leaser deregister the relay once no read, send or settlement is in progress. When the deadline passes,
// it cancels the sends and sets a new deadline. When the new deadline passes, too, the run ends without
// waiting for the sends.
func (e *engine) continueStop(p progress, now time.Time) (bool, error) {
	s := &e.stopping
	if !s.logAt.IsZero() && !now.Before(s.logAt) {
		s.logAt = time.Time{}
		if !p.quiet && !s.aborted {
			e.logStopping(now, p.unsettled)
		}
	}
	if !s.left && !now.Before(s.deadline) {
		if s.aborted {
			s.gaveUp = true
		} else {
			e.abort(now)
		}
	}
	if tooLate := s.gaveUp && now.After(s.deadline.Add(leaveGrace)); s.left || tooLate {
		return true, e.stopped(p)
	}
	if !s.ready && (s.gaveUp || p.quiet) {
		s.ready = true
		e.lease.next = time.Time{}
	}
	return false, nil
}

// stopped returns the error with which a run ends. It is nil if the run ended without a failure and left nothing unfinished.
func (e *engine) stopped(p progress) error {
	problems := []error{e.stopping.err, e.stopping.leaveErr}
	if !e.stopping.left {
		problems = append(problems, errors.New("stop the relay: the lanes couldn't be released in the database; they are free when their leases end"))
	}
	if unsettled := p.unsettled + len(e.settle.unwritable.items); p.sending > 0 || unsettled > 0 {
		text := fmt.Sprintf("stop the relay: %d sends were still in flight and %d outcomes were not written; these messages will be sent again", p.sending, unsettled)
		if e.settle.unwritable.refusal != nil {
			problems = append(problems, fmt.Errorf("%s: %w", text, e.settle.unwritable.refusal))
		} else {
			problems = append(problems, errors.New(text))
		}
	}
	return errors.Join(problems...)
}

// stopOtherClaim stops the relay if a call has failed because the table's claim mode was changed. The mode can change only while
// other relays consider this relay dead.
func (e *engine) stopOtherClaim(err error) bool {
	if !errors.Is(err, storage.ErrOtherClaim) || e.stopping.begun {
		return false
	}
	e.stopping.err = fmt.Errorf("the relay has stopped: it claims by %s: %w", e.options.Claim, err)
	e.beginStop(time.Now())
	return true
}

// logStopping logs what a stop waits for, and how long it can take if the sinks ignore their contexts and the database doesn't
// answer. Closing the sinks isn't included.
func (e *engine) logStopping(now time.Time, unsettled int) {
	var waits []string
	for _, q := range e.queues {
		if n := q.inFlight(); n > 0 {
			waits = append(waits, fmt.Sprintf("%d messages in flight at sink %q", n, q.name))
		} else if len(q.flights) > 0 {
			waits = append(waits, fmt.Sprintf("sink %q, which is being opened", q.name))
		}
	}
	if unsettled > 0 {
		waits = append(waits, fmt.Sprintf("the database, to write %d outcomes", unsettled))
	}
	if e.poll.under > 0 {
		waits = append(waits, "the database, to answer a read")
	}
	most := e.stopping.deadline.Sub(now) + abortGrace + leaveGrace + workerGrace
	e.options.Logger.Info("relay: stopping when the messages in flight are settled", "relay", e.options.Name,
		"waits_for", strings.Join(waits, "; "), "at_most", most.Round(time.Second))
}
