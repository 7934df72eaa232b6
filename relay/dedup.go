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

// exactBatch is a batch that its sink recognises when it comes again. While it
// is in doubt, its outlet begins nothing else.
type exactBatch struct {
	sink    string
	name    string
	size    int
	inDoubt bool // the sink may have it or not
}

// ticket is a row's place in an exact batch. A lane has those of its rows that
// were sent and are not settled, and of those that its last holder had sent.
type ticket struct {
	batch *exactBatch
	place int
	fate  *sinks.Outcome // delivered, though the row may still have to be read
}

// plan is what is written down of a batch before it is sent. The worker makes
// it, and the loop takes note of it when it is written.
type plan struct {
	tickets []sinks.Ticket // by the batch's items; the zero one where an item isn't sent
	noted   bool
	alone   bool // nothing else of the outlet was under way
}

// startExactly sends one more batch, once its plan is written down. While a plan
// is written the batches before it are on their way.
func (e *engine) startExactly(o *outlet) {
	if o.busy >= e.workersOf(o) || o.busy > 0 && o.picky || e.care.writing || o.queue.empty() {
		return
	}
	o.queue.gather(o.options.Batch)
	if batch := e.takeBatch(o); len(batch) > 0 {
		e.care.writing = true
		e.give(o, job{batch: batch, journals: e.journalsOf(batch), plan: &plan{alone: o.busy == 0}})
	}
}

// gather puts first what is of the first one's lane, then what is of the next
// one's, until it makes up a batch of n: so a batch is of few lanes, each of which
// has its journal written for it. What is first stays first.
func (q *queue) gather(n int) {
	waiting, sizes := q.items[q.head:], map[*lane]int{}
	if len(waiting) <= n {
		return
	}
	for _, entry := range waiting {
		sizes[entry.lane()] += entry.count()
	}
	chosen, rest := map[*lane]bool{}, make([]queued, 0, len(waiting))
	gathered := waiting[:0]
	for _, entry := range waiting {
		if l := entry.lane(); !chosen[l] && n > 0 {
			chosen[l] = true
			n -= sizes[l]
		}
		if chosen[entry.lane()] {
			gathered = append(gathered, entry)
		} else {
			rest = append(rest, entry)
		}
	}
	copy(waiting[len(gathered):], rest)
}

func (q queued) lane() *lane {
	if q.key != nil {
		return q.key.lane
	}
	return q.item.lane
}

// count is that of the items that stand there.
func (q queued) count() int {
	if q.key != nil {
		return len(q.key.items)
	}
	return 1
}

// journalsOf lists the tickets that hold in the lanes of a batch. Those of other
// lanes stand where they were written; what of them is over by now does no harm.
func (e *engine) journalsOf(batch []*item) (journals []Journal) {
	of := map[*lane]bool{}
	for _, it := range batch {
		of[it.lane] = true
	}
	for _, l := range e.sortedLanes() {
		if of[l] || l.journaled {
			journals = append(journals, Journal{Lease: l.Lease, Tickets: l.written()})
			l.journaled = false
		}
	}
	return journals
}

// makePlan has the sink plan a batch, and adds the tickets to the journals that
// are about to be written. What is not planned has its outcome already.
func (e *engine) makePlan(ctx context.Context, o *outlet, j job, messages []sinks.Message) (unplanned map[int]sinks.Outcome) {
	tickets, outcomes := planSafely(ctx, o.exact, messages)
	j.plan.tickets, unplanned = tickets, map[int]sinks.Outcome{}
	for i, it := range j.batch {
		if tickets[i] == (sinks.Ticket{}) {
			unplanned[i] = outcomes[i]
			continue
		}
		messages[i].Ticket = tickets[i]
		at := slices.IndexFunc(j.journals, func(journal Journal) bool { return journal.Lane == it.row.Lane })
		j.journals[at].add(o.name, tickets[i], it.row.ref())
	}
	return unplanned
}

// planSafely returns one ticket and one outcome a message.
func planSafely(ctx context.Context, sink sinks.Exact, messages []sinks.Message) (tickets []sinks.Ticket, outcomes []sinks.Outcome) {
	defer func() {
		n := len(messages)
		if p := recover(); p != nil {
			tickets, outcomes = nil, sinks.All(n, sinks.Fail(sinks.Retry, sinks.ReasonPanic, fmt.Sprintf("the sink panicked: %v", p)))
		}
		tickets = append(tickets, make([]sinks.Ticket, max(0, n-len(tickets)))...)
		outcomes = complete(outcomes, n)
	}()
	return sink.Plan(ctx, messages)
}

// add puts a row into the ticket of its batch.
func (j *Journal) add(sink string, t sinks.Ticket, ref rowRef) {
	at := slices.IndexFunc(j.Tickets, func(other Ticket) bool { return other.Batch == t.Batch })
	if at < 0 {
		at = len(j.Tickets)
		j.Tickets = append(j.Tickets, Ticket{Sink: sink, Batch: t.Batch, Size: t.Size})
	}
	own := &j.Tickets[at]
	own.IDs, own.Places, own.Checks = append(own.IDs, ref.id), append(own.Places, t.Place), append(own.Checks, ref.check)
}

// sendPlanned sends what has a ticket, and returns an outcome for everything.
func sendPlanned(ctx context.Context, o *outlet, messages []sinks.Message, unplanned map[int]sinks.Outcome) []sinks.Outcome {
	planned := make([]sinks.Message, 0, len(messages))
	for i := range messages {
		if _, left := unplanned[i]; !left {
			planned = append(planned, messages[i])
		}
	}
	var answers []sinks.Outcome
	if len(planned) > 0 {
		answers = complete(send(ctx, o.options.Sink, planned), len(planned))
	}
	outcomes := make([]sinks.Outcome, len(messages))
	for i := range messages {
		if outcome, left := unplanned[i]; left {
			outcomes[i] = outcome
			continue
		}
		outcomes[i], answers = answers[0], answers[1:]
	}
	return outcomes
}

// note gives the lanes the tickets of a batch whose plan was written down.
func (e *engine) note(j job) {
	if j.plan == nil || j.plan.noted {
		return
	}
	j.plan.noted = true
	batches := map[string]*exactBatch{}
	for i, t := range j.plan.tickets {
		if t == (sinks.Ticket{}) {
			continue
		}
		if batches[t.Batch] == nil {
			batches[t.Batch] = &exactBatch{sink: j.batch[i].outlet.name, name: t.Batch, size: t.Size}
		}
		j.batch[i].lane.tickets[j.batch[i].row.ref()] = &ticket{batch: batches[t.Batch], place: t.Place}
	}
}

// perhapsWritten keeps the tickets of a batch that is not sent, as its plan may
// have been written down: another relay that takes over a lane may send it.
func (e *engine) perhapsWritten(j job) {
	if j.plan == nil {
		return
	}
	e.note(j)
	for _, it := range j.batch {
		if t := it.ticket(); t != nil {
			e.doubt(it.outlet, t.batch)
		}
	}
}

// weigh says what an outcome of an exact sink means for a row's ticket: it
// holds where this is open, and is over where the sink doesn't have the message.
func (e *engine) weigh(it *item, outcome sinks.Outcome) sinks.Outcome {
	t := it.ticket()
	switch {
	case t == nil || outcome.Result == sinks.Delivered:
	case sinks.IsOpen(outcome):
		outcome = uncharged(outcome)
		e.doubt(it.outlet, t.batch)
	default:
		delete(it.lane.tickets, it.row.ref())
		it.outlet.picky = true
	}
	return outcome
}

// pleased lets batches overlap again, after one that was alone and was taken: one
// that is refused is sent in smaller parts until what is wrong with it is found,
// and another one on its way would be in the way of that.
func (o *outlet) pleased(p *plan, outcomes []sinks.Outcome) {
	if p == nil || !p.alone {
		return
	}
	for i, t := range p.tickets {
		if t != (sinks.Ticket{}) && outcomes[i].Result != sinks.Delivered {
			return
		}
	}
	o.picky = false
}

// turnedDown says that an exact sink has none of a batch, and wants it planned
// anew: that is no trouble of the sink.
func (e *engine) turnedDown(o *outlet, outcomes []sinks.Outcome) bool {
	if o.exact == nil || slices.ContainsFunc(outcomes, func(o sinks.Outcome) bool { return o.Result != sinks.Unsent || o.Reason != sinks.ReasonNeighbour }) {
		return false
	}
	o.pauseUntil = time.Now().Add(planPause)
	return true
}

// planPause keeps a sink that turns everything down from keeping a core busy.
const planPause = 10 * time.Millisecond

// uncharged makes of a lost answer one that charges nothing: the batch will be
// sent again as it was, once the sink is there.
func uncharged(o sinks.Outcome) sinks.Outcome {
	if o.Result == sinks.Retry {
		o.Result = sinks.Unavailable
	}
	return o
}

// written lists the lane's tickets, as they are written down.
func (l *lane) written() []Ticket {
	var j Journal
	for _, ref := range slices.SortedFunc(maps.Keys(l.tickets), func(a, b rowRef) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.check, b.check)) }) {
		t := l.tickets[ref]
		j.add(t.batch.sink, sinks.Ticket{Batch: t.batch.name, Size: t.batch.size, Place: t.place}, ref)
	}
	return j.Tickets
}

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

// fates are what became of rows that were in doubt.
type fates map[rowRef]sinks.Outcome

// resolve sends batches again, with all of their rows that are still there,
// also those of lanes that are another relay's: it may do the same, and the sink
// has them once.
func (e *engine) resolve(ctx context.Context, o *outlet, doubts []*exactBatch) (fates, []sinks.Outcome, error) {
	journals, err := e.journaler.Journals(ctx)
	if err != nil {
		return nil, nil, err
	}
	tickets := ticketsOf(journals, o.name, doubts)
	ids := make([]RowID, 0, len(tickets))
	for ref := range tickets {
		ids = append(ids, RowID{ref.lane, ref.id})
	}
	slices.SortFunc(ids, func(a, b RowID) int { return cmp.Or(a.Lane-b.Lane, cmp.Compare(a.ID, b.ID)) })
	rows, err := e.journaler.Pick(ctx, slices.Compact(ids))
	rows = slices.DeleteFunc(rows, func(r Row) bool { return tickets[r.ref()] == sinks.Ticket{} }) // another message's now
	if err != nil || len(rows) == 0 {
		return nil, nil, err
	}
	messages := again(rows, tickets)
	outcomes := complete(send(ctx, o.options.Sink, messages), len(messages))
	known := fates{}
	for i := range messages {
		known[rows[i].ref()] = outcomes[i]
	}
	return known, outcomes, nil
}

// ticketsOf finds every row of these batches in the journals.
func ticketsOf(journals []Journal, sink string, batches []*exactBatch) map[rowRef]sinks.Ticket {
	found := map[rowRef]sinks.Ticket{}
	for _, j := range journals {
		for _, t := range j.Tickets {
			if t.Sink != sink || !slices.ContainsFunc(batches, func(b *exactBatch) bool { return b.name == t.Batch }) {
				continue
			}
			t.each(j.Lane, func(ref rowRef, place int) {
				found[ref] = sinks.Ticket{Batch: t.Batch, Size: t.Size, Place: place}
			})
		}
	}
	return found
}

// again sorts the rows as they were sent.
func again(rows []Row, tickets map[rowRef]sinks.Ticket) []sinks.Message {
	ticketOf := func(r Row) sinks.Ticket { return tickets[r.ref()] }
	slices.SortFunc(rows, func(a, b Row) int {
		x, y := ticketOf(a), ticketOf(b)
		return cmp.Or(cmp.Compare(x.Batch, y.Batch), x.Place-y.Place)
	})
	messages := make([]sinks.Message, len(rows))
	for i, row := range rows {
		messages[i] = (&item{row: row}).message()
		messages[i].Ticket = ticketOf(row)
	}
	return messages
}
