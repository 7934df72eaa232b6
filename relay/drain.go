package relay

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// countLook counts the looks in a row that found nothing new.
func (e *engine) countLook(empty bool) {
	if empty {
		e.read.looks++
		return
	}
	e.read.looks = 0
	e.read.news++
	e.read.reclaims = e.pulse.reclaims.Load()
}

// checkDrained ends a drain once nothing is left that could be delivered now.
func (e *engine) checkDrained() {
	if !e.options.Drain || e.stopping.begun || !e.drained() {
		return
	}
	e.stopping.err = e.unroutedLeft()
	e.beginStop(time.Now())
}

// drained says that two looks in a row found nothing, that nothing is in
// memory or was passed over, and that the relay holds all the lanes that are
// its part: those of a relay that died are waited for.
func (e *engine) drained() bool {
	if e.read.looks < 2 || !e.read.noDue || !e.quiet() || e.anyDropped() {
		return false
	}
	if e.options.Claim == ByRows {
		return e.rowsDrained()
	}
	if e.lease.share < 0 || len(e.lanes) != e.lease.share || e.anyDraining() {
		return false
	}
	if e.sweptClean() {
		return true
	}
	e.startRead(time.Now()) // the sweep waits for no poll
	return false
}

// rowsDrained says that since the last row came nothing could be freed or
// brought back, and that no dead relay has claimed anything.
func (e *engine) rowsDrained() bool {
	return e.pulse.reclaims.Load() > e.read.reclaims && e.pulse.freed.Load() == 0 && (e.lease.claimed == 0 || !e.lease.alone)
}

func (e *engine) anyDraining() bool {
	for _, l := range e.lanes {
		if l.draining {
			return true
		}
	}
	return false
}

// anyDropped says that rows were left behind which will be read again: all but
// those that are known to have no route, and those of a key whose next attempt is still to come.
func (e *engine) anyDropped() bool {
	for _, o := range e.outlets {
		if o.buffered > 0 {
			return true
		}
	}
	for _, l := range e.lanes {
		for i, lag := range l.lag {
			if lag != none && (e.outlets[i].options.Sink != nil || !l.alarmed) {
				return true
			}
		}
		if l.recheck != none {
			return true
		}
	}
	return len(e.read.behind) > 0
}

// unroutedLeft is the error of a drain that had to leave messages behind.
func (e *engine) unroutedLeft() error {
	topics := make([]string, 0, len(e.unrouted))
	for topic := range e.unrouted {
		topics = append(topics, topic)
	}
	if len(topics) == 0 {
		return nil
	}
	slices.Sort(topics)
	if len(topics) > 10 {
		topics = append(topics[:10], "…")
	}
	return fmt.Errorf("drained, but messages without a route are left (topics: %s); add a route", strings.Join(topics, ", "))
}
