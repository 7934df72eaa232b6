package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// The right to send. A renewal goes out in time to the leaser, as rights to lanes or to
// claimed rows, with the lanes' marks; what was kept, lost and won comes back. What must
// hold: nothing is sent after safeUntil, which is counted from before the renewal was asked
// for; and a lane is released when nothing of it is in flight or unsettled. At the end of a run
// the rights are given back.

// leasing is what the engine knows of its right to lanes, or to claimed rows.
type leasing struct {
	busy        bool
	next        time.Time     // the next renewal
	interval    time.Duration // from one to the next: 2 s at most, to notice relays that came or went
	safeUntil   time.Time     // nothing is sent after this, by the relay's own clock
	ended       bool          // the sends were cancelled because of it
	downUntil   time.Time     // it leaves its lanes to others, as it can't read
	yieldsUntil time.Time     // until then it acquires no lanes: another relay with its name may be about to
	relays      int           // that take part or are about to, and this one
	failures    int
	waits       bool // for the end of relays that have another setup: it takes no part
}

// rights are what a relay has when a renewal begins: leases of lanes, or claims of rows.
type rights interface {
	// renew keeps the rights, gives back those that were given up, and, if the relay takes
	// part, acquires what its share lacks. Without members the relay leaves, and keeps none.
	// The leaser calls it.
	renew(ctx context.Context, members storage.Members, takesPart bool) (renewed bool, err error)

	// conclude takes note of what renew has done, and says how many lanes the relay holds
	// now, and how many it has lost. The loop calls it.
	conclude(err error) (held, lost int)
}

// leaseJob asks for a sign of life and for longer rights, or, where the relay stops,
// for the end of both.
type leaseJob struct {
	rights     rights
	leave      bool
	standsDown bool // the relay is not to be counted, if there are others

	began   time.Time
	heard   time.Time       // when the members were; zero if they weren't
	members storage.Members // those that take part, and this one
	waits   string          // why this one doesn't
	renewed bool
	err     error
}

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
	e.leases <- leaseJob{rights: e.claiming.rights(leave), leave: leave, standsDown: allStuck || e.control.standsDown || failing != 0 && e.readsInVain(now, failing)}
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

// leaser carries out one lease job after the other, as much of each as it can.
func (e *engine) leaser(ctx context.Context) {
	self := storage.Identity{Name: e.options.Name, Host: e.process.host, Version: e.options.Version, Claim: e.options.Claim, Setup: e.setup}
	part := participation{engine: e, self: self, takes: e.options.Join}
	predecessor := e.named // a relay of the same name may have run before: what it holds is ended first
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-e.leases:
			job.began = time.Now()
			bounded, cancel := context.WithTimeout(ctx, e.callTimeout)
			if predecessor {
				job.err = e.store.Bury(bounded, e.options.Name, e.options.Claim)
				predecessor = job.err != nil
			}
			if predecessor {
				// Bury failed. The next job tries it again, before the first heartbeat.
			} else if job.leave {
				if _, job.err = job.rights.renew(bounded, storage.Members{}, false); job.err == nil {
					job.err = e.store.Deregister(bounded, e.options.Name)
				}
			} else if job.members, job.waits, job.err = part.beat(bounded, job.standsDown); job.err == nil {
				job.heard = time.Now()
				takesPart := job.waits == "" && (!job.standsDown || len(job.members.Relays) == 1)
				job.renewed, job.err = job.rights.renew(bounded, job.members, takesPart)
			}
			cancel()
			e.reached("lease", job.began, job.err)
			e.results <- func() { e.afterLease(job) }
		}
	}
}

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
	for topic := range e.unrouted {
		e.alarmUnrouted(topic)
	}
}

// laneRights are the lanes that a relay holds, as they are when a renewal begins, and
// what becomes of them.
type laneRights struct {
	*byLanes
	renewals []storage.Renewal // to keep
	released []storage.Renewal // to give back
	lapsing  []storage.Renewal // not released, which would clear their journals: their leases run out

	epoch   string
	share   int
	yields  bool // takes no lanes
	kept    []storage.Lease
	granted []storage.Grant
}

func (e *byLanes) rights(leave bool) rights {
	r := &laneRights{byLanes: e, yields: time.Now().Before(e.lease.yieldsUntil)}
	journals := e.duplicates != nil || time.Now().Before(e.journalAll) // what is sent is written down before
	for _, l := range e.sortedLanes() {
		var has [dropped + 1]bool // items of each stage
		for it := range l.items() {
			has[it.stage] = true
		}
		renewal := storage.Renewal{Lease: l.Lease, Epoch: l.epoch, Marks: l.marks(lowestSet(e.late.safeID, e.late.lateAfter), e.routes.print, e.names)}
		renewal.Calm = l.crashes > 0 && time.Since(l.since) > calmAfter && !journals
		switch {
		case !leave && (!l.draining || has[inFlight] || has[inSettle]):
			r.renewals = append(r.renewals, renewal)
		case has[inFlight] || e.duplicates != nil && e.duplicates.keepsJournal(l): // it may still be sent
			r.lapsing = append(r.lapsing, renewal)
		default:
			r.released = append(r.released, renewal)
		}
	}
	return r
}

// renew renews leases, releases lanes, and acquires what the relay's share lacks. A relay that its operator has named,
// and that has lost lanes, acquires none for a while. Another relay may have been started in its place, with the same
// name: it has ended these leases, and is about to acquire the lanes.
func (r *laneRights) renew(ctx context.Context, members storage.Members, takesPart bool) (renewed bool, err error) {
	name, ttl := r.options.Name, r.options.Lease
	r.epoch = members.Epoch
	if takesPart {
		r.share = fairShare(members.Relays, name)
	}
	if len(r.renewals) > 0 {
		if r.kept, err = r.store.Renew(ctx, name, r.renewals, ttl); err != nil {
			return false, err
		}
	}
	if len(r.released) > 0 {
		err = r.store.Release(ctx, name, r.released)
	}
	if r.named && len(r.kept) < len(r.renewals) {
		r.yields = true
	}
	if missing := r.share - len(r.kept); err == nil && missing > 0 && !r.yields {
		r.granted, err = r.store.Acquire(ctx, name, missing, ttl)
	}
	return true, err
}

// conclude forgets what was lost or given back, begins with what is new, and gives up what
// is beyond the fair share.
func (r *laneRights) conclude(err error) (held, lost int) {
	kept := map[storage.Lease]bool{}
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
		if r.named {
			r.lease.yieldsUntil = time.Now().Add(r.lease.interval)
		}
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
		now := time.Now()
		for _, g := range r.granted {
			if old := r.lanes[g.Lane]; old != nil {
				r.dropLane(old)
			}
			l := newLane(g, r.routes.print, r.names, now)
			l.seq, l.epoch, l.keysUnknown = r.seq, r.epoch, true // which keys wait for another attempt is for the database to tell
			// It is swept before it is first read, unless that is from its beginning.
			r.sweep.left = slices.DeleteFunc(r.sweep.left, func(p storage.Position) bool { return p.Lane == l.Lane })
			if l.unswept = l.cursor > 0; l.unswept {
				r.sweep.left = append(r.sweep.left, storage.Position{Lane: l.Lane, Until: l.cursor})
			}
			r.lanes[g.Lane], r.sorted = l, nil
			if r.inherit != nil && (g.Crashes > 0 || len(g.Suspects)+len(g.Batches) > 0) {
				r.inherit(l, g)
			}
		}
		r.poll.fresh, r.poll.dueAt, r.poll.empty = true, now, 0
		r.due.restart()
		r.lanesAskAt, r.unroutedAt = now, time.Time{}
	}
	r.byLanes.share = r.share
	lanes := r.sortedLanes()
	surplus := beyondShare(lanes, r.share)
	for _, l := range lanes {
		if surplus[l] != l.draining {
			r.drainLane(l, surplus[l])
		}
	}
	return len(r.lanes), lost
}

// beyondShare are the lanes to give up; they are released when nothing of them is under way any
// more. What is being given up stays chosen. The others come from full and empty lanes alike, so
// that a relay that comes to help gets its part of the work. What is void always goes.
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

// fairShare is the number of lanes of a relay among others: all get the same,
// and the first ones by name one of those that are left over.
func fairShare(relays []storage.Member, name string) int {
	n := max(1, len(relays))
	share := storage.Lanes / n
	if slices.IndexFunc(relays, func(m storage.Member) bool { return m.Name == name }) < storage.Lanes%n {
		share++
	}
	return share
}

// dropLane forgets a lane and all that waits in it. What is under way comes
// back to a lane that is no more, and its outcome is fenced.
func (e *byLanes) dropLane(l *lane) {
	for it := range l.items() {
		if it.stage == inQueue {
			e.drop(it)
		}
	}
	for _, k := range l.keys {
		if k.blocked {
			e.count--
			k.blocked = false
		}
		k.items = nil
	}
	l.lost = true
	for _, g := range e.guards {
		g.lost(l)
	}
	e.sorted = nil
	delete(e.lanes, l.Lane)
}

// lookEverywhere has the drain end only after another sweep, which begins now.
func (e *byLanes) lookEverywhere() {
	if len(e.sweep.left) == 0 {
		e.sweep.clean, e.sweep.next = time.Time{}, time.Time{}
	}
}

// ownLanes are the lanes that the relay holds.
func (e *byLanes) ownLanes() map[int]bool {
	own := map[int]bool{}
	for number := range e.lanes {
		own[number] = true
	}
	return own
}

// abandon forgets the lanes of a send that doesn't return. Their leases aren't renewed and run out, and then any relay
// may acquire the lanes.
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
		e.due.restart()
		return
	}
	for it := range l.items() {
		if it.stage == inQueue {
			e.giveUp(it)
		}
	}
	e.lease.next = time.Time{}
}

// The end of a run. Nothing more is read or sent, what is in flight is waited for (up to a
// deadline), settled, and the rights are given back. A drain ends so by itself.

// stop is how far the engine has come with stopping.
type stop struct {
	begun    bool
	ready    bool // nothing is under way: the relay may leave
	left     bool // the leaser has taken the relay out of its table
	leaveErr error
	aborted  bool // sends were cancelled; the deadline is for settling now
	deadline time.Time
	tellAt   time.Time // when the log is told what is waited for; zero once it was
	gaveUp   bool      // that deadline has passed, too
	err      error
}

// abortGrace is how long sends and settlements may take after they were told
// to end.
const abortGrace = 5 * time.Second

// stopTellAfter is how long a stop takes until the log says what it waits for.
const stopTellAfter = time.Second

// beginStop reads and sends no more, and waits for what is under way.
func (e *engine) beginStop(now time.Time) {
	if e.stopping.begun {
		return
	}
	e.stopping.begun, e.settle.joiner.patience = true, 0
	e.stopping.deadline, e.stopping.tellAt = now.Add(e.options.DrainTimeout), now.Add(stopTellAfter)
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
	unsettled, sending, buffered, allPaused := e.settle.count(), 0, 0, true
	for _, q := range e.queues {
		sending += len(q.flights)
		if !q.paused {
			buffered += q.buffered
			allPaused = allPaused && q.options.Sink == nil
		}
	}
	quiet := sending == 0 && (unsettled == 0 || e.settle.hopeless()) && e.poll.under == 0 && !e.settle.unwritable.trying
	switch {
	case e.options.Drain && !s.begun && quiet && e.settle.unwritable.refusal != nil:
		e.beginStop(now)
	case !e.options.Drain || s.begun || !quiet || e.drain.busy || now.Before(e.drain.next):
	case buffered > 0 && e.poll.empty >= 2 && e.leftAlone(now) != nil && e.claiming.drained():
		s.err = e.leftAlone(now)
		e.beginStop(now)
		return false, nil // what is given back now has to be written
	case allPaused && e.lease.relays > 0 || e.poll.empty >= 2 && buffered == 0 && e.claiming.drained():
		// Either all sinks are paused; or two looks in a row found nothing, nothing that may be sent is in memory, and
		// the table has nothing else that could be delivered now. The survey shows what is left all the same.
		if len(e.settle.unwritable.items) > 0 { // these are due in the table, and the drain fails for them
			e.beginStop(now)
			break
		}
		if e.drain.last == nil {
			e.beginSurvey(allPaused)
			break
		}
		for topic := range e.unrouted {
			e.drain.last.unrouted[topic] = true
		}
		s.err = e.drain.last.drained()
		e.beginStop(now)
	case buffered == 0 && e.poll.empty < 2: // it doesn't wait for the poll's time
		e.drain.last = nil
		e.poll.fresh = true
		e.claiming.startRead(now)
	}
	if !s.begun {
		return false, nil
	}
	if !s.tellAt.IsZero() && !now.Before(s.tellAt) {
		s.tellAt = time.Time{}
		if !quiet && !s.aborted {
			e.logStopping(now, unsettled)
		}
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
		if unsettled += len(e.settle.unwritable.items); sending > 0 || unsettled > 0 {
			text := fmt.Sprintf("stop the relay: %d sends were still under way and %d outcomes not written back; these messages will be sent again", sending, unsettled)
			if e.settle.unwritable.refusal != nil {
				problems = append(problems, fmt.Errorf("%s: %w", text, e.settle.unwritable.refusal))
			} else {
				problems = append(problems, errors.New(text))
			}
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
