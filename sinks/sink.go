// Package sinks defines what a destination of messages is: the [Sink]
// contract, the [Outcome] that a sink reports for every message, and the
// [Registry] that makes sinks by name.
//
// Each sink has a package of its own below this one. The suite that all of
// them pass is in sinktest.
package sinks

import (
	"context"
	"database/sql"
	"errors"
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

	// BatchRef is the message's place in a planned batch, for a sink that is
	// [Deduplicating].
	BatchRef BatchRef
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

// Checker is implemented by a Sink whose Open creates what is missing at the destination.
// Check finds out, as Open does, whether the destination can be used, and creates nothing. What
// Open would create may be missing. rowrelay check calls it in the place of Open.
type Checker interface {
	Check(ctx context.Context) error
}

// Destined is implemented by a Sink that can say what it is and where it leads, in a few words
// and without secrets: "http https://example.org". Where it can't, its type is told. By this relays know whether their
// sinks are the same.
type Destined interface {
	Destination() string
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

// OneByOne is implemented by a Sink that hands messages over one by one, as to a
// function: the relay calls SendEach in the place of Send, and its time-out is each
// message's. SendEach gives each message a context of its own that ends after so
// long, and begins none once less than that is left of ctx: the rest is [Unsent].
// [Fan] does that.
type OneByOne interface {
	SendEach(ctx context.Context, each time.Duration, batch []Message) []Outcome
}

// TxSink is a Sink in the relay's own process whose writes go to the same
// database as the messages. A relay over a SQL store calls HandleTx instead of
// Send, inside a transaction that the relay owns and in which it has already
// marked the message as delivered: where the outcome is [Delivered] it commits,
// and so the effect of the handler and the mark happen together, exactly once;
// otherwise it rolls both back and settles the outcome by itself.
//
// HandleTx must not commit, roll back or keep the transaction. It may be called
// concurrently, for one message of a key at a time.
//
// Send is for a relay that has no such transaction to offer. It delivers
// nothing: its outcomes are [Unavailable] with [ReasonConfig].
type TxSink interface {
	Sink
	HandleTx(ctx context.Context, tx *sql.Tx, m Message) Outcome
}

// Deduplicating is implemented by a Sink whose destination recognises a batch that
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
type Deduplicating interface {
	Sink

	// Plan says in which planned batches the messages are to go, and sends
	// nothing. A message without a reference in the answer is not sent now: its
	// outcome says why. Of references whose Send never comes, nothing may be used
	// again.
	Plan(ctx context.Context, batch []Message) ([]BatchRef, []Outcome)

	// Send, of messages with references, sends each planned batch that it has whole,
	// for the first time or again. Of one that it has not whole, it finds out
	// whether the destination has it. Where finding out takes longer than a Send,
	// the outcome is open, its detail says how far the sink has come, and the next
	// Send goes on from there. [Delivered] says that the message is
	// there, from now or from before. An outcome that [IsOpen] leaves open
	// whether it is: the reference holds, and with it the message's key. An open
	// [Retry] concerns this batch only, [Unavailable] the whole sink. Any other
	// outcome promises that the message is not there, and never will be by this
	// reference.
	Send(ctx context.Context, batch []Message) []Outcome
}

// BatchRef is a message's place in a planned batch. The zero BatchRef is none.
type BatchRef struct {
	Batch string // the batch's name, which any relay understands; at most 200 bytes
	Size  int    // messages in the batch
	Place int    // 0 is the first
}

// IsOpen says that nobody knows whether a deduplicating sink has a message: it was
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

// OpenError is an error of Open that says why the destination can't be used, in
// the word that metrics and logs show. Any other error counts as
// [ReasonConnection].
type OpenError struct {
	Reason Reason // one of those of Unavailable: connection, throttled, auth or config
	Detail string // for the operator, without secrets
}

// Error returns the detail.
func (e *OpenError) Error() string { return e.Detail }

// Unopened returns the Outcome that an error of Open stands for.
func Unopened(err error) Outcome {
	var known *OpenError
	if errors.As(err, &known) {
		return Fail(Unavailable, known.Reason, err.Error())
	}
	return Fail(Unavailable, ReasonConnection, err.Error())
}
