package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// quarantine finds a message that crashes the relays that send it. After a relay has taken over a lane that its last holder did not
// release, it sends only one batch at a time per sink until calmAfter has passed. It writes each batch to the lanes' journals
// before it sends the batch. The messages that were in flight when the holder died are suspects, and each of them is sent alone. A
// message is parked after maxCrashes relays have crashed while it was the only message in flight. So crashes with other causes
// seldom lead to a parked message.
type quarantine struct {
	journal *journal
	dedup   *dedup // nil if no sink is deduplicating

	// waiting is the sink that has a suspect to send. Until that suspect is sent, no sink gets another message, so that the
	// suspect is sent alone. This wait ends at engine.journalAll at the latest.
	waiting *sinkQueue
}

// inherit takes over the suspects of a lane whose last holder died.
func (g *quarantine) inherit(l *lane, grant storage.Grant) {
	if g.dedup != nil {
		g.dedup.inherit(l, grant)
	}
	if grant.Crashes > 0 {
		g.journal.engine.journalAll = time.Now().Add(calmAfter)
	}
	l.journaled.suspects = map[rowRef]int{}
	for _, s := range grant.Suspects {
		crashes := s.Crashes
		if s.Alone {
			crashes++
		}
		l.journaled.suspects[rowRef{slices.Index(g.journal.engine.names, s.Sink), grant.Lane, s.ID, s.Check}] = crashes
	}
}

// start hands one batch to a worker, which journals the batch and sends it. The batch is a single suspect, or the queue's next
// batch up to its first suspect.
func (g *quarantine) start(q *sinkQueue, now time.Time) bool {
	if !now.Before(g.journal.engine.journalAll) {
		g.waiting = nil
		return false
	}
	if w := g.waiting; w != nil && (!w.up() || w.waiting.empty() && len(w.flights) == 0) {
		g.waiting = nil // nothing of this sink is left to send, or the sink is down
	}
	if len(q.flights) > 0 || g.journal.writing || q.waiting.empty() || g.waiting != nil && g.waiting != q {
		return true
	}
	items := g.journal.engine.takeBatch(q)
	for i, it := range items {
		if it.suspected() {
			n := max(1, i)
			g.journal.putBack(q, items[n:])
			items = items[:n:n]
			break
		}
	}
	if len(items) == 0 {
		return true
	}
	if items[0].suspected() {
		g.waiting = q
		if slices.ContainsFunc(g.journal.engine.queues, func(q *sinkQueue) bool { return q.inFlight() > 0 }) {
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

// journals returns the lanes' journals. They contain the messages in flight, and the batch references that are still valid.
func (g *quarantine) journals() []storage.Journal {
	var journals []storage.Journal
	total := 0
	for _, l := range g.journal.held.sortedLanes() {
		j := storage.Journal{Lease: l.Lease, Suspects: inFlightOf(l)}
		if g.dedup != nil {
			j.Batches = l.journaled.batches()
		}
		total += len(j.Suspects)
		something := len(j.Suspects)+len(j.Batches) > 0
		if something || l.journaled.stale {
			journals = append(journals, j) // an empty journal clears the one that is stored
		}
		l.journaled.stale = something
	}
	if total == 1 {
		i := slices.IndexFunc(journals, func(j storage.Journal) bool { return len(j.Suspects) > 0 })
		journals[i].Suspects[0].Alone = true
	}
	return journals
}

// inFlightOf returns the messages of a lane that are in flight.
func inFlightOf(l *lane) (suspects []storage.Suspect) {
	for it := range l.items() {
		if it.stage == inFlight {
			ref := it.ref()
			suspects = append(suspects, storage.Suspect{Sink: it.queue.name, ID: ref.id, Check: ref.check, Crashes: l.journaled.suspects[ref]})
		}
	}
	slices.SortFunc(suspects, func(a, b storage.Suspect) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Sink, b.Sink)) })
	return suspects
}

// answered removes a message from the suspects, since the relay has sent it without crashing.
func (g *quarantine) answered(it *item, outcome sinks.Outcome) sinks.Outcome {
	if g.waiting == it.queue {
		g.waiting = nil
	}
	if it.suspected() {
		delete(it.lane.journaled.suspects, it.ref())
	}
	return outcome
}

// Journals. A lane's journal is stored before its messages are sent. If the relay dies, the next holder of the lane reads
// which messages were in flight (for quarantine) and which planned batches they were in (for dedup). Journals are written one
// at a time, since each journal contains everything from the previous one that is still valid.

// journal writes the lanes' journals.
type journal struct {
	engine  *engine
	held    *heldLanes
	store   storage.Journaler
	writing bool // a write is in progress
}

// begin hands a batch to a worker, which writes the journals and then sends it.
func (j *journal) begin(q *sinkQueue, b job, items []*item) {
	j.writing = true
	j.engine.give(q, b, items)
}

// journaledBatch is a batch that is journalled before it is sent.
type journaledBatch struct {
	batch
	journal  *journal
	journals []storage.Journal
	err      error // the error of writing the journals; if it isn't nil, the batch was not sent
}

func (b *journaledBatch) do(ctx context.Context, use *base, f *flight) {
	if b.write(ctx, func() {}) {
		b.batch.do(ctx, use, f)
	}
}

// write writes the journals and reports whether the batch may be sent. After the write, the loop sets journal.writing to false
// and calls the function `note`. So the next journals can be written while this batch is sent.
func (b *journaledBatch) write(ctx context.Context, note func()) bool {
	j := b.journal
	ctx, cancel := context.WithTimeout(ctx, j.engine.callTimeout)
	defer cancel()
	held, err := j.store.WriteJournal(ctx, j.engine.options.Name, b.journals)
	if err == nil && len(held) < len(b.journals) {
		err = storage.ErrFenced
	}
	b.err = err
	j.engine.tried(&j.engine.health.journal, err)
	j.engine.results <- func() {
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

// notSent requeues a batch whose journals could not be written.
func (b *journaledBatch) notSent(f *flight) {
	j := b.journal
	j.engine.failed("journal", b.err)
	for _, written := range b.journals {
		if l := j.held.lanes[written.Lane]; l != nil {
			l.journaled.stale = true // it is unknown which journal is stored, so the lane's journal is written again
		}
	}
	j.putBack(f.queue, f.items)
	j.engine.resume(f.items)
	now := time.Now()
	j.engine.lease.next = now
	f.queue.pauseUntil = now.Add(settlePause.Min)
}

// putBack requeues items that were taken from the queue for a batch but not sent.
func (j *journal) putBack(q *sinkQueue, items []*item) {
	for _, it := range items {
		if it.key != nil {
			it.key.inFlight--
		}
		j.engine.settle.write(j.engine.settle.joiner.takeBack(it, time.Now())...)
	}
	j.engine.requeue(q, items, false)
}
