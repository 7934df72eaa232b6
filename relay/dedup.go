package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// dedup sends batches to sinks that recognise a batch when it is sent again. A batch for such a sink is planned, journalled,
// sent and settled, in this order. When a batch is journalled, each of its rows gets a reference to it (batchRef). The
// reference ends when the row is settled, or when the sink has confirmed that this batch will never deliver the row. A batch
// is unresolved while it is unknown whether the sink has it. A relay that holds one of the batch's lanes sends the unresolved
// batch again before it plans new ones.
type dedup struct {
	journal *journal
	sinks   map[*sinkQueue]*dedupSink
}

// dedupSink is the state of a sink that recognises a batch when it is sent again.
type dedupSink struct {
	sink       sinks.Deduplicating
	unresolved []*dedupBatch
	resolving  bool      // a job of the type resolving is in flight
	tries      int       // how many consecutive jobs of the type resolving left a batch unresolved
	resolveAt  time.Time // when to try again; until then messages of other keys are sent
	oneAtATime bool      // the sink has refused part of a batch, so only one batch is in flight at a time
}

// planPause is the pause after a sink has refused a whole plan, so that a sink that refuses everything doesn't keep a core busy.
const planPause = 10 * time.Millisecond

// inherit takes over the references in a lane's journal, and marks their batches as unresolved.
func (d *dedup) inherit(l *lane, g storage.Grant) {
	queues, options := d.journal.engine.queues, &d.journal.engine.options
	for _, t := range g.Batches {
		at := slices.IndexFunc(queues, func(q *sinkQueue) bool { return q.name == t.Sink && d.sinks[q] != nil })
		if at < 0 {
			options.Logger.Warn("relay: messages may be delivered twice: a relay died while sending them to a sink that was removed or is no longer deduplicating",
				"relay", options.Name, "sink", t.Sink, "messages", len(t.IDs))
			continue
		}
		s := d.sinks[queues[at]]
		b := &dedupBatch{sink: t.Sink, name: t.Batch, size: t.Size}
		if same := slices.IndexFunc(s.unresolved, func(b *dedupBatch) bool { return b.name == t.Batch }); same >= 0 {
			b = s.unresolved[same]
		}
		s.unresolve(b)
		rowsOf(&t, at, l.Lane, func(ref rowRef, place int) { l.journaled.put(ref, &batchRef{batch: b, place: place}) })
	}
}

// unresolve marks a batch as unresolved.
func (s *dedupSink) unresolve(b *dedupBatch) {
	if !b.unresolved {
		b.unresolved = true
		s.unresolved = append(s.unresolved, b)
	}
}

// start resolves the unresolved batches, or plans and sends one more batch. While the plan is being journalled, earlier batches
// may be in flight.
func (d *dedup) start(q *sinkQueue, now time.Time) bool {
	s := d.sinks[q]
	if s == nil {
		return false
	}
	if len(s.unresolved) > 0 && !s.resolving && !now.Before(s.resolveAt) {
		s.unresolved = slices.DeleteFunc(s.unresolved, func(b *dedupBatch) bool { return !d.holdsAnyOf(b) })
		if len(q.flights) == 0 && len(s.unresolved) > 0 {
			s.resolving = true
			d.journal.engine.give(q, &resolving{dedup: d, batches: slices.Clone(s.unresolved)}, nil)
		}
		return true
	}
	if s.resolving && s.tries == 0 {
		return true // usually the first try resolves everything, so wait for it
	}
	if now.Before(d.journal.engine.journalAll) {
		return false // until then, the quarantine sends the sink's batches
	}
	busy, one := len(q.flights), s.oneAtATime || q.breaker.state == breakerProbing
	if busy >= q.options.Workers || busy > 0 && one || d.journal.writing || q.waiting.empty() {
		return true
	}
	q.waiting.gather(q.options.Batch)
	if items := d.journal.engine.takeBatch(q); len(items) > 0 {
		b := journaledBatch{journal: d.journal, journals: d.journalsOf(items)}
		d.journal.begin(q, &plannedBatch{journaledBatch: b, dedup: d, alone: busy == 0}, items)
	}
	return true
}

// holdsAnyOf reports whether some lane that this relay holds has a row of the batch.
func (d *dedup) holdsAnyOf(b *dedupBatch) bool {
	for _, l := range d.journal.held.sortedLanes() {
		for _, t := range l.journaled.batchRefs {
			if t.batch == b {
				return true
			}
		}
	}
	return false
}

// gather moves all entries of some lanes to the front of the list w.untried. It chooses lanes in the order in which they appear in
// the list, until the chosen lanes have at least n items. So a batch of n items has messages of few lanes, and only the journals of
// these lanes must be written. The moved entries keep their order, and the other entries keep theirs.
func (w *waitingLine) gather(n int) {
	laneOf := func(entry queued) *lane {
		if entry.key != nil {
			return entry.key.lane
		}
		return entry.item.lane
	}
	waiting, sizes := w.untried, map[*lane]int{}
	if len(waiting) <= n {
		return
	}
	for _, entry := range waiting {
		if entry.key != nil {
			sizes[laneOf(entry)] += len(entry.key.items)
		} else {
			sizes[laneOf(entry)]++
		}
	}
	chosen, rest := map[*lane]bool{}, make([]queued, 0, len(waiting))
	gathered := waiting[:0]
	for _, entry := range waiting {
		l := laneOf(entry)
		if !chosen[l] && n > 0 {
			chosen[l] = true
			n -= sizes[l]
		}
		if chosen[l] {
			gathered = append(gathered, entry)
		} else {
			rest = append(rest, entry)
		}
	}
	copy(waiting[len(gathered):], rest)
}

// journalsOf returns the journals of the batch's lanes, and of the lanes whose journal is stale. They contain the references
// that are still valid. The stored journals of other lanes may contain references that have ended, which does no harm.
func (d *dedup) journalsOf(items []*item) (journals []storage.Journal) {
	of := map[*lane]bool{}
	for _, it := range items {
		of[it.lane] = true
	}
	for _, l := range d.journal.held.sortedLanes() {
		if of[l] || l.journaled.stale {
			journals = append(journals, storage.Journal{Lease: l.Lease, Batches: l.journaled.batches()})
			l.journaled.stale = false
		}
	}
	return journals
}

// plannedBatch is a batch that is planned by its sink and journalled before it is sent.
type plannedBatch struct {
	journaledBatch
	dedup     *dedup
	batchRefs []sinks.BatchRef // the reference of each item; zero if the item isn't sent
	noted     bool
	alone     bool // no other job of the sink was in flight when this one began
}

// do lets the sink plan the messages, journals the plan, and sends those messages that got a reference. For the other messages,
// the plan contains their outcomes.
func (b *plannedBatch) do(ctx context.Context, _ *base, f *flight) {
	messages := make([]sinks.Message, len(f.items))
	for i, it := range f.items {
		messages[i] = it.message()
	}
	b.batchRefs, b.outcomes = planSafely(ctx, b.dedup.sinks[f.queue].sink, messages)
	planned := messages[:0]
	for i, it := range f.items {
		t := b.batchRefs[i]
		if t == (sinks.BatchRef{}) {
			continue
		}
		messages[i].BatchRef = t
		planned = append(planned, messages[i])
		at := slices.IndexFunc(b.journals, func(journal storage.Journal) bool { return journal.Lane == it.row.Lane })
		addRef(&b.journals[at], f.queue.name, t, it.ref())
	}
	if !b.write(ctx, func() { b.note(f.items) }) || len(planned) == 0 {
		return
	}
	answers := send(ctx, f.queue, planned)
	for i := range b.outcomes {
		if b.batchRefs[i] != (sinks.BatchRef{}) {
			b.outcomes[i], answers = answers[0], answers[1:]
		}
	}
}

// planSafely calls Plan, and returns one reference and one outcome for each message. A panic counts as a retryable failure of all
// messages.
func planSafely(ctx context.Context, sink sinks.Deduplicating, messages []sinks.Message) (batchRefs []sinks.BatchRef, outcomes []sinks.Outcome) {
	defer func() {
		n := len(messages)
		if p := recover(); p != nil {
			batchRefs, outcomes = nil, sinks.All(n, sinks.Fail(sinks.Retry, sinks.ReasonPanic, fmt.Sprintf("the sink panicked: %v", p)))
		}
		batchRefs = append(batchRefs, make([]sinks.BatchRef, max(0, n-len(batchRefs)))...)
		for len(outcomes) < n {
			outcomes = append(outcomes, noAnswer)
		}
		outcomes = outcomes[:n]
	}()
	return sink.Plan(ctx, messages)
}

// note sets the references of the batch's rows once the plan is journalled. If the write failed, the plan may still have been
// stored, and a relay that takes over one of the batch's lanes may send the batch. So this relay doesn't send it, and marks it as
// unresolved.
func (b *plannedBatch) note(items []*item) {
	if b.noted {
		return
	}
	b.noted = true
	batches := map[string]*dedupBatch{}
	for i, t := range b.batchRefs {
		if t == (sinks.BatchRef{}) {
			continue
		}
		it := items[i]
		if batches[t.Batch] == nil {
			batches[t.Batch] = &dedupBatch{sink: it.queue.name, name: t.Batch, size: t.Size}
		}
		if it.lane.lost {
			continue
		}
		it.lane.journaled.put(it.ref(), &batchRef{batch: batches[t.Batch], place: t.Place})
		if b.err != nil {
			b.dedup.sinks[it.queue].unresolve(batches[t.Batch])
		}
	}
}

// done processes the outcomes. If the sink has sent nothing and asks for a new plan, the breaker doesn't count this as a
// failure. A sink that has refused part of a batch gets one batch at a time, so that smaller and smaller parts can be sent
// until the bad message is found. After the sink has accepted a batch that was in flight alone, several batches may be in flight
// again.
func (b *plannedBatch) done(e *engine, f *flight) {
	b.note(f.items)
	if b.err != nil {
		b.notSent(f)
		return
	}
	b.excused = !slices.ContainsFunc(b.outcomes, func(outcome sinks.Outcome) bool {
		return outcome.Result != sinks.Unsent || outcome.Reason != sinks.ReasonBlocked
	})
	if slices.ContainsFunc(b.outcomes, func(outcome sinks.Outcome) bool { return outcome.Result == sinks.Delivered }) {
		for i, outcome := range b.outcomes { // the sink works, so an unknown outcome doesn't count against it
			if outcome.Result == sinks.Retry && sinks.IsOpen(outcome) {
				b.outcomes[i] = sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, outcome.Detail)
			}
		}
	}
	if b.excused && f.ctx.Err() == nil {
		f.queue.pauseUntil = time.Now().Add(planPause)
	}
	b.batch.done(e, f)
	refused := false
	for i, t := range b.batchRefs {
		refused = refused || t != (sinks.BatchRef{}) && b.outcomes[i].Result != sinks.Delivered
	}
	if b.alone && !refused {
		b.dedup.sinks[f.queue].oneAtATime = false
	}
}

// answered updates a row's reference after an outcome. If the outcome is unknown, the reference stays and its batch is
// unresolved. If it is certain that the sink doesn't have the message, the reference ends.
func (d *dedup) answered(it *item, outcome sinks.Outcome) sinks.Outcome {
	t := it.batchRef()
	switch {
	case t == nil || outcome.Result == sinks.Delivered:
	case sinks.IsOpen(outcome):
		outcome = uncharged(outcome)
		d.sinks[it.queue].unresolve(t.batch)
	default:
		it.endBatchRef()
		d.sinks[it.queue].oneAtATime = true
	}
	return outcome
}

// uncharged turns a Retry into an Unavailable, for which no attempt is charged, since the batch will be sent again unchanged.
func uncharged(outcome sinks.Outcome) sinks.Outcome {
	if outcome.Result == sinks.Retry {
		outcome.Result = sinks.Unavailable
	}
	return outcome
}

// resolving is the job that sends unresolved batches again, with all their rows that still exist. Some of the rows may be in
// another relay's lanes, and that relay may send them again, too. This is harmless, because the sink accepts each message only
// once.
type resolving struct {
	dedup    *dedup
	batches  []*dedupBatch
	statuses map[rowRef]sinks.Outcome // the outcomes by row
	outcomes []sinks.Outcome          // the same outcomes, in the order in which the rows were sent
	err      error                    // the error of reading the journals or the rows
}

func (r *resolving) do(ctx context.Context, _ *base, f *flight) {
	store := r.dedup.journal.store
	journals, err := store.Journals(ctx)
	if r.err = err; err != nil {
		return
	}
	batchRefs := map[rowRef]sinks.BatchRef{} // the references of all rows of the batches
	var ids []storage.RowID
	for _, j := range journals {
		for _, t := range j.Batches {
			if t.Sink != f.queue.name || !slices.ContainsFunc(r.batches, func(b *dedupBatch) bool { return b.name == t.Batch }) {
				continue
			}
			rowsOf(&t, f.queue.index, j.Lane, func(ref rowRef, place int) {
				batchRefs[ref] = sinks.BatchRef{Batch: t.Batch, Size: t.Size, Place: place}
				ids = append(ids, storage.RowID{Lane: ref.lane, ID: ref.id})
			})
		}
	}
	slices.SortFunc(ids, func(a, b storage.RowID) int { return cmp.Or(a.Lane-b.Lane, cmp.Compare(a.ID, b.ID)) })
	rows, err := store.Pick(ctx, slices.Compact(ids))
	refTo := func(row *storage.Row) sinks.BatchRef { return batchRefs[refOf(row, f.queue.index)] }
	rows = slices.DeleteFunc(rows, func(row storage.Row) bool { // the id may belong to another message now, or the row may need only other sinks
		named := storage.SplitSinks(row.Sinks)
		return refTo(&row) == sinks.BatchRef{} || named != nil && !slices.Contains(named, f.queue.name)
	})
	if r.err = err; err != nil || len(rows) == 0 {
		return
	}
	slices.SortFunc(rows, func(a, b storage.Row) int { // in the order in which they were sent
		x, y := refTo(&a), refTo(&b)
		return cmp.Or(cmp.Compare(x.Batch, y.Batch), x.Place-y.Place)
	})
	messages := make([]sinks.Message, len(rows))
	for i, row := range rows {
		messages[i] = (&item{row: row}).message()
		messages[i].BatchRef = refTo(&row)
	}
	r.outcomes = send(ctx, f.queue, messages)
	r.statuses = map[rowRef]sinks.Outcome{}
	for i, row := range rows {
		r.statuses[refOf(&row, f.queue.index)] = r.outcomes[i]
	}
}

// done settles the rows that the sink has, and ends the references of rows that are gone or were not delivered. The breaker
// judges the sink's outcomes, but a refused batch doesn't count against the sink.
func (r *resolving) done(e *engine, f *flight) {
	d, q := r.dedup, f.queue
	s := d.sinks[q]
	s.resolving = false
	if r.err != nil {
		e.failed("journal", r.err)
		e.tried(&e.health.journal, r.err)
		q.pauseUntil = time.Now().Add(settlePause.Min)
		return
	}
	if len(r.outcomes) > 0 {
		q.observeSent(f.took, r.outcomes)
		var said []sinks.Outcome
		for _, outcome := range r.outcomes { // an unknown outcome doesn't count against the sink
			if outcome.Result != sinks.Unsent && (!sinks.IsOpen(outcome) || outcome.Result == sinks.Unavailable) {
				said = append(said, outcome)
			}
		}
		e.report(q, q.breaker.resolved(f.turn, said, len(said) == 0 || f.ctx.Err() != nil, time.Now()))
	}
	open := map[*dedupBatch]bool{}
	for _, l := range d.journal.held.sortedLanes() {
		for ref, t := range l.journaled.batchRefs {
			if slices.Contains(r.batches, t.batch) && r.decide(l, ref, t) {
				open[t.batch] = true
			}
		}
	}
	s.unresolved = slices.DeleteFunc(s.unresolved, func(b *dedupBatch) bool {
		b.unresolved = open[b] || !slices.Contains(r.batches, b)
		return !b.unresolved
	})
	r.again(s, q, len(open))
}

// again schedules the next attempt for batches that are still unresolved. If the sink is unavailable, they are sent again as soon
// as the sink has been opened again.
func (r *resolving) again(s *dedupSink, q *sinkQueue, open int) {
	if open == 0 || !q.breaker.sending() {
		s.tries, s.resolveAt = 0, time.Time{}
		return
	}
	s.tries++
	wait := q.options.BreakerBackoff.draw(s.tries)
	s.resolveAt = time.Now().Add(wait)
	at := slices.IndexFunc(r.outcomes, sinks.IsOpen)
	if allowed, more := q.base.logLimiter.allow("unresolved " + q.name); allowed && at >= 0 {
		q.base.options.Logger.Warn("relay: it is unknown whether the sink has some messages; their keys wait", "relay", q.base.options.Name,
			"sink", q.name, "batches", open, "retry_in", wait, "detail", loggable(&r.outcomes[at]), "suppressed", more)
	}
}

// decide applies the sink's outcome for the row of a reference. If the outcome is unknown, decide changes nothing and returns
// true. If the sink has the message, the row is settled as delivered: immediately if it waits in memory, otherwise when it is
// read. Until its new state is written, the row keeps its reference. In all other cases the reference ends.
func (r *resolving) decide(l *lane, ref rowRef, t *batchRef) (open bool) {
	status, there := r.statuses[ref]
	switch {
	case there && sinks.IsOpen(status):
		return true
	case there && status.Result == sinks.Delivered:
		t.status = &status
		if it := l.item(ref.queue, ref.id); it != nil && it.ref() == ref && it.stage == inQueue {
			r.dedup.release(it)
			r.dedup.journal.engine.deliveredBefore(it, status)
		}
	default:
		delete(l.journaled.batchRefs, ref)
		if it := l.item(ref.queue, ref.id); it != nil && it.ref() == ref && it.stage == inQueue {
			r.dedup.release(it)
			if q := it.queue; it.key != nil {
				q.enqueue(it.key)
			} else {
				q.waiting.putFirst(queued{item: it})
			}
		}
	}
	return false
}

// release lets messages of the item's key be sent again, since it is now known whether the sink has the item.
func (d *dedup) release(it *item) {
	if it.key != nil && it.key.suspended == it {
		it.key.suspended = nil
	}
}
