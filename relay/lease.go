package relay

import (
	"context"
	"slices"
	"time"
)

// leasing is what the engine knows of its right to lanes, or to claimed rows.
type leasing struct {
	busy      bool
	next      time.Time // the next renewal
	safeUntil time.Time // nothing is sent after this, by the relay's own clock
	ended     bool      // the sends were cancelled because of it
	share     int       // lanes that are this relay's fair part; -1 before the first census
	alone     bool      // no other relay lives
	failures  int
	claimed   int64 // by rows, for a drain: claimed by anyone; -1 before it was counted
}

// leaseJob asks for everything that keeps the relay's rights: a sign of life,
// longer leases, lanes to give back and lanes to take.
type leaseJob struct {
	renew   []Renewal
	release []Renewal
	lapse   []Renewal // lanes to give up, but not their journals: they end by themselves
	held    int
	rows    []int64 // by rows: claims to extend
	token   string
	leave   bool // the relay stops
	aside   bool // the relay stands down: it is not to be counted, if there are others
}

type leaseResult struct {
	job     leaseJob
	began   time.Time
	census  Census
	share   int
	renewed bool
	kept    []Lease
	rows    []int64
	claimed int64
	granted []Grant
	err     error
}

// renewInterval is how often the relay renews: well before the leases end, and
// often enough to notice soon that others came or went.
func (e *engine) renewInterval() time.Duration { return min(e.options.Lease/3, 2*time.Second) }

// startLease renews in time. It is the loop that starts each renewal, so a loop
// that stalls loses its lanes to others.
func (e *engine) startLease(now time.Time) {
	if e.lease.busy || now.Before(e.lease.next) || e.stopping.left {
		return
	}
	e.lease.busy = true
	e.lease.next = now.Add(e.renewInterval())
	e.leases <- e.leaseJob()
}

func (e *engine) leaseJob() leaseJob {
	job := leaseJob{leave: e.stopping.ready, aside: e.standsDown()}
	if e.options.Claim == ByRows {
		return e.extendJob(job)
	}
	for _, l := range e.sortedLanes() {
		renewal := Renewal{Lease: l.Lease, Epoch: l.epoch, Marks: l.marks(e.read.horizon, e.routes.print, e.outlets)}
		renewal.Calm = l.crashes > 0 && time.Since(l.since) > calmAfter && !e.exact
		switch giveUp := job.leave || l.draining && l.pinned == 0; {
		case giveUp && (len(l.tickets) > 0 || l.sending()): // it may still be sent
			job.lapse = append(job.lapse, renewal)
		case giveUp:
			job.release = append(job.release, renewal)
		default:
			job.renew = append(job.renew, renewal)
			job.held++
		}
	}
	return job
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
	r := leaseResult{job: job, share: -1, began: time.Now()}
	if job.leave {
		r.err = e.leave(ctx, job)
		return r
	}
	ttl := e.options.Lease
	if job.aside {
		ttl = time.Millisecond // others share the lanes among them
	}
	r.census, r.err = e.store.Beat(ctx, e.identity(), ttl)
	if r.err != nil {
		return r
	}
	if e.options.Claim == ByRows {
		if r.rows, r.err = e.extend(ctx, job); r.err == nil {
			r.claimed, r.err = e.countClaimed(ctx)
		}
		r.renewed = r.err == nil
		return r
	}
	if r.share = fairShare(r.census.Relays, e.options.Name); job.aside && len(r.census.Relays) > 1 {
		r.share = 0
	}
	e.keepLanes(ctx, job, &r)
	return r
}

func (e *engine) keepLanes(ctx context.Context, job leaseJob, r *leaseResult) {
	name, ttl := e.options.Name, e.options.Lease
	if len(job.renew) > 0 {
		if r.kept, r.err = e.store.Renew(ctx, name, job.renew, ttl); r.err != nil {
			return
		}
	}
	r.renewed = true
	if len(job.release) > 0 {
		if r.err = e.store.Release(ctx, name, job.release); r.err != nil {
			return
		}
	}
	if missing := r.share - len(r.kept); missing > 0 {
		r.granted, r.err = e.store.Acquire(ctx, name, missing, ttl)
	}
}

// leave gives everything back at once.
func (e *engine) leave(ctx context.Context, job leaseJob) error {
	if len(job.release) > 0 {
		if err := e.store.Release(ctx, e.options.Name, job.release); err != nil {
			return err
		}
	}
	return e.store.Leave(ctx, e.options.Name)
}

func (e *engine) identity() Identity {
	return Identity{Name: e.options.Name, Host: e.host, Version: e.options.Version, Claim: e.options.Claim}
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
	e.lease.alone, e.lease.claimed = len(r.census.Relays) <= 1, r.claimed
	e.prolong(r.began)
	lost := e.dropLost(r)
	e.forgetReleased(r)
	if r.err == nil {
		e.addGranted(r)
	}
	e.balance(r.share)
	e.options.Observer.LanesHeld(len(e.lanes), lost)
	e.remindUnrouted()
}

// prolong moves the end of sending: well before the lease's own.
func (e *engine) prolong(began time.Time) {
	e.lease.safeUntil = began.Add(e.options.Lease * 3 / 4)
	e.pulse.safeUntil.Store(int64(e.lease.safeUntil.Sub(e.pulse.epoch)))
	if e.lease.ended {
		e.lease.ended = false
		e.sendCtx, e.cancelSend = context.WithCancelCause(context.Background())
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

// dropLost forgets lanes whose lease another has now.
func (e *engine) dropLost(r leaseResult) int {
	if e.options.Claim == ByRows {
		return e.dropLostRows(r)
	}
	kept := map[Lease]bool{}
	for _, lease := range r.kept {
		kept[lease] = true
	}
	lost := 0
	for _, renewal := range r.job.renew {
		l := e.lanes[renewal.Lane]
		switch {
		case l == nil || l.Lease != renewal.Lease:
		case !kept[renewal.Lease]:
			e.dropLane(l)
			lost++
		case renewal.Calm:
			l.crashes = 0
		}
	}
	if lost > 0 {
		e.options.Logger.Warn("relay: lost lanes", "relay", e.options.Name, "lanes", lost)
	}
	return lost
}

func (e *engine) forgetReleased(r leaseResult) {
	if r.err != nil && len(r.granted) == 0 {
		return // perhaps not released: released again next time
	}
	for _, renewal := range slices.Concat(r.job.release, r.job.lapse) {
		if l := e.lanes[renewal.Lane]; l != nil && l.Lease == renewal.Lease {
			e.dropLane(l)
		}
	}
}

// dropLane forgets a lane and all that waits in it. What is under way comes
// back to a lane that is no more, and its outcome is fenced.
func (e *engine) dropLane(l *lane) {
	for _, it := range l.known {
		if it.stage == inQueue {
			e.drop(it)
		}
	}
	for _, k := range l.keys {
		if k.held {
			e.holds.keys--
			k.held = false
		}
		k.items = nil
	}
	l.lost, e.settle.lost = true, true
	e.clearSuspects(l.Lane)
	e.sorted = nil
	delete(e.lanes, l.Lane)
}

// addGranted begins with new lanes. Which of their keys wait for another attempt is
// for the database to tell.
func (e *engine) addGranted(r leaseResult) {
	now := time.Now()
	for _, g := range r.granted {
		if old := e.lanes[g.Lane]; old != nil {
			e.dropLane(old)
		}
		l := newLane(g.Lease, len(e.outlets), now)
		l.seq, l.crashes, l.untold = e.read.seq, g.Crashes, true
		l.epoch = r.census.Epoch
		l.startAt(g.Marks, e.routes.print, e.outlets)
		e.read.sweep.add(l)
		e.inherit(l, g.Tickets)
		e.lanes[g.Lane], e.sorted = l, nil
		e.suspect(g, now)
	}
	if len(r.granted) > 0 {
		e.read.fresh, e.read.dueAt, e.read.looks = true, now, 0
		e.holds.tellAt, e.read.unroutedAt = now, time.Time{}
	}
}

// balance gives up lanes beyond the fair share, those with least in memory
// first; they are released when nothing of them is under way any more.
func (e *engine) balance(share int) {
	if e.options.Claim == ByRows || share < 0 {
		return
	}
	e.lease.share = share
	lanes := slices.Clone(e.sortedLanes())
	slices.SortStableFunc(lanes, func(a, b *lane) int { return len(b.known) - len(a.known) })
	for i, l := range lanes {
		if surplus := i >= share || l.void; surplus != l.draining {
			e.drainLane(l, surplus)
		}
	}
}

// drainLane begins or ends the giving up of a lane. What waits is dropped, and
// read again by whoever holds the lane next.
func (e *engine) drainLane(l *lane, draining bool) {
	l.draining = draining
	if !draining {
		e.read.fresh = true
		return
	}
	for _, it := range l.known {
		if it.stage == inQueue {
			e.forgetQueued(it)
		}
	}
	e.lease.next = time.Time{}
}

// forgetQueued drops an item that waits, and remembers to read it again.
func (e *engine) forgetQueued(it *item) {
	if !it.row.Held {
		it.lane.recheck = lowestSet(it.lane.recheck, it.row.ID-1)
	}
	if it.key != nil {
		it.key.remove(it)
	}
	e.drop(it)
}
