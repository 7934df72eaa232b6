package relay

import (
	"slices"
	"time"
)

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
