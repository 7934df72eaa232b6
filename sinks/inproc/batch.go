package inproc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// BatchHandler handles several messages together. If it returns nil, all messages are
// delivered. If it returns [Errors], each message has its own error. Any other error
// applies to all messages. The handler must not change the messages, nor keep them
// after it has returned.
type BatchHandler func(ctx context.Context, batch []sinks.Message) error

// Errors is the error that a [BatchHandler] returns to give each message its own
// outcome. Its elements are in the order of the batch; an element is nil if its message
// was handled. If Errors has too few elements, the remaining messages are retried.
type Errors []error

// Error returns the number of failed messages and the first error.
func (e Errors) Error() string {
	failed := slices.DeleteFunc(slices.Clone(e), func(err error) bool { return err == nil })
	if len(failed) == 0 {
		return "no message failed"
	}
	return fmt.Sprintf("%d of %d messages failed, the first: %v", len(failed), len(e), failed[0])
}

// BatchOptions configure a [BatchSink]. The zero value is valid.
type BatchOptions struct {
	// Messages is the maximum number of messages in a batch. Defaults to
	// [DefaultBatch].
	Messages int

	// Concurrency is the maximum number of concurrent calls to the handler. Defaults
	// to 1.
	Concurrency int

	// Order is the order that the handler guarantees within a batch. Defaults to
	// sinks.OrderNone: then no two messages of a batch have the same key. Use
	// sinks.OrderAtomic for a handler that handles all messages or none. Then a batch
	// can contain many messages of a busy key.
	Order sinks.Order
}

// BatchSink calls a handler for batches of messages. Its methods may be called
// concurrently.
type BatchSink struct {
	handler BatchHandler
	options BatchOptions
}

var (
	_ sinks.Sink    = (*BatchSink)(nil)
	_ sinks.Ordered = (*BatchSink)(nil)
	_ sinks.Limited = (*BatchSink)(nil)
)

// Batch returns a sink that calls a batch handler. If the handler is nil, Batch
// returns nil, which relay.New refuses.
func Batch(handler BatchHandler, options BatchOptions) *BatchSink {
	if handler == nil {
		return nil
	}
	if options.Messages <= 0 {
		options.Messages = DefaultBatch
	}
	options.Concurrency = max(options.Concurrency, 1)
	return &BatchSink{handler: handler, options: options}
}

// Open does nothing.
func (s *BatchSink) Open(context.Context) error { return nil }

// Close does nothing.
func (s *BatchSink) Close(context.Context) error { return nil }

// Destination returns "in-process handler".
func (s *BatchSink) Destination() string { return "in-process handler" }

// Order returns the order of the options.
func (s *BatchSink) Order() sinks.Order { return s.options.Order }

// Limits returns the limits of the options.
func (s *BatchSink) Limits() sinks.Limits {
	return sinks.Limits{Messages: s.options.Messages, Workers: s.options.Concurrency}
}

// Send calls the handler. If the handler panics, the whole batch is retried.
func (s *BatchSink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Cancelled())
	}
	err := recovered(func() error { return s.handler(ctx, batch) })
	each, ok := errors.AsType[Errors](err)
	if !ok {
		return sinks.All(len(batch), outcomeOf(ctx, err))
	}
	outcomes := sinks.All(len(batch), sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the inproc.Errors of the handler has no element for this message"))
	for i := range min(len(batch), len(each)) {
		outcomes[i] = outcomeOf(ctx, each[i])
	}
	return outcomes
}
