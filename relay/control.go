package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// What operators have put in force, which is stored with the table and asked for about once a
// second. A sink that is paused is one that isn't there, as one whose breaker is open: its rows
// fill its buffer, and then are skipped. The rows of a paused topic or key don't come into
// memory: their lane keeps the place of the first one, and goes on from there when the pause
// ends. What must hold: what follows a row of a paused topic in its key waits, too.

// heard takes in what is in force.
func (e *engine) heard(inForce []storage.Control) {
	if len(inForce)+len(e.control.inForce) > 0 {
		e.obey(inForce)
	}
	e.control.heard = true
}

// obey has what is in force now hold, where that is something, or was.
func (e *engine) obey(inForce []storage.Control) {
	for _, c := range inForce {
		if !slices.ContainsFunc(e.control.inForce, func(old storage.Control) bool { return old.Kind == c.Kind && old.Name == c.Name && old.Rate == c.Rate }) {
			e.options.Logger.Info("relay: an operator's control is in force", "relay", e.options.Name, "kind", string(c.Kind), "name", c.Name, "by", c.By)
			if (c.Kind == storage.PauseSink || c.Kind == storage.LimitSink) && !slices.Contains(e.routes.names, c.Name) {
				e.options.Logger.Warn("relay: this relay has no such sink", "relay", e.options.Name, "sink", c.Name, "sinks", e.routes.names)
			}
		}
	}
	for _, old := range e.control.inForce {
		if !slices.ContainsFunc(inForce, func(c storage.Control) bool { return old.Kind == c.Kind && old.Name == c.Name }) {
			e.options.Logger.Info("relay: an operator's control has ended", "relay", e.options.Name, "kind", string(old.Kind), "name", old.Name)
		}
	}
	of := func(kind storage.ControlKind) map[string]bool {
		names := map[string]bool{}
		for _, c := range inForce {
			if c.Kind == kind {
				names[c.Name] = true
			}
		}
		return names
	}
	now := time.Now()
	was := e.control
	e.control = control{inForce: inForce, standsDown: of(storage.PauseRelay)[e.options.Name]}
	if p := (pauses{of(storage.PauseTopic), of(storage.PauseKey)}); len(p.topics)+len(p.keys) > 0 {
		e.control.pauses = &p
	}
	paused := of(storage.PauseSink)
	for _, q := range e.queues {
		if q.breaker.state == breakerTripped && paused[q.name] { // its control is in force, and holds from now on
			e.report(q, q.breaker.close())
		}
		wasPaused := q.paused
		if q.paused = paused[q.name] || q.breaker.state == breakerTripped; wasPaused && !q.paused {
			q.breaker.resumed(now)
		}
		rate := 0
		for _, c := range inForce {
			if c.Kind == storage.LimitSink && c.Name == q.name {
				rate = c.Rate
			}
		}
		if rate != q.rate {
			q.limit(rate)
		}
	}
	if e.control.standsDown != was.standsDown {
		e.lease.next = now
	}
	e.poll.fresh, e.poll.dueAt = true, now
	e.claiming.controlled(was.pauses)
}

// controlled passes over what waits in memory and is paused now. Where a pause of a topic or a key has ended, it begins anew
// from the places that lanes have kept. Otherwise these places and the lanes' sets of keys stay: to read a backlog of
// paused messages again would hold up all other messages.
func (e *byLanes) controlled(was *pauses) {
	e.due.restart()
	if was.equal(e.control.pauses) {
		return
	}
	ended := !was.within(e.control.pauses)
	for _, l := range e.sortedLanes() {
		before := l.passed
		l.passed = nil
		if ended {
			for i := range l.readers {
				l.readers[i].closeGap()
			}
			e.rewound = true
			before = nil
		}
		if e.control.pauses == nil {
			continue
		}
		// In the order of ids: what comes before the first row that is passed over stays. So the set of keys has at first only
		// those that are passed over here.
		var passed []*item
		for _, it := range slices.SortedFunc(l.items(), func(a, b *item) int { return int(a.row.ID - b.row.ID) }) {
			if it.stage == inQueue {
				if e.passOver(it); it.stage == dropped && it.key != nil && !it.row.Deferred {
					passed = append(passed, it)
				}
			}
		}
		if before == nil {
			continue
		}
		for _, it := range passed {
			before.add(it.slot, it.row.Message.Key)
		}
		l.passed = before
	}
}

// paused says whether the row waits for the end of a pause, or behind one that does. A retry
// goes before what follows in its key, and what an operator wants of a parked row is done.
func (e *byLanes) paused(l *lane, queue int, row *storage.Row) bool {
	if row.Holds != storage.NoHold {
		return false
	}
	passed := l.passed
	if row.Retrying {
		passed = nil
	}
	return e.control.pauses.cover(row.Message.Topic, row.Message.Key, queue, passed)
}

// returned passes over what was to be sent again, and is paused meanwhile, with what waits
// behind it in its key.
func (e *byLanes) returned(f *flight) {
	for _, it := range f.items {
		e.passOver(it)
		if k := it.key; k != nil && it.stage == dropped {
			for _, next := range slices.Clone(k.items) {
				e.passOver(next)
			}
		}
	}
}

// passOver drops an item that waits and is paused.
func (e *byLanes) passOver(it *item) {
	l := it.lane
	if it.stage != inQueue || l.lost || !e.paused(l, it.slot, &it.row) {
		return
	}
	if !it.row.Deferred { // which is found by its time
		l.readers[it.slot].leaveOut(it.row.ID)
		e.notePassed(l, it.slot, &it.row)
	}
	if it.key != nil {
		it.key.remove(it)
	}
	e.drop(it)
	l.forget(it.key)
}

// notePassed remembers that what follows a paused row in its key waits, too.
func (e *byLanes) notePassed(l *lane, queue int, row *storage.Row) {
	if row.Message.Key == "" || len(e.control.pauses.topics) == 0 {
		return
	}
	if l.passed == nil {
		l.passed = newKeySet()
	}
	l.passed.add(queue, row.Message.Key)
}
