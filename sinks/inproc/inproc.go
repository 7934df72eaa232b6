// Package inproc has sinks that call functions of the application in the relay's process. These
// functions are called handlers.
//
//   - [Func] and [New] call a [Handler] for each message. [Mux] selects a
//     handler by topic, [JSON] decodes the payload for it, and [Wrap] adds
//     [Middleware].
//   - [Batch] calls a function for a batch of messages.
//   - [Tx] calls a handler in the transaction that marks the message as
//     delivered, so that the handler's writes to the same database take
//     effect exactly once.
//
// The error that a handler returns determines the outcome:
//
//	nil                        delivered
//	any error                  retry after a back-off; a repeated failure charges an attempt
//	RetryAfter(err, d)         retry after d at the earliest
//	Permanent(err)             park the message
//	Unavailable(err)           pause the sink; the message is charged no attempt
//
// A panic counts as a retry, and the message's last error shows where in the code it happened. The
// text of an error is stored as the message's last error, so it must not contain secrets.
//
// Handlers must return soon after their context ends: nothing can stop a handler from outside, and
// the relay waits for it. A message may be handled twice, with the same id; the relay's
// documentation lists the reasons. With [Tx], writes to the messages' database take effect only once.
package inproc

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// DefaultBatch is the default maximum number of messages in a batch.
const DefaultBatch = 100

// Handler handles one message. It must not change the message, nor keep its payload or headers
// after it has returned.
type Handler func(ctx context.Context, m sinks.Message) error

// Options configure a [Sink]. The zero value is valid.
type Options struct {
	// Concurrency is the maximum number of messages that are handled concurrently. Messages of one
	// key are never handled concurrently. Defaults to 1; then the handler needs no locks.
	Concurrency int

	// Batch is the maximum number of messages in a batch. The relay stores the outcomes of a batch
	// together. So after a crash, it may send up to Batch messages again for each of the sink's workers.
	// Defaults to [DefaultBatch].
	Batch int
}

// Sink calls a handler for each message. Its methods may be called
// concurrently.
type Sink struct {
	handler Handler
	fan     *sinks.Fan
	batch   int
}

var (
	_ sinks.Sink     = (*Sink)(nil)
	_ sinks.Ordered  = (*Sink)(nil)
	_ sinks.Limited  = (*Sink)(nil)
	_ sinks.OneByOne = (*Sink)(nil)
)

// Func returns a sink that calls a handler for one message at a time. If the handler is nil,
// Func returns nil, which relay.New refuses.
func Func(handler Handler) *Sink { return New(handler, Options{}) }

// New returns a sink that calls a handler. If the handler is nil, New returns nil, which relay.New
// refuses.
func New(handler Handler, options Options) *Sink {
	if handler == nil {
		return nil
	}
	batch := options.Batch
	if batch <= 0 {
		batch = DefaultBatch
	}
	return &Sink{handler: handler, fan: sinks.NewFan(options.Concurrency), batch: batch}
}

// Open does nothing.
func (s *Sink) Open(context.Context) error { return nil }

// Close does nothing.
func (s *Sink) Close(context.Context) error { return nil }

// Destination returns "in-process handler".
func (s *Sink) Destination() string { return "in-process handler" }

// Order returns [sinks.OrderPrefix].
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Limits returns the maximum size of a batch.
func (s *Sink) Limits() sinks.Limits { return sinks.Limits{Messages: s.batch} }

// Send calls the handler for the messages of a batch. It waits for all running calls to return,
// even after the context has ended.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return s.SendEach(ctx, 0, batch)
}

// SendEach is like Send, but limits each call to the handler to the given duration.
func (s *Sink) SendEach(ctx context.Context, each time.Duration, batch []sinks.Message) []sinks.Outcome {
	return s.fan.SendEach(ctx, each, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome {
		return outcomeOf(ctx, recovered(func() error { return s.handler(ctx, m) }))
	})
}
