package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// doubt has a batch sent again before anything else.
func (e *engine) doubt(o *outlet, b *exactBatch) {
	if !b.inDoubt {
		b.inDoubt = true
		o.doubts = append(o.doubts, b)
	}
}

// inherit takes over the tickets of a lane that was granted.
func (e *engine) inherit(l *lane, tickets []Ticket) {
	for _, t := range tickets {
		at := slices.IndexFunc(e.outlets, func(o *outlet) bool { return o.name == t.Sink && o.exact != nil })
		if at < 0 {
			e.options.Logger.Warn("relay: messages may be delivered twice: a relay that died was sending them to a sink that is no longer there, or not as it was",
				"relay", e.options.Name, "sink", t.Sink, "messages", len(t.IDs))
			continue
		}
		batch := e.outlets[at].doubted(t)
		e.doubt(e.outlets[at], batch)
		t.each(l.Lane, func(ref rowRef, place int) { l.tickets[ref] = &ticket{batch: batch, place: place} })
	}
}

// doubted returns the batch of this name, which may be in doubt already.
func (o *outlet) doubted(t Ticket) *exactBatch {
	for _, b := range o.doubts {
		if b.name == t.Batch {
			return b
		}
	}
	return &exactBatch{sink: o.name, name: t.Batch, size: t.Size}
}

// startDoubts asks the sink about what is in doubt.
func (e *engine) startDoubts(o *outlet) {
	o.doubts = slices.DeleteFunc(o.doubts, func(b *exactBatch) bool { return !e.anyOf(b) })
	if o.busy == 0 && len(o.doubts) > 0 {
		e.give(o, job{doubts: slices.Clone(o.doubts)})
	}
}

// anyOf says that some lane has a row of the batch.
func (e *engine) anyOf(b *exactBatch) bool {
	for _, l := range e.lanes {
		for _, t := range l.tickets {
			if t.batch == b {
				return true
			}
		}
	}
	return false
}

// afterDoubts ends the tickets whose rows are gone or were never delivered, and
// marks those done that the sink has.
func (e *engine) afterDoubts(result sendResult) {
	o := result.outlet
	if result.resolveErr != nil {
		e.failed("journal", result.resolveErr)
		o.pauseUntil = time.Now().Add(settlePause.Min)
		return
	}
	if len(result.outcomes) > 0 {
		e.observeSent(o, result.took, result.outcomes)
		e.judgeDoubts(o, result)
	}
	open := map[*exactBatch]bool{}
	for _, l := range e.sortedLanes() {
		for ref, t := range l.tickets {
			if slices.Contains(result.job.doubts, t.batch) && e.decide(l, ref, t, result.fates) {
				open[t.batch] = true
			}
		}
	}
	o.doubts = slices.DeleteFunc(o.doubts, func(b *exactBatch) bool {
		b.inDoubt = open[b] || !slices.Contains(result.job.doubts, b)
		return !b.inDoubt
	})
}

// judgeDoubts judges the sink by what it said, except that a batch which it
// turned down says nothing against it.
func (e *engine) judgeDoubts(o *outlet, result sendResult) {
	var said []sinks.Outcome
	for _, outcome := range result.outcomes {
		if sinks.IsOpen(outcome) {
			outcome = uncharged(outcome)
		}
		if outcome.Result != sinks.Unsent {
			said = append(said, outcome)
		}
	}
	e.judgeCircuit(o, said, len(said) == 0 || result.job.ctx.Err() != nil)
}

// decide ends a ticket by the fate of its row, unless that is open.
func (e *engine) decide(l *lane, ref rowRef, t *ticket, known fates) (open bool) {
	fate, there := known[ref]
	switch {
	case there && sinks.IsOpen(fate):
		return true
	case there && fate.Result == sinks.Delivered:
		t.fate = &fate
		if it := l.known[ref.id]; it != nil && it.row.ref() == ref && it.stage == inQueue {
			e.wasDelivered(it)
		}
	default:
		delete(l.tickets, ref)
	}
	return false
}

// wasDelivered marks an item done that the sink has from before.
func (e *engine) wasDelivered(it *item) {
	if it.key != nil {
		it.key.remove(it)
	}
	e.delivered(it, *it.ticket().fate, false)
	e.goOn(it.key)
}
