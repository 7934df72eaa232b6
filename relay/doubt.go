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
		if t.Crashes >= maxCrashes || t.Size == 1 && len(t.IDs) == 1 && e.care.suspects[t.IDs[0]].crashes >= maxCrashes {
			e.giveUpTicket(l, t)
			continue
		}
		batch := e.outlets[at].doubted(t)
		batch.crashes = max(batch.crashes, t.Crashes)
		e.doubt(e.outlets[at], batch)
		for i := range min(len(t.IDs), len(t.Places)) {
			l.tickets[t.IDs[i]] = &ticket{batch: batch, place: t.Places[i]}
		}
	}
}

// giveUpTicket lets go of a batch that has cost several relays their lives: its
// messages are sent one by one, to find the one that does it.
func (e *engine) giveUpTicket(l *lane, t Ticket) {
	e.options.Logger.Warn("relay: messages may be delivered twice: relays died while they sent them again, so each is sent alone",
		"relay", e.options.Name, "sink", t.Sink, "messages", len(t.IDs), "relays", t.Crashes)
	for _, id := range t.IDs {
		if _, known := e.care.suspects[id]; !known {
			e.care.suspects[id] = suspicion{lane: l.Lane}
		}
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

// startDoubts asks the sink about what is in doubt, and writes down that it does:
// it may be the end of this relay.
func (e *engine) startDoubts(o *outlet, now time.Time) {
	o.doubts = slices.DeleteFunc(o.doubts, func(b *exactBatch) bool { return !e.anyOf(b) })
	if o.busy > 0 || len(o.doubts) == 0 || e.care.writing {
		return
	}
	doubts := e.nextDoubts(o, now)
	for _, b := range doubts {
		b.trying = true
	}
	if len(doubts) > 0 {
		e.care.writing = true
		j := job{doubts: doubts, journals: e.journals(e.careful(now))}
		e.keepSuspects(j.journals)
		e.give(o, j)
	}
}

// nextDoubts chooses what is sent again at once: everything; or, while the relay
// is careful, one batch, and if it has one message only, nothing beside it.
func (e *engine) nextDoubts(o *outlet, now time.Time) []*exactBatch {
	if !e.careful(now) {
		return slices.Clone(o.doubts)
	}
	if e.care.waiting != nil && e.care.waiting != o {
		return nil
	}
	batch := slices.MinFunc(o.doubts, func(a, b *exactBatch) int { return a.crashes - b.crashes })
	if batch.size == 1 {
		if e.care.waiting = o; e.anySending() {
			return nil
		}
	}
	return []*exactBatch{batch}
}

func (e *engine) trying(name string) bool {
	return slices.ContainsFunc(e.outlets, func(o *outlet) bool {
		return slices.ContainsFunc(o.doubts, func(b *exactBatch) bool { return b.name == name && b.trying })
	})
}

// keepSuspects has the suspects among what is in doubt stay what they are. One
// that is sent again, and has its batch for itself, is alone.
func (e *engine) keepSuspects(journals []Journal) {
	for i, j := range journals {
		for _, t := range j.Tickets {
			for _, id := range t.IDs {
				if s, suspected := e.care.suspects[id]; suspected {
					journals[i].Suspects = append(journals[i].Suspects, Suspect{ID: id, Crashes: s.crashes, Alone: t.Size == 1 && e.trying(t.Batch)})
				}
			}
		}
	}
}

// startSaying writes down that nothing is being sent again any more, for it is
// not the end of this relay, and a sink that is down stays so for long.
func (e *engine) startSaying(o *outlet, now time.Time) {
	if o.busy == 0 && !e.care.writing {
		o.unsaid, e.care.writing = false, true
		e.give(o, job{journals: e.journals(e.careful(now))})
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
	for _, b := range result.job.doubts {
		b.trying = false
	}
	if e.care.waiting == o {
		e.care.waiting = nil
	}
	if result.notSent != nil {
		e.notWritten(result)
		return
	}
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
		for id, t := range l.tickets {
			if slices.Contains(result.job.doubts, t.batch) && e.decide(l, id, t, result.fates) {
				open[t.batch] = true
			}
		}
	}
	o.doubts = slices.DeleteFunc(o.doubts, func(b *exactBatch) bool {
		b.inDoubt = open[b] || !slices.Contains(result.job.doubts, b)
		return !b.inDoubt
	})
	o.unsaid = len(open) > 0
}

// said is over with a journal that was written for its own sake.
func (e *engine) said(result sendResult) {
	if result.notSent != nil {
		e.notWritten(result)
		result.outlet.unsaid = true
	}
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
func (e *engine) decide(l *lane, id int64, t *ticket, known fates) (open bool) {
	fate, there := known[RowID{l.Lane, id}]
	switch {
	case there && sinks.IsOpen(fate):
		return true
	case there && fate.Result == sinks.Delivered:
		t.fate = &fate
		if it := l.known[id]; it != nil && it.stage == inQueue {
			e.wasDelivered(it)
		}
	default:
		delete(l.tickets, id)
	}
	return false
}

// wasDelivered marks an item done that the sink has from before.
func (e *engine) wasDelivered(it *item) {
	if it.key != nil {
		it.key.remove(it)
	}
	e.delivered(it, *it.lane.tickets[it.row.ID].fate, false)
	e.goOn(it.key)
}
