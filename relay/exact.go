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
// is in doubt, its outlet sends nothing else.
type exactBatch struct {
	sink    string
	name    string
	size    int
	inDoubt bool // the sink may have it or not
	trying  bool // it is being sent again
	crashes int  // relays that died while they did so
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
}

// startExactly sends one batch, once its plan is written down.
func (e *engine) startExactly(o *outlet) {
	if o.busy > 0 || e.care.writing || o.queue.empty() {
		return
	}
	if batch := e.takeBatch(o); len(batch) > 0 {
		e.care.writing = true
		e.give(o, job{batch: batch, journals: e.journals(false), plan: &plan{}})
	}
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
		j.journals[at].add(o.name, tickets[i], it.row.ID)
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
func (j *Journal) add(sink string, t sinks.Ticket, id int64) *Ticket {
	at := slices.IndexFunc(j.Tickets, func(other Ticket) bool { return other.Batch == t.Batch })
	if at < 0 {
		at = len(j.Tickets)
		j.Tickets = append(j.Tickets, Ticket{Sink: sink, Batch: t.Batch, Size: t.Size})
	}
	own := &j.Tickets[at]
	own.IDs, own.Places = append(own.IDs, id), append(own.Places, t.Place)
	return own
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
		j.batch[i].lane.tickets[j.batch[i].row.ID] = &ticket{batch: batches[t.Batch], place: t.Place}
	}
}

// perhapsWritten keeps the tickets of a batch that was not sent, as its plan may
// have been written down: another relay that takes over a lane may send it.
func (e *engine) perhapsWritten(result sendResult) {
	e.note(result.job)
	for _, it := range result.job.batch {
		if t := it.lane.tickets[it.row.ID]; t != nil {
			e.doubt(result.outlet, t.batch)
		}
	}
}

// weigh says what an outcome of an exact sink means for a row's ticket: it
// holds where this is open, and is over where the sink doesn't have the message.
func (e *engine) weigh(it *item, outcome sinks.Outcome) sinks.Outcome {
	t := it.lane.tickets[it.row.ID]
	switch {
	case t == nil || outcome.Result == sinks.Delivered:
	case sinks.IsOpen(outcome):
		outcome = uncharged(outcome)
		e.doubt(it.outlet, t.batch)
	default:
		delete(it.lane.tickets, it.row.ID)
	}
	return outcome
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

// fates are what became of rows that were in doubt.
type fates map[RowID]sinks.Outcome

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
	for id := range tickets {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b RowID) int { return cmp.Or(a.Lane-b.Lane, cmp.Compare(a.ID, b.ID)) })
	rows, err := e.journaler.Pick(ctx, ids)
	if err != nil || len(rows) == 0 {
		return nil, nil, err
	}
	messages := again(rows, tickets)
	outcomes := complete(send(ctx, o.options.Sink, messages), len(messages))
	known := fates{}
	for i, m := range messages {
		known[RowID{rows[i].Lane, m.Sequence}] = outcomes[i]
	}
	return known, outcomes, nil
}

// ticketsOf finds every row of these batches in the journals.
func ticketsOf(journals []Journal, sink string, batches []*exactBatch) map[RowID]sinks.Ticket {
	found := map[RowID]sinks.Ticket{}
	for _, j := range journals {
		for _, t := range j.Tickets {
			if t.Sink != sink || !slices.ContainsFunc(batches, func(b *exactBatch) bool { return b.name == t.Batch }) {
				continue
			}
			for i := range min(len(t.IDs), len(t.Places)) {
				found[RowID{j.Lane, t.IDs[i]}] = sinks.Ticket{Batch: t.Batch, Size: t.Size, Place: t.Places[i]}
			}
		}
	}
	return found
}

// again sorts the rows as they were sent.
func again(rows []Row, tickets map[RowID]sinks.Ticket) []sinks.Message {
	ticketOf := func(r Row) sinks.Ticket { return tickets[RowID{r.Lane, r.ID}] }
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

// written lists the lane's tickets, as they are written down.
func (l *lane) written() []Ticket {
	var j Journal
	for _, id := range slices.Sorted(maps.Keys(l.tickets)) {
		t := l.tickets[id]
		own := j.add(t.batch.sink, sinks.Ticket{Batch: t.batch.name, Size: t.batch.size, Place: t.place}, id)
		if own.Crashes = t.batch.crashes; t.batch.trying {
			own.Crashes++
		}
	}
	return j.Tickets
}
