package relay

import (
	"cmp"
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

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
