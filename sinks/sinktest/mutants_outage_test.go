package sinktest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rowrelay/rowrelay/sinks"
)

var outageMutants = []mutant{
	{"is unavailable because one destination is missing", "OneDestinationStopsNoOther", after(func(outcomes []sinks.Outcome) []sinks.Outcome {
		for i, o := range outcomes {
			if o.Result == sinks.Unsent && o.RetryAfter > 0 {
				outcomes[i] = sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, o.Detail)
			}
		}
		return outcomes
	})},
	{"delivers nothing because one destination is missing", "OneDestinationStopsNoOther", after(func(outcomes []sinks.Outcome) []sinks.Outcome {
		for _, o := range outcomes {
			if o.Result == sinks.Unsent && o.RetryAfter > 0 {
				return sinks.All(len(outcomes), o)
			}
		}
		return outcomes
	})},
	{"charges an outage", "Outage", whileDown(sinks.Fail(sinks.Retry, sinks.ReasonServerError, "down"))},
	{"charges an outage repeatedly as unknown results", "Outage", whileDown(sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "down"))},
	{"rejects during an outage", "Outage", whileDown(sinks.Fail(sinks.Reject, sinks.ReasonRefused, "down"))},
	{"reports only unsent messages during an outage", "Outage", whileDown(sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))},
	{"reports messages lost in an outage as delivered", "Outage", whileDown(sinks.Ok(""))},
	{"never recovers from an outage", "Outage", func(b *bent) {
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
	{"delivers messages of an outage late, and again", "Outage", func(b *bent) {
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
	{"panics if it can't be opened", "OutageFromTheStart", func(b *bent) {
		b.open = func(ctx context.Context) error {
			if b.reference.Open(ctx) != nil {
				panic("no connection")
			}
			return nil
		}
	}},
	{"hangs if it can't be opened", "OutageFromTheStart", func(b *bent) {
		b.open = func(ctx context.Context) error {
			if b.reference.Open(ctx) != nil {
				<-b.forever
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

// whileDown returns this outcome during an outage, which it detects by sending.
func whileDown(o sinks.Outcome) func(*bent) {
	return func(b *bent) {
		b.open = func(context.Context) error { return nil }
		turned(sinks.Unavailable, o)(b)
	}
}
