package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// quarantine finds a message that brings its relays down. While a lane that was not
// released is new, the relay writes down what it is about to send, one batch a
// sink. What was being sent when a relay died is a suspect, and is sent alone.
// A message that was alone, and nothing else under way, at maxCrashes deaths is
// parked. A relay that is killed for other reasons parks no message by it.
type quarantine struct {
	*journal
	dedup    *dedup // nil if no sink is deduplicating
	suspects map[rowRef]suspicion

	// waiting has a suspect to send. Until it is sent nothing else is, so that
	// it is alone; this lasts as long as all is written down, and no longer.
	waiting *sinkQueue
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
func (g *quarantine) leased(_ *lane, grant storage.Grant) {
	if grant.Crashes > 0 {
		g.journalAll = time.Now().Add(calmAfter)
	}
	for _, s := range grant.Suspects {
		crashes := s.Crashes
		if s.Alone {
			crashes++
		}
		g.suspects[rowRef{grant.Lane, s.ID, s.Check}] = suspicion{crashes}
	}
}

func (g *quarantine) lost(l *lane) {
	delete(g.stale, l)
	maps.DeleteFunc(g.suspects, func(ref rowRef, _ suspicion) bool { return ref.lane == l.Lane })
}

// unsendable parks what was alone too often.
func (g *quarantine) unsendable(it *item) *sinks.Outcome {
	if len(g.suspects) == 0 {
		return nil
	}
	s, suspected := g.suspects[refOf(&it.row)]
	if !suspected {
		return nil
	}
	it.row.Crashes = max(it.row.Crashes, s.crashes)
	if s.crashes < maxCrashes {
		return nil
	}
	delete(g.suspects, refOf(&it.row))
	why := sinks.Fail(sinks.Reject, sinks.ReasonCrash, fmt.Sprintf("%d relays in a row died while they were sending this message and nothing else", s.crashes))
	return &why
}

// start sends one batch, once it is written down: one suspect alone, or those before
// the first suspect.
func (g *quarantine) start(q *sinkQueue, now time.Time) bool {
	if !now.Before(g.journalAll) {
		g.waiting = nil
		return false
	}
	if w := g.waiting; w != nil && (w.circuit.state != circuitClosed || w.waiting.empty() && len(w.flights) == 0) {
		g.waiting = nil // it was sent, or its sink is not there
	}
	if len(q.flights) > 0 || g.writing || q.waiting.empty() || g.waiting != nil && g.waiting != q {
		return true
	}
	items := g.takeBatch(q)
	for i, it := range items {
		if _, suspected := g.suspects[refOf(&it.row)]; suspected {
			n := max(1, i)
			g.putBack(q, items[n:])
			items = items[:n:n]
			break
		}
	}
	if len(items) == 0 {
		return true
	}
	if _, suspected := g.suspects[refOf(&items[0].row)]; suspected {
		g.waiting = q
		if slices.ContainsFunc(g.queues, func(q *sinkQueue) bool { return len(q.flights) > 0 && q.circuit.state != circuitHalfOpen }) {
			g.putBack(q, items)
			return true
		}
	}
	b := journaledBatch{journal: g.journal, journals: g.journals()}
	if g.dedup != nil && g.dedup.sinks[q] != nil {
		g.begin(q, &plannedBatch{journaledBatch: b, dedup: g.dedup}, items)
	} else {
		g.begin(q, &b, items)
	}
	return true
}

// journals lists all that is under way, and the references that hold.
func (g *quarantine) journals() []storage.Journal {
	var journals []storage.Journal
	total := 0
	for _, l := range g.sortedLanes() {
		j := storage.Journal{Lease: l.Lease, Suspects: g.inFlight(l)}
		if g.dedup != nil {
			j.Batches = g.dedup.written(l)
		}
		total += len(j.Suspects)
		something := len(j.Suspects)+len(j.Batches) > 0
		if something || g.stale[l] {
			journals = append(journals, j) // an empty one clears what was sent before
		}
		g.stale[l] = something
	}
	if total == 1 {
		i := slices.IndexFunc(journals, func(j storage.Journal) bool { return len(j.Suspects) > 0 })
		journals[i].Suspects[0].Alone = true
	}
	return journals
}

func (g *quarantine) inFlight(l *lane) (suspects []storage.Suspect) {
	for _, it := range l.known {
		if it.stage == inFlight {
			ref := refOf(&it.row)
			suspects = append(suspects, storage.Suspect{ID: ref.id, Check: ref.check, Crashes: g.suspects[ref].crashes})
		}
	}
	slices.SortFunc(suspects, func(a, b storage.Suspect) int { return cmp.Compare(a.ID, b.ID) })
	return suspects
}

// answered clears a message of its suspicion: its relay lives.
func (g *quarantine) answered(it *item, outcome sinks.Outcome) sinks.Outcome {
	if g.waiting == it.queue {
		g.waiting = nil
	}
	if len(g.suspects) > 0 {
		delete(g.suspects, refOf(&it.row))
	}
	return outcome
}
