package sinktest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

var lifeMutants = []mutant{
	{"loses its connection when it is renewed", "RenewedMeanwhile", func(b *bent) {
		b.renew = func() { b.to.setBroken(true) }
	}},
	{"delivers everything twice once it was renewed", "RenewedMeanwhile", func(b *bent) {
		var renewed atomic.Bool
		b.renew = func() { renewed.Store(true) }
		b.to.change = func(m outbox.Message) []outbox.Message {
			if renewed.Load() {
				return []outbox.Message{m, m}
			}
			return []outbox.Message{m}
		}
	}},
	{"can be opened only once", "OpenAgain", func(b *bent) {
		var opened atomic.Bool
		b.open = func(context.Context) error {
			if opened.Swap(true) {
				return errors.New("it is open already")
			}
			return nil
		}
	}},
	{"delivers everything twice once it was opened again", "OpenAgain", func(b *bent) {
		var opened atomic.Int64
		b.open = func(context.Context) error { opened.Add(1); return nil }
		b.to.change = func(m outbox.Message) []outbox.Message {
			if opened.Load() > 1 {
				return []outbox.Message{m, m}
			}
			return []outbox.Message{m}
		}
	}},
	{"panics when it is closed without having been opened", "CloseWithoutOpen", func(b *bent) {
		var connection *destination
		b.close = func(context.Context) error { connection.setBroken(true); return nil }
	}},
	{"never returns from Close", "CloseWithoutOpen", func(b *bent) {
		b.close = func(context.Context) error { <-b.forever; return nil }
	}},
	{"leaves a goroutine that Open started", "NoGoroutineLeft", func(b *bent) {
		b.open = func(context.Context) error {
			go func() { <-b.forever }()
			return nil
		}
	}},
	{"leaves a goroutine that Send started", "NoGoroutineLeft", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			go func() { <-b.forever }()
			return b.reference.Send(ctx, batch)
		}
	}},
	{"leaves a goroutine after an outage", "NoGoroutineLeft", func(b *bent) {
		b.open = func(ctx context.Context) error {
			if err := b.reference.Open(ctx); err != nil {
				go func() { <-b.forever }()
				return err
			}
			return nil
		}
	}},
	{"has a negative limit of messages", "LimitsMakeSense", func(b *bent) { b.limits.Messages = -1 }},
	{"has a negative limit of bytes", "LimitsMakeSense", func(b *bent) { b.limits.Bytes = -1 }},
	{"has a negative limit of workers", "LimitsMakeSense", func(b *bent) { b.limits.Workers = -1 }},
	{"promises an unknown order", "LimitsMakeSense", func(b *bent) { b.promise = sinks.OrderAtomic + 1 }},
}
