package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The right to send. A renewal goes out in time to the leaser, as rights to lanes or to
// claimed rows, with the lanes' marks; what was kept, lost and won comes back. What must
// hold: nothing is sent after safeUntil, which is counted from before the renewal was asked
// for; and a lane is released when nothing of it is in flight or unsettled. At the end of a run
// the rights are given back.

// startLease renews in time. It is the loop that starts each renewal, so a loop
// that stalls loses its lanes to others.
//
// Where the leases could not be renewed in time it cancels what is being sent: soon another
// relay may send the same.
func (e *engine) startLease(now time.Time) {
	if !e.lease.ended && !e.lease.safeUntil.IsZero() && !now.Before(e.lease.safeUntil) {
		e.lease.ended = true
		e.cancelSend(errLeaseEnding)
		e.options.Logger.Warn("relay: the leases could not be renewed in time, sending stops", "relay", e.options.Name)
	}
	if e.lease.busy || now.Before(e.lease.next) || e.stopping.left {
		return
	}
	e.lease.busy = true
	e.lease.next = now.Add(e.lease.interval)
	leave := e.stopping.ready
	allStuck := slices.ContainsFunc(e.queues, func(q *sinkQueue) bool { return q.allStuck }) // a sink has no worker left here: others should have the lanes
	failing := e.health.readFails.Load()
	if failing == 0 && !e.lease.downUntil.IsZero() {
		e.lease.downUntil = time.Time{}
		e.options.Logger.Info("relay: the table can be read again", "relay", e.options.Name)
	}
	e.leaser.jobs <- leaseJob{rights: e.claiming.rights(leave), leave: leave, standsDown: allStuck || e.control.standsDown || failing != 0 && e.readsInVain(now, failing)}
}

// readsInVain says that this relay should leave its lanes to others, if there are any: since then, for longer than a lease,
// reads have failed here, though heartbeats may succeed, as where a right was revoked. After standDownTime the relay tries
// again, for two leases.
func (e *engine) readsInVain(now time.Time, since int64) bool {
	until := &e.lease.downUntil
	switch {
	case time.Duration(e.health.now()-since) <= e.options.Lease:
	case now.Before(*until):
		return true
	case until.IsZero() || now.After(until.Add(2*e.options.Lease)):
		*until = now.Add(standDownTime)
		e.options.Logger.Error("relay: the table can't be read, others get the lanes if there are any", "relay", e.options.Name, "error", *e.health.readError.Load())
		return true
	}
	return false
}

// standDownTime is how long a relay that can't read leaves its lanes to others before it tries again.
const standDownTime = time.Minute

// afterLease takes note of what was kept, lost and won.
func (e *engine) afterLease(r leaseJob) {
	e.lease.busy = false
	if r.leave {
		e.stopping.left, e.stopping.leaveErr = true, r.err
		return
	}
	if !r.heard.IsZero() {
		e.clock = databaseClock{r.members.Now, r.heard}
		e.noteWaits(r.waits)
		if r.waits != "" && e.options.Drain && !e.stopping.begun {
			e.stopping.err = fmt.Errorf("drain: nothing was drained: %s", r.waits)
			e.beginStop(time.Now())
		}
	}
	if r.err == nil {
		if e.lease.failures > 0 {
			e.lease.failures = 0
			e.tried(&e.health.lease, nil)
		}
	} else if e.stopOtherClaim(r.err) {
		return
	} else {
		e.failed("lease", r.err)
		e.tried(&e.health.lease, r.err)
		e.lease.failures++
		e.lease.next = time.Now().Add(settlePause.draw(e.lease.failures))
	}
	if !r.renewed {
		return
	}
	e.lease.relays = len(r.members.Relays)
	for _, q := range e.queues {
		if relays := sendersTo(q.name, r.members.Relays); relays != q.relays {
			q.relays = relays
			if q.rate > 0 {
				q.limit(q.rate)
			}
		}
	}
	if e.lease.waits { // others may look at the same moments
		e.lease.next = time.Now().Add(e.lease.interval/2 + rand.N(e.lease.interval/2))
	}
	e.lease.safeUntil = r.began.Add(e.options.Lease * 3 / 4) // well before the lease's own end
	e.health.safeUntil.Store(int64(e.lease.safeUntil.Sub(e.health.epoch)))
	if e.lease.ended {
		e.lease.ended = false
		e.sendCtx, e.cancelSend = context.WithCancelCause(context.Background())
	}
	leased, lost := r.rights.conclude(r.err)
	e.options.Observer.LanesHeld(leased, lost)
	for topic := range e.unrouted.topics {
		e.unrouted.report(topic)
	}
}

// noteWaits takes note of whether the relay waits for others to end.
func (e *engine) noteWaits(why string) {
	was := ""
	if text := e.health.waits.Swap(&why); text != nil {
		was = *text
	}
	e.lease.waits = why != ""
	if why == was {
		return
	}
	e.options.Observer.Standby(why)
	if why == "" {
		e.options.Logger.Info("relay: it waits no longer, and takes its part", "relay", e.options.Name)
		e.poll.fresh = true
		return
	}
	e.options.Logger.Warn("relay: it waits: "+why, "relay", e.options.Name)
	e.claiming.giveUpQueued()
}
