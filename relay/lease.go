package relay

import (
	"context"
	"slices"
	"time"
)

// The right to send. A renewal goes out in time to the leaser, as rights to lanes or to
// claimed rows, with the lanes' marks; what was kept, lost and won comes back. What must
// hold: nothing is sent after safeUntil, which is counted from before the renewal was asked
// for; and a lane is released when nothing of it is in flight or unsettled.

// leasing is what the engine knows of its right to lanes, or to claimed rows.
type leasing struct {
	busy      bool
	next      time.Time // the next renewal
	safeUntil time.Time // nothing is sent after this, by the relay's own clock
	ended     bool      // the sends were cancelled because of it
	alone     bool      // no other relay lives
	failures  int
}

// rights are what a relay has when a renewal begins: leases of lanes, or claims of rows.
type rights interface {
	// renew keeps them, and gets what else is the relay's part of the living relays'.
	// aside says that the relay stands down, if there are others. release gives all
	// back at once. The leaser calls these.
	renew(ctx context.Context, members Members, aside bool) (renewed bool, err error)
	release(ctx context.Context) error

	// take takes note of what renew has done, and says how many lanes the relay holds
	// now, and how many it has lost. The loop calls it.
	take(err error) (held, lost int)
}

// leaseJob asks for a sign of life and for longer rights, or, where the relay stops,
// for the end of both.
type leaseJob struct {
	rights rights
	leave  bool
	aside  bool // the relay stands down: it is not to be counted, if there are others
}

type leaseResult struct {
	job     leaseJob
	began   time.Time
	members Members
	renewed bool
	err     error
}

// startLease renews in time. It is the loop that starts each renewal, so a loop
// that stalls loses its lanes to others.
func (e *engine) startLease(now time.Time) {
	if e.lease.busy || now.Before(e.lease.next) || e.stopping.left {
		return
	}
	e.lease.busy = true
	e.lease.next = now.Add(min(e.options.Lease/3, 2*time.Second)) // and notice soon that others came or went
	leave := e.stopping.ready
	e.leases <- leaseJob{rights: e.claiming.rights(leave), leave: leave, aside: e.standsDown()}
}

// leaser carries out one lease job after the other.
func (e *engine) leaser(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-e.leases:
			result := e.keepRights(ctx, job)
			e.reached(result.err)
			e.leased <- result
		}
	}
}

// keepRights does as much of the job as it can.
func (e *engine) keepRights(ctx context.Context, job leaseJob) leaseResult {
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	r := leaseResult{job: job, began: time.Now()}
	if job.leave {
		if r.err = job.rights.release(ctx); r.err == nil {
			r.err = e.store.Deregister(ctx, e.options.Name)
		}
		return r
	}
	ttl := e.options.Lease
	if job.aside {
		ttl = time.Millisecond // others share the lanes among them
	}
	self := Identity{Name: e.options.Name, Host: e.host, Version: e.options.Version, Claim: e.options.Claim}
	if r.members, r.err = e.store.Heartbeat(ctx, self, ttl); r.err == nil {
		r.renewed, r.err = job.rights.renew(ctx, r.members, job.aside)
	}
	return r
}

// afterLease takes note of what was kept, lost and won.
func (e *engine) afterLease(r leaseResult) {
	e.lease.busy = false
	if r.job.leave {
		e.stopping.left, e.stopping.leaveErr = true, r.err
		return
	}
	if e.stopOtherClaim(r.err) {
		return
	}
	if r.err != nil {
		e.failed("lease", r.err)
		e.lease.failures++
		e.lease.next = time.Now().Add(settlePause.draw(e.lease.failures))
	} else {
		e.lease.failures = 0
	}
	if !r.renewed {
		return
	}
	e.lease.alone = len(r.members.Relays) <= 1
	e.lease.safeUntil = r.began.Add(e.options.Lease * 3 / 4) // well before the lease's own end
	e.health.safeUntil.Store(int64(e.lease.safeUntil.Sub(e.health.epoch)))
	if e.lease.ended {
		e.lease.ended = false
		e.sendCtx, e.cancelSend = context.WithCancelCause(context.Background())
	}
	e.options.Observer.LanesHeld(r.job.rights.take(r.err))
	for topic := range e.unrouted {
		e.alarmUnrouted(topic)
	}
}

// guardLease cancels what is being sent when the leases could not be renewed
// in time: soon another relay may send the same.
func (e *engine) guardLease(now time.Time) {
	if e.lease.ended || e.lease.safeUntil.IsZero() || now.Before(e.lease.safeUntil) {
		return
	}
	e.lease.ended = true
	e.cancelSend(errLeaseEnding)
	e.options.Logger.Warn("relay: the leases could not be renewed in time, sending stops", "relay", e.options.Name)
}

// laneRights are the lanes that a relay holds, as they are when a renewal begins, and
// what becomes of them.
type laneRights struct {
	*byLanes
	renewals []Renewal // to keep
	released []Renewal // to give back
	lapsing  []Renewal // to give up, but not their journals: they end by themselves

	epoch   string
	share   int
	kept    []Lease
	granted []Grant
}

func (e *byLanes) rights(leave bool) rights {
	r := &laneRights{byLanes: e}
	journals := e.writesDown(time.Now())
	for _, l := range e.sortedLanes() {
		renewal := Renewal{Lease: l.Lease, Epoch: l.epoch, Marks: l.marks(e.read.horizon, e.routes.print, e.names)}
		renewal.Calm = l.crashes > 0 && time.Since(l.since) > calmAfter && !journals
		switch giveUp := leave || l.draining && !l.has(inFlight, inSettle); {
		case giveUp && (l.has(inFlight) || e.duplicates != nil && e.duplicates.keepsJournal(l)): // it may still be sent
			r.lapsing = append(r.lapsing, renewal)
		case giveUp:
			r.released = append(r.released, renewal)
		default:
			r.renewals = append(r.renewals, renewal)
		}
	}
	return r
}

// renew keeps lanes, gives back what is another's part, and takes what is missing of
// its own.
func (r *laneRights) renew(ctx context.Context, members Members, aside bool) (renewed bool, err error) {
	name, ttl := r.options.Name, r.options.Lease
	r.epoch = members.Epoch
	if r.share = fairShare(members.Relays, name); aside && len(members.Relays) > 1 {
		r.share = 0
	}
	if len(r.renewals) > 0 {
		if r.kept, err = r.store.Renew(ctx, name, r.renewals, ttl); err != nil {
			return false, err
		}
	}
	if err := r.release(ctx); err != nil {
		return true, err
	}
	if missing := r.share - len(r.kept); missing > 0 {
		r.granted, err = r.store.Acquire(ctx, name, missing, ttl)
	}
	return true, err
}

func (r *laneRights) release(ctx context.Context) error {
	if len(r.released) == 0 {
		return nil
	}
	return r.store.Release(ctx, r.options.Name, r.released)
}

// take forgets what was lost or given back, begins with what is new, and gives up what
// is beyond the fair share.
func (r *laneRights) take(err error) (held, lost int) {
	kept := map[Lease]bool{}
	for _, lease := range r.kept {
		kept[lease] = true
	}
	for _, renewal := range r.renewals {
		l := r.lanes[renewal.Lane]
		switch {
		case l == nil || l.Lease != renewal.Lease:
		case !kept[renewal.Lease]:
			r.dropLane(l)
			lost++
		case renewal.Calm:
			l.crashes = 0
		}
	}
	if lost > 0 {
		r.options.Logger.Warn("relay: lost lanes", "relay", r.options.Name, "lanes", lost)
	}
	if err == nil || len(r.granted) > 0 { // else perhaps not released: released again next time
		for _, renewal := range slices.Concat(r.released, r.lapsing) {
			if l := r.lanes[renewal.Lane]; l != nil && l.Lease == renewal.Lease {
				r.dropLane(l)
			}
		}
	}
	if err == nil && len(r.granted) > 0 {
		r.begin(r.granted, r.epoch)
	}
	// Lanes beyond the fair share are given up, those with least in memory first; they
	// are released when nothing of them is under way any more.
	r.byLanes.share = r.share
	lanes := slices.Clone(r.sortedLanes())
	slices.SortStableFunc(lanes, func(a, b *lane) int { return len(b.known) - len(a.known) })
	for i, l := range lanes {
		if surplus := i >= r.share || l.void; surplus != l.draining {
			r.drainLane(l, surplus)
		}
	}
	return len(r.lanes), lost
}

// fairShare is the number of lanes of a relay among others: all get the same,
// and the first ones by name one of those that are left over.
func fairShare(relays []string, name string) int {
	n := max(1, len(relays))
	share := Lanes / n
	if slices.Index(relays, name) < Lanes%n {
		share++
	}
	return share
}

// begin begins with new lanes. Which of their keys wait for another attempt is for the
// database to tell.
func (e *byLanes) begin(granted []Grant, epoch string) {
	now := time.Now()
	for _, g := range granted {
		if old := e.lanes[g.Lane]; old != nil {
			e.dropLane(old)
		}
		l := newLane(g.Lease, len(e.queues), now)
		l.seq, l.crashes, l.keysUnknown, l.epoch = e.read.seq, g.Crashes, true, epoch
		l.startAt(g.Marks, e.routes.print, e.names)
		e.read.sweep.add(l)
		e.lanes[g.Lane], e.sorted = l, nil
		for _, guard := range e.guards {
			guard.leased(l, g)
		}
	}
	e.poll.fresh, e.poll.dueAt, e.poll.empty = true, now, 0
	e.blocked.tellAt, e.read.unroutedAt = now, time.Time{}
}

// dropLane forgets a lane and all that waits in it. What is under way comes
// back to a lane that is no more, and its outcome is fenced.
func (e *byLanes) dropLane(l *lane) {
	for _, it := range l.known {
		if it.stage == inQueue {
			e.drop(it)
		}
	}
	for _, k := range l.keys {
		if k.blocked {
			e.blocked.keys--
			k.blocked = false
		}
		k.items = nil
	}
	l.lost, e.settle.lost = true, true
	for _, g := range e.guards {
		g.lost(l)
	}
	e.sorted = nil
	delete(e.lanes, l.Lane)
}

// abandon leaves the lanes of a send that doesn't return to others: they end by
// themselves.
func (e *byLanes) abandon(f *flight) {
	for _, it := range f.items {
		if l := it.lane; e.lanes[l.Lane] == l {
			e.dropLane(l)
		}
	}
}

// drainLane begins or ends the giving up of a lane. What waits is dropped, and
// read again by whoever holds the lane next.
func (e *byLanes) drainLane(l *lane, draining bool) {
	l.draining = draining
	if !draining {
		e.poll.fresh = true
		return
	}
	for _, it := range l.known {
		if it.stage == inQueue {
			e.giveUp(it)
		}
	}
	e.lease.next = time.Time{}
}
