package sinktest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rowrelay/rowrelay/sinks"
)

var outageMutants = []mutant{
	{"is unavailable as a destination is gone", "OneDestinationStopsNoOther", after(func(outcomes []sinks.Outcome) []sinks.Outcome {
		for i, o := range outcomes {
			if o.Result == sinks.Unsent && o.RetryAfter > 0 {
				outcomes[i] = sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, o.Detail)
			}
		}
		return outcomes
	})},
	{"holds up all as a destination is gone", "OneDestinationStopsNoOther", after(func(outcomes []sinks.Outcome) []sinks.Outcome {
		for _, o := range outcomes {
			if o.Result == sinks.Unsent && o.RetryAfter > 0 {
				return sinks.All(len(outcomes), o)
			}
		}
		return outcomes
	})},
	{"charges an outage", "Outage", whileDown(sinks.Fail(sinks.Retry, sinks.ReasonServerError, "down"))},
	{"charges an outage as unknown results, again and again", "Outage", whileDown(sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "down"))},
	{"rejects during an outage", "Outage", whileDown(sinks.Fail(sinks.Reject, sinks.ReasonRefused, "down"))},
	{"calls an outage nothing at all", "Outage", whileDown(sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))},
	{"calls delivered what an outage swallowed", "Outage", whileDown(sinks.Ok(""))},
	{"never gets over an outage", "Outage", func(b *bent) {
		var down atomic.Bool
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			outcomes := b.reference.Send(ctx, batch)
			if down.Load() || outcomes[0].Result == sinks.Unavailable {
				down.Store(true)
				return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "still"))
			}
			return outcomes
		}
	}},
	{"can't be opened again after an outage", "Outage", func(b *bent) {
		var down atomic.Bool
		b.open = func(ctx context.Context) error {
			err := b.reference.Open(ctx)
			if err != nil {
				down.Store(true)
			}
			if down.Load() {
				return errDown
			}
			return nil
		}
	}},
	{"delivers late what an outage held up, and again", "Outage", func(b *bent) {
		var held []sinks.Message
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			outcomes := b.reference.Send(ctx, batch)
			switch {
			case outcomes[0].Result == sinks.Unavailable && held == nil:
				held = clone(batch)
			case outcomes[0].Result == sinks.Delivered && held != nil && batch[0].ID == held[0].ID:
				b.reference.Send(ctx, held)
			}
			return outcomes
		}
	}},
	{"shows a secret in an error of Open", "OutageFromTheStart", func(b *bent) {
		b.open = func(ctx context.Context) error {
			if b.reference.Open(ctx) != nil {
				return errors.New("log in with " + referenceSecret)
			}
			return nil
		}
	}},
	{"panics when it can't be opened", "OutageFromTheStart", func(b *bent) {
		b.open = func(ctx context.Context) error {
			if b.reference.Open(ctx) != nil {
				panic("no connection")
			}
			return nil
		}
	}},
	{"hangs when it can't be opened", "OutageFromTheStart", func(b *bent) {
		b.open = func(ctx context.Context) error {
			if b.reference.Open(ctx) != nil {
				select {} // for longer than anybody waits
			}
			return nil
		}
	}},
	{"can't be closed if it was never open", "OutageFromTheStart", func(b *bent) { b.close = func(context.Context) error { return errDown } }},
	{"charges when it was never open", "OutageFromTheStart", func(b *bent) {
		b.open = func(context.Context) error { return nil }
		whileDown(sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "down"))(b)
	}},
}

// whileDown answers so during an outage, which it finds out by sending.
func whileDown(o sinks.Outcome) func(*bent) {
	return func(b *bent) {
		b.open = func(context.Context) error { return nil }
		turned(sinks.Unavailable, o)(b)
	}
}
