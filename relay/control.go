package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Controls are the pauses and limits that operators have set. They are stored in the database, and each relay reads them about
// once a second. The relay treats a paused sink like a sink with an open breaker: the sink's rows fill its buffer, and further rows
// wait in the table. Rows of a paused topic or key are not kept in memory. For each lane, the relay remembers the position before
// the first such row, and reads from there when the pause ends. What must hold: if a row of a paused topic waits, the later rows
// of its key wait, too.

// heard applies the controls that the controller has read.
func (e *engine) heard(inForce []storage.Control) {
	if len(inForce)+len(e.control.inForce) > 0 {
		e.obey(inForce)
	}
	e.control.heard = true
}

// obey applies controls and logs the changes.
func (e *engine) obey(inForce []storage.Control) {
	for _, c := range inForce {
		if !slices.ContainsFunc(e.control.inForce, func(old storage.Control) bool { return old.Kind == c.Kind && old.Name == c.Name && old.Rate == c.Rate }) {
			e.options.Logger.Info("relay: an operator's control is in force", "relay", e.options.Name, "kind", string(c.Kind), "name", c.Name, "by", c.By)
			if (c.Kind == storage.PauseSink || c.Kind == storage.LimitSink) && !slices.Contains(e.routes.names, c.Name) {
				e.options.Logger.Warn("relay: an operator's control names a sink that this relay does not have", "relay", e.options.Name, "sink", c.Name, "sinks", e.routes.names)
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
		if q.breaker.state == breakerTripped && paused[q.name] { // the stored pause replaces the breaker's own
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
