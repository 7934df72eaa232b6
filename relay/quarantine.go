package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// quarantine finds a message that brings its relays down. While a lane that was not
// released is new, the relay writes down what it is about to send, one batch a
// sink. What was being sent when a relay died is a suspect, and is sent alone.
// A message that was alone, and nothing else under way, at maxCrashes deaths is
// parked. A relay that is killed for other reasons parks no message by it.
type quarantine struct {
	*journal
	dedup    *dedup // nil if no sink is exact
	suspects map[rowRef]suspicion

	// waiting has a suspect to send. Until it is sent nothing else is, so that
	// it is alone; this lasts as long as all is written down, and no longer.
	waiting *outlet
}

type suspicion struct{ crashes int }

const (
	// maxCrashes is how often a message may be alone with a relay that dies.
	maxCrashes = 5

	// calmAfter is how long a relay writes down what it sends after it has taken over a
	// lane of a dead one.
	calmAfter = time.Minute
)

// leased takes note of how a lane was left.
func (q *quarantine) leased(_ *lane, g Grant) {
	if g.Crashes > 0 {
		q.all = time.Now().Add(calmAfter)
	}
	for _, s := range g.Suspects {
		crashes := s.Crashes
		if s.Alone {
			crashes++
		}
		q.suspects[rowRef{g.Lane, s.ID, s.Check}] = suspicion{crashes}
	}
}

func (q *quarantine) lost(l *lane) {
	delete(q.stale, l)
	maps.DeleteFunc(q.suspects, func(ref rowRef, _ suspicion) bool { return ref.lane == l.Lane })
}

// suspicionOf returns what is suspected of an item.
func (q *quarantine) suspicionOf(it *item) (s suspicion, suspected bool) {
	if len(q.suspects) > 0 {
		s, suspected = q.suspects[it.row.ref()]
	}
	return s, suspected
}

// unsendable parks what was alone too often.
func (q *quarantine) unsendable(it *item) *sinks.Outcome {
	s, suspected := q.suspicionOf(it)
	if !suspected {
		return nil
	}
	it.row.Crashes = max(it.row.Crashes, s.crashes)
	if s.crashes < maxCrashes {
		return nil
	}
	delete(q.suspects, it.row.ref())
	why := sinks.Fail(sinks.Reject, sinks.ReasonCrash, fmt.Sprintf("%d relays in a row died while they were sending this message and nothing else", s.crashes))
	return &why
}

// start sends one batch, once it is written down: one suspect alone, or those before
// the first suspect.
func (q *quarantine) start(o *outlet, now time.Time) bool {
	if w := q.waiting; w != nil && (w.circuit.state != circuitUp || w.queue.empty() && w.busy == 0 || !q.writesAll(now)) {
		q.waiting = nil // it was sent, or its sink is not there
	}
	if !q.writesAll(now) {
		return false
	}
	if o.busy > 0 || q.writing || o.queue.empty() || q.waiting != nil && q.waiting != o {
		return true
	}
	items := q.takeBatch(o)
	for i, it := range items {
		if _, suspected := q.suspicionOf(it); suspected {
			n := max(1, i)
			q.putBack(o, items[n:])
			items = items[:n:n]
			break
		}
	}
	if len(items) == 0 {
		return true
	}
	if _, suspected := q.suspicionOf(items[0]); suspected {
		q.waiting = o
		if slices.ContainsFunc(q.outlets, func(o *outlet) bool { return o.busy > 0 && o.circuit.state != circuitOpening }) {
			q.putBack(o, items)
			return true
		}
	}
	b := journaledBatch{batch: batch{lent: items}, journal: q.journal, journals: q.journals()}
	if q.dedup != nil && q.dedup.sinks[o] != nil {
		q.begin(o, &plannedBatch{journaledBatch: b, dedup: q.dedup})
	} else {
		q.begin(o, &b)
	}
	return true
}

// journals lists all that is under way, and the tickets that hold.
func (q *quarantine) journals() []Journal {
	var journals []Journal
	total := 0
	for _, l := range q.sortedLanes() {
		j := Journal{Lease: l.Lease, Suspects: q.inFlight(l)}
		if q.dedup != nil {
			j.Tickets = q.dedup.written(l)
		}
		total += len(j.Suspects)
		something := len(j.Suspects)+len(j.Tickets) > 0
		if something || q.stale[l] {
			journals = append(journals, j) // an empty one clears what was sent before
		}
		q.stale[l] = something
	}
	if total == 1 {
		i := slices.IndexFunc(journals, func(j Journal) bool { return len(j.Suspects) > 0 })
		journals[i].Suspects[0].Alone = true
	}
	return journals
}

func (q *quarantine) inFlight(l *lane) (suspects []Suspect) {
	for _, it := range l.known {
		if it.stage == inFlight {
			ref := it.row.ref()
			suspects = append(suspects, Suspect{ID: ref.id, Check: ref.check, Crashes: q.suspects[ref].crashes})
		}
	}
	slices.SortFunc(suspects, func(a, b Suspect) int { return cmp.Compare(a.ID, b.ID) })
	return suspects
}

// answered clears a message of its suspicion: its relay lives.
func (q *quarantine) answered(it *item, outcome sinks.Outcome) sinks.Outcome {
	if q.waiting == it.outlet {
		q.waiting = nil
	}
	if len(q.suspects) > 0 {
		delete(q.suspects, it.row.ref())
	}
	return outcome
}

func (q *quarantine) writesDown(now time.Time) bool { return q.writesAll(now) }

func (q *quarantine) known(*item) *sinks.Outcome { return nil }
func (q *quarantine) marked(*item)               {}
func (q *quarantine) keepsJournal(*lane) bool    { return false }
