// Package sinks defines what a destination of messages is: the [Sink]
// contract, the [Outcome] that a sink reports for every message, and the
// [Registry] that makes sinks by name.
//
// Each sink has a package of its own below this one. The suite that all of
// them pass is in sinktest.
package sinks

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
)

// Sink delivers messages to one destination.
//
// The relay calls Open before the first Send, and again, with back-off, after
// each Send that reported [Unavailable], or when all messages fail; so also where
// nothing is wrong with what is open. A Sink that needs no connection
// returns nil. Send may be called by several goroutines at once, as many as
// the relay was told to use workers for this sink; Open and Close are never
// called while a Send is running. Close is called once, at the end, also
// where Open never succeeded, but not where a Send never returned; it must
// release everything.
//
// Send has to return soon after its context ends, and hands over nothing any
// more from then on: what it has not begun is [Unsent] with [ReasonCancelled].
// The context ends before the relay's lease does: what is delivered after it
// may be delivered by another relay too.
type Sink interface {
	// Open makes the sink ready. An error means that the destination can't be
	// reached now; it charges no message an attempt and is tried again. It may
	// be, or wrap, an [OpenError].
	Open(ctx context.Context) error

	// Send hands over a batch and returns one [Outcome] a message, in the
	// batch's order. The batch is never empty, its messages stand in the order
	// in which they were written, and it is valid only until Send returns.
	// A missing outcome (a short answer) counts as a retry with an unknown
	// result.
	Send(ctx context.Context, batch []Message) []Outcome

	// Close gives back what the sink holds. No Send follows.
	Close(ctx context.Context) error
}

// Message is what a Sink receives: a message as it was written, and what the
// relay knows of it.
type Message struct {
	outbox.Message

	// Sequence is the message's place in its table: of two messages with one
	// key, the one with the lower Sequence is delivered first.
	Sequence int64

	// Attempt counts the deliveries that were charged, this one included: 1
	// the first time.
	Attempt int

	// CreatedAt is when the message was written, by the database's clock.
	CreatedAt time.Time

	// Ticket is the message's place in an exact batch, for a sink that is
	// [Exact].
	Ticket Ticket
}

// Order is what a sink promises about the messages of one batch.
type Order int

const (
	// OrderNone promises nothing: any message of the batch may be delivered
	// while another is not. The relay then puts at most one message of a key
	// into a batch. It is what a sink that doesn't implement [Ordered] gets.
	OrderNone Order = iota

	// OrderPrefix promises that what is delivered is a prefix of the batch
	// within each key: after the first message of a key that is not delivered,
	// no later one of that key is; they are [Unsent]. This holds after a
	// [Reject] too: until it is written down that the message is parked, none
	// may pass it.
	OrderPrefix

	// OrderAtomic promises that a batch is delivered whole or not at all.
	OrderAtomic
)

// Ordered is implemented by a Sink that promises more than [OrderNone].
type Ordered interface {
	Order() Order
}

// Limits bound the batches that a sink is given. Zero means no limit of the
// sink's own; the relay's apply in any case.
type Limits struct {
	Messages int // most messages a batch
	Bytes    int // most bytes of payload a batch; a larger message travels alone
	Workers  int // most calls of Send at once
}

// Limited is implemented by a Sink with limits of its own.
type Limited interface {
	Limits() Limits
}
