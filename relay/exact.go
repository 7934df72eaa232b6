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
