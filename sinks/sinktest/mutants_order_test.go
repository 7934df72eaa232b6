package sinktest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

var orderMutants = []mutant{
	{"delivers a batch backwards", "OrderWithinKey", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			backwards := slices.Clone(batch)
			slices.Reverse(backwards)
			outcomes := b.reference.Send(ctx, backwards)
			slices.Reverse(outcomes)
			return outcomes
		}
	}},
	{"delivers later messages of a key after a failure", "RetryHoldsItsKey", func(b *bent) { b.send = b.eachAlone }},
	{"promises all or nothing and delivers some", "RetryHoldsItsKey", func(b *bent) {
		b.promise = sinks.OrderAtomic
		b.send = b.eachAlone
	}},
	{"charges other keys for a failure", "RetryHoldsItsKey", after(allIfOne(sinks.Retry))},
	{"rejects a message that failed", "RetryHoldsItsKey", turned(sinks.Retry, sinks.Fail(sinks.Reject, sinks.ReasonRefused, "failed"))},
	{"delivers a message that it reports as failed", "RetryHoldsItsKey", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			outcomes := b.reference.Send(ctx, batch)
			if outcomes[0].Result == sinks.Retry {
				b.to.arrive(batch[0].Message)
			}
			return outcomes
		}
	}},
	{"never tries a failed message again", "RetryHoldsItsKey", func(b *bent) {
		failed := map[string]sinks.Outcome{}
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			outcomes := b.reference.Send(ctx, batch)
			for i, m := range batch {
				if old, ok := failed[m.ID]; ok {
					outcomes[i] = old
				} else if outcomes[i].Result == sinks.Retry {
					failed[m.ID] = outcomes[i]
				}
			}
			return outcomes
		}
	}},
	{"delivers later messages of a key after a rejection", "RejectHoldsItsKey", func(b *bent) { b.send = b.eachAlone }},
	{"retries a message that was refused", "RejectHoldsItsKey", turned(sinks.Reject, sinks.Fail(sinks.Retry, sinks.ReasonServerError, "refused"))},
	{"rejects without a detail", "RejectHoldsItsKey", turned(sinks.Reject, sinks.Fail(sinks.Reject, sinks.ReasonRefused, ""))},
	{"rejects a batch because of one message", "RejectHoldsItsKey", after(allIfOne(sinks.Reject))},
	{"delivers a message that it rejects", "RejectHoldsItsKey", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			outcomes := b.reference.Send(ctx, batch)
			if outcomes[0].Result == sinks.Reject {
				b.to.arrive(batch[0].Message)
			}
			return outcomes
		}
	}},
	{"blocks a key for ever after a rejection", "RejectHoldsItsKey", func(b *bent) {
		rejected := ""
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			outcomes := b.reference.Send(ctx, batch)
			for i, m := range batch {
				if m.Key == rejected && outcomes[i].Result == sinks.Delivered {
					outcomes[i] = sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, "")
				}
				if outcomes[i].Result == sinks.Reject {
					rejected = m.Key
				}
			}
			return outcomes
		}
	}},
	{"mixes up batches that are sent concurrently", "ConcurrentSends", func(b *bent) {
		var mu sync.Mutex
		var current []sinks.Message
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			mu.Lock()
			current = clone(batch)
			mu.Unlock()
			<-time.After(time.Millisecond) // time for other Sends
			mu.Lock()
			defer mu.Unlock()
			return b.reference.Send(ctx, current)
		}
	}},
	{"refuses concurrent calls", "ConcurrentSends", func(b *bent) {
		var busy sync.Mutex
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			if !busy.TryLock() {
				return sinks.All(len(batch), sinks.Fail(sinks.Retry, sinks.ReasonBusy, ""))
			}
			defer busy.Unlock()
			<-time.After(time.Millisecond)
			return b.reference.Send(ctx, batch)
		}
	}},
}

// eachAlone sends each message in a batch of its own.
func (b *bent) eachAlone(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	var outcomes []sinks.Outcome
	for _, m := range batch {
		outcomes = append(outcomes, b.to.take(ctx, m.Message))
	}
	return outcomes
}

// allIfOne gives all messages the outcome of the first one that has the result.
func allIfOne(result sinks.Result) func([]sinks.Outcome) []sinks.Outcome {
	return func(outcomes []sinks.Outcome) []sinks.Outcome {
		i := slices.IndexFunc(outcomes, func(o sinks.Outcome) bool { return o.Result == result })
		if i < 0 {
			return outcomes
		}
		return sinks.All(len(outcomes), outcomes[i])
	}
}
