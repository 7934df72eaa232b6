package relay

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Leases. A renewal passes the lanes that the relay holds, and their marks, to the leaser. Its result lists the lanes that
// were kept, lost and acquired. When the relay gives up a lane, it waits until none of the lane's messages is in flight or
// unsettled, and then releases the lane. When a stop no longer waits for settlements (stop.go), the relay also releases lanes with
// unsettled messages, which their next holders send again.

// calmAfter is how long a relay journals each batch before sending it, after the relay has taken over a dead relay's lane.
const calmAfter = time.Minute

// laneRights is a renewal of the leases of the lanes that the relay held when the renewal began, and its result.
type laneRights struct {
	of       *byLanes
	renewals []storage.Renewal // lanes to keep
	released []storage.Renewal // lanes to give back
	lapsing  []storage.Renewal // lanes whose leases must expire instead, because a release would clear their journals

	epoch   string
	share   int
	yields  bool // acquire no lanes
	kept    []storage.Lease
	granted []storage.Grant
}

func (e *byLanes) rights(leave bool) rights {
	r := &laneRights{of: e, yields: time.Now().Before(e.engine.lease.yieldsUntil)}
	journals := e.engine.deduplicates || time.Now().Before(e.engine.journalAll) // batches are journalled before they are sent
	for _, l := range e.held.sortedLanes() {
		var has [dropped + 1]bool // by stage: whether the lane has an item in this stage
		for it := range l.items() {
			if !it.unwritable { // an item whose outcome can't be written doesn't delay the release: the next holder sends it again
				has[it.stage] = true
			}
		}
		renewal := storage.Renewal{Lease: l.Lease, Epoch: l.epoch, Marks: l.marks(e.late.safeID, e.late.lateAfter, e.engine.routes.print, e.engine.names)}
		renewal.Calm = l.crashes > 0 && time.Since(l.since) > calmAfter && !journals
		switch {
		case !leave && (!l.draining || has[inFlight] || has[inSettle]):
			r.renewals = append(r.renewals, renewal)
		case has[inFlight] || len(l.journaled.batchRefs) > 0: // a message may still be on its way to the sink, so the lane's journal must stay
			r.lapsing = append(r.lapsing, renewal)
		default:
			r.released = append(r.released, renewal)
		}
	}
	return r
}

// renew renews leases, releases lanes, and acquires lanes if the relay has fewer than its share. A relay whose name was set by
// the operator may lose lanes because another relay with the same name has replaced it: that relay has ended the leases, and is
// about to acquire the lanes. So a named relay that has lost lanes acquires no lanes for one renewal interval.
func (r *laneRights) renew(ctx context.Context, members storage.Members, takesPart bool) (renewed bool, err error) {
	name, ttl := r.of.engine.options.Name, r.of.engine.options.Lease
	r.epoch = members.Epoch
	if takesPart {
		r.share = fairShare(members.Relays, name)
	}
	if len(r.renewals) > 0 {
		if r.kept, err = r.of.engine.store.Renew(ctx, name, r.renewals, ttl); err != nil {
			return false, err
		}
	}
	if len(r.released) > 0 {
		err = r.of.engine.store.Release(ctx, name, r.released)
	}
	if r.of.engine.leaser.named && len(r.kept) < len(r.renewals) {
		r.yields = true
	}
	if missing := r.share - len(r.kept); err == nil && missing > 0 && !r.yields {
		r.granted, err = r.of.engine.store.Acquire(ctx, name, missing, ttl)
	}
	return true, err
}

// conclude drops the lanes that were lost or released, adds the acquired ones, and starts to give up lanes beyond the fair share.
func (r *laneRights) conclude(err error) (held, lost int) {
	kept := map[storage.Lease]bool{}
	for _, lease := range r.kept {
		kept[lease] = true
	}
	for _, renewal := range r.renewals {
		l := r.of.held.lanes[renewal.Lane]
		switch {
		case l == nil || l.Lease != renewal.Lease:
		case !kept[renewal.Lease]:
			r.of.dropLane(l)
			lost++
		case renewal.Calm:
			l.crashes = 0
		}
	}
	if lost > 0 {
		if r.of.engine.leaser.named {
			r.of.engine.lease.yieldsUntil = time.Now().Add(r.of.engine.lease.interval)
		}
		r.of.engine.options.Logger.Warn("relay: lost lanes", "relay", r.of.engine.options.Name, "lanes", lost)
	}
	if err == nil || len(r.granted) > 0 { // otherwise the release may have failed, so the relay keeps these lanes until the next renewal releases them
		for _, renewal := range slices.Concat(r.released, r.lapsing) {
			if l := r.of.held.lanes[renewal.Lane]; l != nil && l.Lease == renewal.Lease {
				r.of.dropLane(l)
			}
		}
	}
	if err == nil && len(r.granted) > 0 {
		now := time.Now()
		for _, g := range r.granted {
			if old := r.of.held.lanes[g.Lane]; old != nil {
				r.of.dropLane(old)
			}
			l := newLane(g, r.of.engine.routes.print, r.of.engine.names, now)
			l.seq, l.epoch, l.keysUnknown = r.of.seq, r.epoch, true // the lane's blocked keys are unknown until they have been read from the database
			// The lane is swept before its first read, unless it is read from the beginning.
			r.of.sweep.left = slices.DeleteFunc(r.of.sweep.left, func(p storage.Position) bool { return p.Lane == l.Lane })
			if l.unswept = l.readers.head() > 0; l.unswept {
				r.of.sweep.left = append(r.of.sweep.left, storage.Position{Lane: l.Lane, Until: l.readers.head()})
			}
			r.of.held.lanes[g.Lane], r.of.held.sorted = l, nil
			if r.of.inherit != nil && (g.Crashes > 0 || len(g.Suspects)+len(g.Batches) > 0) {
				r.of.inherit(l, g)
			}
		}
		r.of.engine.poll.fresh, r.of.engine.poll.dueAt, r.of.engine.poll.empty = true, now, 0
		r.of.due.restart()
		r.of.blocked.lanesAskAt, r.of.unroutedAt = now, time.Time{}
	}
	r.of.share = r.share
	lanes := r.of.held.sortedLanes()
	surplus := beyondShare(lanes, r.share)
	for _, renewal := range r.released { // the release failed, or its result is unknown: another relay may have these lanes
		if l := r.of.held.lanes[renewal.Lane]; l != nil && l.Lease == renewal.Lease {
			surplus[l] = true
		}
	}
	for _, l := range lanes {
		if surplus[l] != l.draining {
			r.of.drainLane(l, surplus[l])
		}
	}
	return len(r.of.held.lanes), lost
}

// beyondShare returns the lanes to give up: all void lanes, and as many others as needed to keep at most `share` lanes. It prefers
// lanes that are already being given up. It picks the rest evenly from lanes with many and lanes with few messages, so that a relay
// that has just started gets its share of the messages, too.
func beyondShare(lanes []*lane, share int) map[*lane]bool {
	chosen := map[*lane]bool{}
	var others []*lane
	for _, l := range lanes {
		if l.void || l.draining && len(chosen) < len(lanes)-share {
			chosen[l] = true
		} else {
			others = append(others, l)
		}
	}
	missing, each := len(lanes)-share-len(chosen), len(others)
	if missing <= 0 {
		return chosen
	}
	slices.SortStableFunc(others, func(a, b *lane) int { return b.size() - a.size() })
	for i, l := range others {
		if (i+1)*missing/each > i*missing/each {
			chosen[l] = true
		}
	}
	return chosen
}

// fairShare returns how many lanes a relay gets. If the lanes can't be divided evenly, the relays whose names sort first get one
// lane more than the others.
func fairShare(relays []storage.Member, name string) int {
	n := max(1, len(relays))
	share := storage.Lanes / n
	if slices.IndexFunc(relays, func(m storage.Member) bool { return m.Name == name }) < storage.Lanes%n {
		share++
	}
	return share
}

// dropLane removes a lane and its waiting items. Items in flight still refer to the lane, which is marked as lost. The outcomes
// of these items are written with the lane's old fence.
func (e *byLanes) dropLane(l *lane) {
	for it := range l.items() {
		if it.stage == inQueue {
			e.held.drop(it)
		}
	}
	for i := range l.readers {
		for _, k := range l.readers[i].keys {
			if k.blocked {
				e.blocked.count--
				k.blocked = false
			}
			k.items = nil
		}
	}
	l.lost = true
	l.journaled = journaled{}
	e.held.sorted = nil
	delete(e.held.lanes, l.Lane)
}

// lookEverywhere requests an immediate sweep, unless one is in progress. The drain can end only after that sweep.
func (e *byLanes) lookEverywhere() {
	if len(e.sweep.left) == 0 {
		e.sweep.clean, e.sweep.next = time.Time{}, time.Time{}
	}
}

// ownLanes returns the lanes that the relay holds.
func (e *byLanes) ownLanes() map[int]bool {
	own := map[int]bool{}
	for number := range e.held.lanes {
		own[number] = true
	}
	return own
}

// abandon drops the lanes of a stuck call's messages. The relay doesn't renew the leases of these lanes, so other relays may
// acquire the lanes when the leases expire.
func (e *byLanes) abandon(f *flight) {
	for _, it := range f.items {
		if l := it.lane; e.held.lanes[l.Lane] == l {
			e.dropLane(l)
		}
	}
}

// drainLane starts to give up a lane. If the parameter `draining` is false, the relay keeps the lane after all. drainLane drops
// the waiting items of a lane that is given up; the lane's next holder reads their rows.
func (e *byLanes) drainLane(l *lane, draining bool) {
	l.draining = draining
	if !draining {
		e.engine.poll.fresh = true
		e.due.restart()
		return
	}
	for it := range l.items() {
		if it.stage == inQueue {
			e.giveUp(it)
		}
	}
	e.engine.lease.next = time.Time{}
}
