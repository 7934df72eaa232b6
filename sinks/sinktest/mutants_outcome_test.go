package sinktest

import (
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

var outcomeMutants = []mutant{
	{"forgets the last outcome", "OneOutcomeEach", after(func(o []sinks.Outcome) []sinks.Outcome { return o[:len(o)-1] })},
	{"returns one outcome too many", "OneOutcomeEach", after(func(o []sinks.Outcome) []sinks.Outcome { return append(o, sinks.Ok("")) })},
	{"returns nothing", "OneOutcomeEach", after(func([]sinks.Outcome) []sinks.Outcome { return nil })},
	{"returns a reason for a delivery", "OneOutcomeEach", turned(sinks.Delivered, sinks.Fail(sinks.Delivered, sinks.ReasonBusy, ""))},
	{"retries without a reason", "RetryHoldsItsKey", turned(sinks.Retry, sinks.Outcome{})},
	{"returns an unknown result", "OneOutcomeEach", turned(sinks.Delivered, sinks.Outcome{Result: 42})},
	{"returns an unknown reason", "RetryHoldsItsKey", turned(sinks.Retry, sinks.Fail(sinks.Retry, "mood", ""))},
	{"returns a receipt for a rejected message", "RejectHoldsItsKey", turned(sinks.Reject, sinks.Outcome{Result: sinks.Reject, Reason: sinks.ReasonRefused, Detail: "d", Receipt: "r"})},
	{"returns a negative RetryAfter", "RetryHoldsItsKey", turned(sinks.Retry, sinks.Outcome{Result: sinks.Retry, Reason: sinks.ReasonBusy, RetryAfter: -1})},
	{"returns a RetryAfter for a delivered message", "OneOutcomeEach", turned(sinks.Delivered, sinks.Outcome{Result: sinks.Delivered, RetryAfter: 1})},
	{"postpones with an invalid reason", "Outage", turned(sinks.Unavailable, sinks.Postpone(sinks.ReasonBlocked, "d", 1))},
	{"writes a detail that is not UTF-8", "RetryHoldsItsKey", turned(sinks.Retry, sinks.Fail(sinks.Retry, sinks.ReasonBusy, "\xff"))},
	{"shows a secret in a receipt", "OneOutcomeEach", turned(sinks.Delivered, sinks.Ok("by "+referenceSecret))},
	{"shows a secret in a detail", "Outage", turned(sinks.Unavailable, sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, "with "+referenceSecret))},
	{"never delivers a batch of more than ten", "OneOutcomeEach", after(func(o []sinks.Outcome) []sinks.Outcome {
		if len(o) > 10 {
			o[10] = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")
		}
		return o
	})},
	{"changes a header of the batch", "OneOutcomeEach", tampering(func(batch []sinks.Message) { batch[0].Headers["x-sink"] = "was here" })},
	{"changes a payload of the batch", "OneOutcomeEach", tampering(func(batch []sinks.Message) { batch[0].Payload[0] ^= 1 })},
	{"sorts the batch", "OneOutcomeEach", tampering(slices.Reverse[[]sinks.Message])},
	{"keeps the batch after Send", "OneOutcomeEach", func(b *bent) {
		var kept []sinks.Message
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			b.reference.Send(ctx, append(kept, sinks.Message{}))
			kept = batch
			return sinks.All(len(batch), sinks.Ok(""))
		}
	}},
}

// tampering changes the batch before sending it.
func tampering(change func([]sinks.Message)) func(*bent) {
	return func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			outcomes := b.reference.Send(ctx, batch)
			change(batch)
			return outcomes
		}
	}
}

// arriving changes the messages as they arrive.
func arriving(change func(*outbox.Message)) func(*bent) {
	return func(b *bent) {
		b.to.change = func(m outbox.Message) []outbox.Message {
			change(&m)
			return []outbox.Message{m}
		}
	}
}

// onOdd returns this outcome for messages with an odd header or key, and delivers
// them or not.
func onOdd(deliver bool, o sinks.Outcome) func(*bent) {
	return func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			if _, plain := batch[0].Headers["x-count"]; plain {
				return b.reference.Send(ctx, batch)
			}
			if deliver {
				b.reference.Send(ctx, batch)
			}
			return sinks.All(len(batch), o)
		}
	}
}
