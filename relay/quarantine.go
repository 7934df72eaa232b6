package relay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// care finds a message that brings its relays down. While a lane that was not
// released is new, the relay writes down what it is about to send, one batch a
// sink. What was being sent when a relay died is a suspect, and is sent alone.
// A message that was alone, and nothing else under way, at maxCrashes deaths is
// parked. A relay that is killed for other reasons parks no message by it.
type care struct {
	until    time.Time // journals are written until then
	suspects map[rowRef]suspicion
	writing  bool // a journal is being written; the next one is newer

	// waiting has a suspect to send. Until it is sent nothing else is, so that
	// it is alone; this lasts as long as the relay is careful, and no longer.
	waiting *outlet
}

type suspicion struct{ crashes int }

const (
	// maxCrashes is how often a message may be alone with a relay that dies.
	maxCrashes = 5

	// calmAfter is how long a relay is careful with a lane that came from a
	// dead one.
	calmAfter = time.Minute
)

// careful says that what is sent has to be written down before.
func (e *engine) careful(now time.Time) bool { return e.journaler != nil && now.Before(e.care.until) }

// suspect takes note of how a lane was left.
func (e *engine) suspect(g Grant, now time.Time) {
	if g.Crashes > 0 {
		e.care.until = now.Add(calmAfter)
	}
	for _, s := range g.Suspects {
		crashes := s.Crashes
		if s.Alone {
			crashes++
		}
		e.care.suspects[rowRef{g.Lane, s.ID, s.Check}] = suspicion{crashes}
	}
}

// clearSuspects forgets the suspects of a lane that was lost.
func (e *engine) clearSuspects(lane int) {
	maps.DeleteFunc(e.care.suspects, func(ref rowRef, _ suspicion) bool { return ref.lane == lane })
}

// suspicionOf returns what is suspected of an item.
func (e *engine) suspicionOf(it *item) (s suspicion, suspected bool) {
	if len(e.care.suspects) > 0 {
		s, suspected = e.care.suspects[it.row.ref()]
	}
	return s, suspected
}

// unsuspect ends that.
func (e *engine) unsuspect(it *item) {
	if len(e.care.suspects) > 0 {
		delete(e.care.suspects, it.row.ref())
	}
}

// unsendable says why an item must be parked rather than sent.
func (e *engine) unsendable(it *item) (why sinks.Outcome, bad bool) {
	if it.row.BadHeaders != "" {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, it.row.BadHeaders), true
	}
	s, suspected := e.suspicionOf(it)
	if !suspected {
		return why, false
	}
	it.row.Crashes = max(it.row.Crashes, s.crashes)
	if s.crashes < maxCrashes {
		return why, false
	}
	e.unsuspect(it)
	return sinks.Fail(sinks.Reject, sinks.ReasonCrash, fmt.Sprintf("%d relays in a row died while they were sending this message and nothing else", s.crashes)), true
}

// startCarefully sends one batch, once it is written down.
func (e *engine) startCarefully(o *outlet) {
	if o.busy > 0 || e.care.writing || o.queue.empty() || (e.care.waiting != nil && e.care.waiting != o) {
		return
	}
	batch := e.takeBatch(o)
	batch, rest := e.alone(batch)
	e.putBackLaunched(o, rest)
	if len(batch) == 0 {
		return
	}
	if _, suspected := e.suspicionOf(batch[0]); suspected {
		e.care.waiting = o
		if e.anySending() {
			e.putBackLaunched(o, batch)
			return
		}
	}
	e.care.writing = true
	j := job{batch: batch, journals: e.journals()}
	if o.exact != nil {
		j.plan = &plan{}
	}
	e.give(o, j)
}

func (e *engine) anySending() bool {
	return slices.ContainsFunc(e.outlets, func(o *outlet) bool { return o.busy > 0 && o.circuit.state != circuitOpening })
}

// stopWaiting lets other outlets send again: the suspect was sent, or its sink
// is not there, or the relay is no longer careful.
func (e *engine) stopWaiting(now time.Time) {
	if o := e.care.waiting; o != nil && (o.circuit.state != circuitUp || o.queue.empty() && o.busy == 0 || !e.careful(now)) {
		e.care.waiting = nil
	}
}

// alone keeps of a batch what may be sent together: one suspect, or those
// before the first suspect.
func (e *engine) alone(batch []*item) (first, rest []*item) {
	for i, it := range batch {
		if _, suspected := e.suspicionOf(it); suspected {
			n := max(1, i)
			return batch[:n:n], batch[n:]
		}
	}
	return batch, nil
}

// putBackLaunched takes items back that were not handed to a worker after all.
func (e *engine) putBackLaunched(o *outlet, items []*item) {
	for _, it := range items {
		if it.key != nil {
			it.key.flying--
		}
	}
	e.takeBack(o, items)
}

// journals lists the tickets that hold, and all that is under way.
func (e *engine) journals() []Journal {
	var journals []Journal
	total := 0
	for _, l := range e.sortedLanes() {
		j := Journal{Lease: l.Lease, Tickets: l.written(), Suspects: e.underWay(l)}
		total += len(j.Suspects)
		something := len(j.Suspects)+len(j.Tickets) > 0 || l.sending()
		if something || l.journaled {
			journals = append(journals, j) // an empty one clears what was sent before
		}
		l.journaled = something
	}
	if total == 1 {
		i := slices.IndexFunc(journals, func(j Journal) bool { return len(j.Suspects) > 0 })
		journals[i].Suspects[0].Alone = true
	}
	return journals
}

func (e *engine) underWay(l *lane) (suspects []Suspect) {
	for _, it := range l.known {
		if it.stage == inFlight {
			ref := it.row.ref()
			suspects = append(suspects, Suspect{ID: ref.id, Check: ref.check, Crashes: e.care.suspects[ref].crashes})
		}
	}
	slices.SortFunc(suspects, func(a, b Suspect) int { return cmp.Compare(a.ID, b.ID) })
	return suspects
}

// journaled is a batch whose journal was written, or not.
type journaled struct {
	job job
	err error
}

// writeJournals returns an error if the batch must not be sent.
func (e *engine) writeJournals(ctx context.Context, j job) (err error) {
	defer func() { e.journaled <- journaled{j, err} }()
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	held, err := e.journaler.WriteJournal(ctx, e.options.Name, j.journals)
	if err == nil && len(held) < len(j.journals) {
		err = ErrFenced
	}
	return err
}

// afterJournal lets the next journal be written.
func (e *engine) afterJournal(j journaled) {
	e.care.writing = false
	if j.err != nil {
		e.perhapsWritten(j.job)
		return
	}
	e.note(j.job)
}

// notSent takes back a batch whose journal could not be written.
func (e *engine) notSent(result sendResult) {
	e.failed("journal", result.notSent)
	for _, j := range result.job.journals {
		if l := e.lanes[j.Lane]; l != nil {
			l.journaled = true // nobody knows: it is written again
		}
	}
	e.putBackLaunched(result.outlet, result.job.batch)
	for _, it := range result.job.batch {
		e.goOn(it.key)
	}
	now := time.Now()
	e.lease.next = now
	result.outlet.pauseUntil = now.Add(settlePause.Min)
}
