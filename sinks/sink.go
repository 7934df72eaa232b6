// Package sinks defines the interface between the relay and the destinations of
// messages: the [Sink] contract, the [Outcome] that a sink returns for every
// message, and the [Registry] that makes a sink from its settings or its URL.
//
// Each sink has its own package below this one. Package sinktest has the
// conformance suite that all sinks pass.
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
// The relay calls Open before the first Send. It calls Open again, with back-off,
// after each Send that returned [Unavailable] and when all messages fail. The sink
// may still be connected when this happens. A Sink that needs no
// connection returns nil from Open.
//
// The relay may call Send concurrently; the sink's configured number of workers is
// the maximum. It never calls Open or Close while a Send is running. It calls Close
// once, at the end, even if Open never succeeded. If a Send never returns, the relay
// doesn't call Close. Close must release all resources.
//
// Send must return soon after its context ends, and must not send anything after that.
// Messages that Send has not begun to send are [Unsent] with [ReasonCancelled]. The
// context ends before the relay's lease does, because another relay may deliver the same
// messages once the lease has expired.
type Sink interface {
	// Open prepares the sink for Send. An error means that the destination can't
	// be used now. The relay charges no message an attempt and calls Open again.
	// The error may be, or wrap, an [OpenError].
	Open(ctx context.Context) error

	// Send sends a batch and returns one [Outcome] per message, in the order of
	// the batch. The batch is never empty, its messages are in the order in which
	// they were written, and it is valid only until Send returns. If Send returns
	// too few outcomes, each missing one counts as a [Retry] with
	// [ReasonUnknown].
	Send(ctx context.Context, batch []Message) []Outcome

	// Close releases the sink's resources. The relay doesn't call Send afterwards.
	Close(ctx context.Context) error
}

// Message is a message as the application wrote it, with the relay's data about it.
type Message struct {
	outbox.Message

	// Sequence is the position of the message in its table. Of two messages with
	// the same key, the one with the lower Sequence is delivered first.
	Sequence int64

	// Attempt is the number of charged attempts, including this one. It is 1 for the first
	// attempt.
	Attempt int

	// CreatedAt is the time at which the message was written, on the database's clock.
	CreatedAt time.Time

	// BatchRef is the message's position in a planned batch. Only a [Deduplicating]
	// sink uses it.
	BatchRef BatchRef
}

// Order is the guarantee that a sink gives about the messages of one batch.
type Order int

const (
	// OrderNone guarantees nothing: a sink may deliver any subset of the batch. So
	// the relay puts at most one message of each key into a batch. OrderNone
	// applies to a sink that doesn't implement [Ordered].
	OrderNone Order = iota

	// OrderPrefix guarantees that for each key, the delivered messages are the first ones of
	// the key in the batch. If a message is not delivered, all later messages of its key are
	// [Unsent]. This also holds after a [Reject]: the sink must not deliver a later message
	// of the key before the relay has recorded that the rejected message is parked.
	OrderPrefix

	// OrderAtomic guarantees that a batch is delivered either completely or not at all.
	OrderAtomic
)

// Ordered is implemented by a Sink that guarantees more than [OrderNone].
type Ordered interface {
	Order() Order
}

// Checker is implemented by a Sink whose Open creates missing objects at the destination.
// Check reports, as Open does, whether the destination can be used, but creates nothing. If an
// object is missing that Open would create, Check reports no error. The command rowrelay check
// calls Check instead of Open.
type Checker interface {
	Check(ctx context.Context) error
}

// Renewable is implemented by a Sink that can replace its secrets and certificates while it is in use.
//
// Renew takes over the secrets and certificates of a sink of the same type, whose other settings are the same. New connections
// and requests use the new secrets and certificates. Connections and requests in progress continue with the previous ones.
// Renew may be called concurrently with Send. The caller closes the other sink afterwards.
type Renewable interface {
	Renew(with Sink)
}

// Destined is implemented by a Sink that can describe itself and its destination in a few words,
// without secrets, such as "kafka host:9092, topic orders". The description of any other sink is the
// name of its Go type. Relays compare the descriptions to find out whether they have the same sinks.
type Destined interface {
	Destination() string
}

// Addressing is implemented by a Sink that sends to a message broker. The relay's trace spans contain the address.
type Addressing interface {
	// Address returns the destination of a topic's messages, without contacting the broker.
	Address(topic string) Address
}

// Address is a destination at a message broker, in OpenTelemetry's terms. If the destination depends on more than the message's
// topic, the Address contains placeholders such as {key} instead of values, because spans must not contain keys.
type Address struct {
	System     string // the messaging system, such as "kafka"
	Name       string // a topic or queue, or an exchange and routing key
	RoutingKey string // RabbitMQ's routing key; empty for other systems
}

// Limits are the limits that a sink sets for the relay. Zero means that the sink sets
// no limit. The relay's own limits apply in any case.
type Limits struct {
	Messages int // maximum number of messages in a batch
	Bytes    int // maximum total size of the payloads in a batch; a larger message is sent alone
	Workers  int // maximum number of concurrent calls to Send
}

// Limited is implemented by a Sink that has [Limits].
type Limited interface {
	Limits() Limits
}

// OneByOne is implemented by a Sink that sends messages one by one, for example to
// a function. The relay calls SendEach instead of Send, so that the sink's time-out
// applies to each message and not to the batch. SendEach gives each message its own
// context, which ends after the duration in the second argument. After ctx has ended,
// SendEach doesn't begin to send any other message. The remaining messages are [Unsent].
// [Fan.SendEach] helps to implement it.
type OneByOne interface {
	SendEach(ctx context.Context, each time.Duration, batch []Message) []Outcome
}

// TxSink is a Sink in the relay's process that writes to the database that contains the
// messages. A relay with a SQL store calls HandleTx instead of Send. The call runs inside
// a transaction of the relay in which the relay has already marked the message as
// delivered. If the outcome is [Delivered], the relay commits this change together with
// the handler's writes, which therefore take effect exactly once. Otherwise the relay
// rolls the transaction back and settles the outcome separately.
//
// HandleTx must not commit, roll back or keep the transaction. It may be called
// concurrently, but only for one message of a key at a time.
//
// A relay without a SQL store calls Send, which delivers nothing: its outcomes are
// [Unavailable] with [ReasonConfig].
type TxSink interface {
	Sink
	HandleTx(ctx context.Context, tx *sql.Tx, m Message) Outcome
}

// Deduplicating is implemented by a Sink whose destination recognises a repeated batch,
// provided that the repetition has the same name, and the same messages in the same
// order. So the destination stores each message only once, even if a relay dies after
// the destination has answered and before the relay marks the messages as delivered.
//
// The relay calls Plan, stores the plan, and then calls Send. If the outcome of a batch
// is unknown, or the relay dies before it has stored the outcome, a relay first sends the
// batch again, as the stored plan describes. If the outcome is still unknown, the relay
// tries again later, and meanwhile plans messages of other keys.
//
// The relay makes one call to Plan at a time, possibly while it sends earlier plans.
// Sends of different plans may run concurrently and end in any order. So the outcome
// of one plan must not affect another plan. A sink that can't guarantee this sets
// [Limits] to one worker.
type Deduplicating interface {
	Sink

	// Plan assigns messages to planned batches and sends nothing. If Plan returns no
	// reference for a message, the relay doesn't send the message now, and its outcome gives
	// the reason. The relay may drop a reference without sending its message. Even then, the
	// sink must not reuse the batch's name or the identifiers that the name contains.
	Plan(ctx context.Context, batch []Message) ([]BatchRef, []Outcome)

	// Send receives messages with references. If all messages of a planned batch are
	// present, Send sends the batch, for the first time or again. If some are missing, Send
	// sends nothing and finds out whether the destination has the batch. If Send can't find
	// out within one call, the outcomes are open (see [IsOpen]), their details report the
	// progress, and the next call continues.
	//
	// [Delivered] means that the destination has stored the message, in this Send or an
	// earlier one. If [IsOpen] returns true for an outcome, the destination may or may not
	// have the message; the relay keeps the reference, and the key waits. An open [Retry]
	// affects only this batch; an open [Unavailable] affects the whole sink. Any other
	// outcome guarantees that the destination does not have the message, and will never have
	// it because of this reference.
	Send(ctx context.Context, batch []Message) []Outcome
}

// BatchRef is a message's position in a planned batch. The zero BatchRef means that the
// message is in no planned batch.
type BatchRef struct {
	Batch string // the batch's name, which every relay can interpret; at most 200 bytes
	Size  int    // number of messages in the batch
	Place int    // position of the message in the batch, from 0
}

// IsOpen reports whether an outcome of a deduplicating sink is open, which means that
// the destination may or may not have the message. An outcome is open if the sink was
// unavailable or panicked, or if the answer was lost. It is also open if the context ended
// before the message was sent, because an earlier Send may have sent the message.
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

// OpenError is an error that Open returns to set the [Reason] that metrics and logs
// show. All other errors of Open count as [ReasonConnection].
type OpenError struct {
	Reason Reason // connection, throttled, auth or config
	Detail string // for the operator, without secrets
}

// Error returns the detail.
func (e *OpenError) Error() string { return e.Detail }

// Unopened returns the Outcome of messages that can't be sent because Open failed.
func Unopened(err error) Outcome {
	var known *OpenError
	if errors.As(err, &known) {
		return Fail(Unavailable, known.Reason, err.Error())
	}
	return Fail(Unavailable, ReasonConnection, err.Error())
}
