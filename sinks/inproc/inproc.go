// Package inproc has sinks that are functions of the application itself, for
// handlers that run where the relay runs.
//
//   - [Func] and [New] call a [Handler] for each message. [Mux] chooses a
//     handler by topic, [JSON] decodes the payload for it, and [Wrap] lays
//     [Middleware] around it.
//   - [Batch] calls a function for a batch of messages.
//   - [Tx] calls a handler inside the transaction that marks the message as
//     delivered, so that what it writes to the same database happens exactly
//     once.
//
// A handler says with its error what is to become of the message:
//
//	nil                        delivered
//	any error                  try again after a back-off, which costs an attempt
//	RetryAfter(err, d)         try again after d at the earliest
//	Permanent(err)             never try again: the message is parked
//	Unavailable(err)           what the handler needs is down: the sink waits, no attempt is charged
//
// A panic is a retry, and its place in the code is kept with the message. An
// error's text is stored with the message as its last error, so it should hold
// no secret.
//
// Handlers must return soon after their context ends: nothing can stop them
// from outside, and the relay waits for them. A message may come twice, with
// the same id, for the reasons that the relay's documentation names; [Tx] is the
// way out where the effect is a write to the same database.
package inproc

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// DefaultBatch is how many messages a [Sink] takes at once by default.
const DefaultBatch = 100

// Handler handles one message. It must not change the message, nor keep its
// payload or headers after it has returned.
type Handler func(ctx context.Context, m sinks.Message) error

// Options say how a handler is called. The zero value is fine.
type Options struct {
	// Concurrency is how many messages are handled at once, at most. Messages
	// of one key are handled one after the other in any case. Defaults to 1:
	// then the handler needs no locks.
	Concurrency int

	// Batch is how many messages the relay hands over at once, at most. Their
	// outcomes are written back together, so after a crash so many messages of
	// each of the relay's workers may be handled again. Defaults to
	// [DefaultBatch].
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

// Func returns a sink that calls a handler for one message after the other. Without
// one it returns nil, which relay.New refuses.
func Func(handler Handler) *Sink { return New(handler, Options{}) }

// New returns a sink that calls a handler. Without one it returns nil, which relay.New
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

// Order promises that what is handled is a prefix of the batch within each key.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Limits bounds a batch.
func (s *Sink) Limits() sinks.Limits { return sinks.Limits{Messages: s.batch} }

// Send calls the handler for the messages of a batch. It waits for the handlers
// that it has called, also when the context has ended.
func (s *Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return s.SendEach(ctx, 0, batch)
}

// SendEach is Send, and each call of the handler may take so long.
func (s *Sink) SendEach(ctx context.Context, each time.Duration, batch []sinks.Message) []sinks.Outcome {
	return s.fan.SendEach(ctx, each, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome {
		return outcomeOf(ctx, recovered(func() error { return s.handler(ctx, m) }))
	})
}
