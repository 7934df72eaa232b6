package relay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// quarantine finds a message that brings its relays down. For a while (calmAfter) after it
// has taken over a lane that was not released, a relay writes down what it is about to send,
// one batch a sink. What was being sent when a relay died is a suspect, and is sent alone.
// A message that was alone, and nothing else under way, at maxCrashes deaths is
// parked. A relay that is killed for other reasons parks no message by it.
type quarantine struct {
	journal  *journal
	dedup    *dedup         // nil if no sink is deduplicating
	suspects map[rowRef]int // how often each was alone with a relay that died

	// waiting is the sink that has a suspect to send. Until the suspect is sent, nothing else is, so that it is
	// alone. This ends with journalAll at the latest.
	waiting *sinkQueue
}

const (
	// maxCrashes is how often a message may be alone with a relay that dies.
	maxCrashes = 5
)

// inherit takes note of how a relay that died has left a lane. From then on there is
// something to guard.
func (g *quarantine) inherit(l *lane, grant storage.Grant) {
	if g.dedup != nil {
		g.dedup.inherit(l, grant)
	}
	if !slices.Contains(g.journal.held.engine.guards, guard(g)) {
		g.journal.held.engine.guards = append(g.journal.held.engine.guards, g)
	}
	if grant.Crashes > 0 {
		g.journal.held.engine.journalAll = time.Now().Add(calmAfter)
	}
	for _, s := range grant.Suspects {
		crashes := s.Crashes
		if s.Alone {
			crashes++
		}
		g.suspects[rowRef{slices.Index(g.journal.held.engine.names, s.Sink), grant.Lane, s.ID, s.Check}] = crashes
	}
}

func (g *quarantine) lost(l *lane) {
	delete(g.journal.stale, l)
	maps.DeleteFunc(g.suspects, func(ref rowRef, _ int) bool { return ref.lane == l.Lane })
}

// unsendable parks what was alone too often.
func (g *quarantine) unsendable(it *item) *sinks.Outcome {
	if len(g.suspects) == 0 {
		return nil
	}
	crashes, suspected := g.suspects[it.ref()]
	if !suspected {
		return nil
	}
	if it.row.Crashes = max(it.row.Crashes, crashes); crashes < maxCrashes {
		return nil
	}
	delete(g.suspects, it.ref())
	why := sinks.Fail(sinks.Reject, sinks.ReasonCrash, fmt.Sprintf("%d relays in a row died while they were sending this message and nothing else", crashes))
	return &why
}

// start sends one batch, once it is written down: one suspect alone, or those before
// the first suspect.
func (g *quarantine) start(q *sinkQueue, now time.Time) bool {
	if !now.Before(g.journal.held.engine.journalAll) {
		g.waiting = nil
		return false
	}
	if w := g.waiting; w != nil && (!w.up() || w.waiting.empty() && len(w.flights) == 0) {
		g.waiting = nil // it was sent, or its sink is not there
	}
	if len(q.flights) > 0 || g.journal.writing || q.waiting.empty() || g.waiting != nil && g.waiting != q {
		return true
	}
	items := g.journal.held.engine.takeBatch(q)
	for i, it := range items {
		if _, suspected := g.suspects[it.ref()]; suspected {
			n := max(1, i)
			g.journal.putBack(q, items[n:])
			items = items[:n:n]
			break
		}
	}
	if len(items) == 0 {
		return true
	}
	if _, suspected := g.suspects[items[0].ref()]; suspected {
		g.waiting = q
		if slices.ContainsFunc(g.journal.held.engine.queues, func(q *sinkQueue) bool { return q.inFlight() > 0 }) {
			g.journal.putBack(q, items)
			return true
		}
	}
	b := journaledBatch{journal: g.journal, journals: g.journals()}
	if g.dedup != nil && g.dedup.sinks[q] != nil {
		g.journal.begin(q, &plannedBatch{journaledBatch: b, dedup: g.dedup}, items)
	} else {
		g.journal.begin(q, &b, items)
	}
	return true
}

// journals lists all that is under way, and the references that hold.
func (g *quarantine) journals() []storage.Journal {
	var journals []storage.Journal
	total := 0
	for _, l := range g.journal.held.held.sortedLanes() {
		j := storage.Journal{Lease: l.Lease, Suspects: g.inFlight(l)}
		if g.dedup != nil {
			j.Batches = g.dedup.written(l)
		}
		total += len(j.Suspects)
		something := len(j.Suspects)+len(j.Batches) > 0
		if something || g.journal.stale[l] {
			journals = append(journals, j) // an empty one clears what was sent before
		}
		g.journal.stale[l] = something
	}
	if total == 1 {
		i := slices.IndexFunc(journals, func(j storage.Journal) bool { return len(j.Suspects) > 0 })
		journals[i].Suspects[0].Alone = true
	}
	return journals
}

func (g *quarantine) inFlight(l *lane) (suspects []storage.Suspect) {
	for it := range l.items() {
		if it.stage == inFlight {
			ref := it.ref()
			suspects = append(suspects, storage.Suspect{Sink: it.queue.name, ID: ref.id, Check: ref.check, Crashes: g.suspects[ref]})
		}
	}
	slices.SortFunc(suspects, func(a, b storage.Suspect) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Sink, b.Sink)) })
	return suspects
}

// answered clears a message of its suspicion: its relay lives.
func (g *quarantine) answered(it *item, outcome sinks.Outcome) sinks.Outcome {
	if g.waiting == it.queue {
		g.waiting = nil
	}
	if len(g.suspects) > 0 {
		delete(g.suspects, it.ref())
	}
	return outcome
}

// A journal is what is written down of a lane before it is sent, so that whoever takes
// the lane over from a relay that died knows of it: which messages were under way, for
// quarantine, and which planned batches they were in, for dedup. Journals are written one
// at a time: each has all that was before it.

// journal writes journals.
type journal struct {
	held    *byLanes
	store   storage.Journaler
	writing bool           // one is on its way
	stale   map[*lane]bool // their stored journals may name what is over by now, or aren't known: they go into the next write
}

// begin has a batch written down, and sent.
func (j *journal) begin(q *sinkQueue, b job, items []*item) {
	j.writing = true
	j.held.engine.give(q, b, items)
}

// journaledBatch is a batch that is written down before it is sent.
type journaledBatch struct {
	batch
	journal  *journal
	journals []storage.Journal
	err      error // it wasn't written, and nothing was sent
}

func (b *journaledBatch) do(ctx context.Context, use *base, f *flight) {
	if b.write(ctx, func() {}) {
		b.batch.do(ctx, use, f)
	}
}

// write says whether the batch may be sent. The loop is told at once, so that the next
// journal can be written.
func (b *journaledBatch) write(ctx context.Context, note func()) bool {
	j := b.journal
	ctx, cancel := context.WithTimeout(ctx, j.held.engine.callTimeout)
	defer cancel()
	held, err := j.store.WriteJournal(ctx, j.held.engine.options.Name, b.journals)
	if err == nil && len(held) < len(b.journals) {
		err = storage.ErrFenced
	}
	b.err = err
	j.held.engine.tried(&j.held.engine.health.journal, err)
	j.held.engine.results <- func() {
		j.writing = false
		note()
	}
	return err == nil
}

func (b *journaledBatch) done(e *engine, f *flight) {
	if b.err != nil {
		b.notSent(f)
		return
	}
	b.batch.done(e, f)
}

// notSent takes back a batch whose journal could not be written.
func (b *journaledBatch) notSent(f *flight) {
	j := b.journal
	j.held.engine.failed("journal", b.err)
	for _, written := range b.journals {
		if l := j.held.held.lanes[written.Lane]; l != nil {
			j.stale[l] = true // nobody knows: it is written again
		}
	}
	j.putBack(f.queue, f.items)
	j.held.engine.resume(f.items)
	now := time.Now()
	j.held.engine.lease.next = now
	f.queue.pauseUntil = now.Add(settlePause.Min)
}

// putBack takes items back that were not handed to a worker after all.
func (j *journal) putBack(q *sinkQueue, items []*item) {
	for _, it := range items {
		if it.key != nil {
			it.key.inFlight--
		}
		j.held.engine.settle.write(j.held.engine.settle.joiner.takeBack(it, time.Now())...)
	}
	j.held.engine.requeue(q, items)
}
