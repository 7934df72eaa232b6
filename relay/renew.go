package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Renewals of leases and claims. The loop hands each renewal to the leaser, and applies the result: the lanes or claims that were
// kept, lost and acquired. What must hold: no message is sent after safeUntil, which is three quarters of a lease after the relay
// began its last successful renewal. A lane is released only when none of its messages is in flight (lease.go). At the end of a
// run, the relay gives back its lanes or claims.

// startLease starts a renewal when it is due. Only the loop starts renewals, so a relay whose loop stalls loses its lanes to
// other relays.
//
// If the leases were not renewed in time, startLease cancels the sends in flight, since another relay may soon send the same
// messages.
func (e *engine) startLease(now time.Time) {
	if !e.lease.ended && !e.lease.safeUntil.IsZero() && !now.Before(e.lease.safeUntil) {
		e.lease.ended = true
		e.cancelSend(errLeaseEnding)
		e.options.Logger.Warn("relay: the leases were not renewed in time; sending stops", "relay", e.options.Name)
	}
	if e.lease.busy || now.Before(e.lease.next) || e.stopping.left {
		return
	}
	e.lease.busy = true
	e.lease.next = now.Add(e.lease.interval)
	leave := e.stopping.ready
	allStuck := slices.ContainsFunc(e.queues, func(q *sinkQueue) bool { return q.allStuck }) // every worker of some sink hangs, so other relays should have the lanes
	failing := e.health.readFails.Load()
	if failing == 0 && !e.lease.downUntil.IsZero() {
		e.lease.downUntil = time.Time{}
		e.options.Logger.Info("relay: the table can be read again", "relay", e.options.Name)
	}
	e.leaser.jobs <- leaseJob{rights: e.claiming.rights(leave), leave: leave, standsDown: allStuck || e.control.standsDown || failing != 0 && e.leavesLanes(now, failing)}
}

// leavesLanes reports whether this relay should leave its lanes to other relays. It should leave them if renewals succeed while
// reads have been failing for longer than a lease, for example because only the privilege to read was revoked. The parameter
// `since` is the time when reads began to fail. If renewals fail, too, the whole database is unreachable. Then the relay keeps its
// lanes until renewals have succeeded for the duration of a lease: a relay without lanes doesn't read, so it couldn't find out that
// the table can be read again. After standDownTime the relay takes lanes and tries to read again, for the duration of two leases.
func (e *engine) leavesLanes(now time.Time, since int64) bool {
	until := &e.lease.downUntil
	switch {
	case time.Duration(e.health.now()-since) <= e.options.Lease, e.lease.failures > 0, now.Sub(e.lease.recovered) <= e.options.Lease:
	case now.Before(*until):
		return true
	case until.IsZero() || now.After(until.Add(2*e.options.Lease)):
		*until = now.Add(standDownTime)
		e.options.Logger.Error("relay: the table can't be read; leaving the lanes to other relays, if any are active", "relay", e.options.Name, "error", *e.health.readError.Load())
		return true
	}
	return false
}

// standDownTime is how long a relay that can't read leaves its lanes to others before it tries again.
const standDownTime = time.Minute

// afterLease applies the result of a renewal.
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
			e.lease.failures, e.lease.recovered = 0, time.Now()
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
	if e.lease.waits { // renew after a random time, so that relays that stand by don't all renew at the same moments
		e.lease.next = time.Now().Add(e.lease.interval/2 + rand.N(e.lease.interval/2))
	}
	e.lease.safeUntil = r.began.Add(e.options.Lease * 3 / 4) // well before the lease expires
	e.health.safeUntil.Store(int64(e.lease.safeUntil.Sub(e.health.epoch)))
	if e.lease.ended {
		e.lease.ended = false
		e.sendCtx, e.cancelSend = context.WithCancelCause(context.Background())
	}
	leased, lost := r.rights.conclude(r.err)
	e.options.Observer.LanesHeld(leased, lost)
	e.unrouted.repeatAll()
}

// noteWaits records whether and why the relay stands by.
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
		e.options.Logger.Info("relay: active", "relay", e.options.Name)
		e.poll.fresh = true
		return
	}
	e.options.Logger.Warn("relay: standing by", "relay", e.options.Name, "reason", why)
	e.claiming.giveUpQueued()
}
