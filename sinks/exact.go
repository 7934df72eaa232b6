package sinks

import "context"

// Exact is implemented by a Sink whose destination recognises a batch that
// comes again, if it comes again exactly: the same messages, in the same order,
// under the same name. No message is then there twice, even where a relay dies
// between the destination's answer and the mark.
//
// The relay asks for a plan, writes it down, and then sends. What a Send left
// open, or a relay that died, is sent again by the plan before anything else is
// planned.
//
// Plans are asked for one at a time, while what was planned before may be on its
// way; Sends of different plans may be under way at once, and end in any order. So
// what becomes of one must not change another's fate. A sink that can't promise
// this has [Limits] of one worker.
type Exact interface {
	Sink

	// Plan says in which exact batches the messages are to go, and sends
	// nothing. A message without a ticket in the answer is not sent now: its
	// outcome says why. Of tickets whose Send never comes, nothing may be used
	// again.
	Plan(ctx context.Context, batch []Message) ([]Ticket, []Outcome)

	// Send, of messages with tickets, sends each exact batch that it has whole,
	// for the first time or again. Of one that it has not whole, it finds out
	// whether the destination has it. Where finding out takes longer than a Send,
	// it is [Unavailable] with [ReasonBusy], the detail says how far it has come,
	// and the next Send goes on from there. [Delivered] says that the message is
	// there, from now or from before. An outcome that [IsOpen] leaves open
	// whether it is: the ticket holds. Any other one promises that the message
	// is not there, and never will be by this ticket.
	Send(ctx context.Context, batch []Message) []Outcome
}

// Ticket is a message's place in an exact batch. The zero Ticket is none.
type Ticket struct {
	Batch string // the batch's name, which any relay understands; at most 200 bytes
	Size  int    // messages in the batch
	Place int    // 0 is the first
}

// IsOpen says that nobody knows whether an exact sink has a message: it was
// unavailable, its answer was lost, or the context ended before it was asked.
func IsOpen(o Outcome) bool {
	switch o.Result {
	case Unavailable:
		return true
	case Retry:
		return o.Reason == ReasonUnknown || o.Reason == ReasonTimeout || o.Reason == ReasonPanic
	case Unsent:
		return o.Reason == ReasonCancelled
	}
	return false
}
