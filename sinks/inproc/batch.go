package inproc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// BatchHandler handles several messages at once. Nil means that all of them are
// delivered, [Errors] speaks of each message by itself, and any other error
// means all of them. It must not change the messages, nor keep them after it
// has returned.
type BatchHandler func(ctx context.Context, batch []sinks.Message) error

// Errors is what a [BatchHandler] returns to tell its messages apart: one error
// a message, in the order of the batch, nil where it was handled. A message
// without an element is tried again.
type Errors []error

// Error counts the errors and repeats the first one.
func (e Errors) Error() string {
	failed := slices.DeleteFunc(slices.Clone(e), func(err error) bool { return err == nil })
	if len(failed) == 0 {
		return "no message failed"
	}
	return fmt.Sprintf("%d of %d messages failed, the first: %v", len(failed), len(e), failed[0])
}

// BatchOptions say how a batch handler is called. The zero value is fine.
type BatchOptions struct {
	// Messages is how many messages the handler is given, at most. Defaults to
	// [DefaultBatch].
	Messages int

	// Concurrency is how often the handler runs at the same time, at most. Defaults
	// to 1.
	Concurrency int

	// Order is what the handler promises about the messages of a batch.
	// Defaults to sinks.OrderNone: then no two messages of a batch have the
	// same key. sinks.OrderAtomic is right for a handler that handles all or
	// nothing, and makes the batches of a busy key larger.
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

// Batch returns a sink that calls a batch handler. Without one it returns nil, which
// relay.New refuses.
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

// Order is what the options promise.
func (s *BatchSink) Order() sinks.Order { return s.options.Order }

// Limits are those of the options.
func (s *BatchSink) Limits() sinks.Limits {
	return sinks.Limits{Messages: s.options.Messages, Workers: s.options.Concurrency}
}

// Send calls the handler. A panic is a retry of the whole batch.
func (s *BatchSink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Cancelled())
	}
	err := recovered(func() error { return s.handler(ctx, batch) })
	each, ok := errors.AsType[Errors](err)
	if !ok {
		return sinks.All(len(batch), outcomeOf(ctx, err))
	}
	outcomes := sinks.All(len(batch), sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the handler said nothing about this message"))
	for i := range min(len(batch), len(each)) {
		outcomes[i] = outcomeOf(ctx, each[i])
	}
	return outcomes
}
