package sinktest

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
)

var contextMutants = []mutant{
	{"delivers after the context has ended", "ContextEnded", ignoringContext},
	{"delivers after the context has ended and reports unsent", "ContextEnded", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			if ctx.Err() == nil {
				return b.reference.Send(ctx, batch)
			}
			b.reference.Send(context.WithoutCancel(ctx), batch)
			return sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))
		}
	}},
	{"charges messages whose context has ended", "ContextEnded", turned(sinks.Unsent, sinks.Fail(sinks.Retry, sinks.ReasonTimeout, ""))},
	{"waits although the context has ended", "ContextEnded", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			if ctx.Err() != nil {
				<-b.forever
			}
			return b.reference.Send(ctx, batch)
		}
	}},
	{"waits for an answer whatever the context says", "ContextEndsMeanwhile", ignoringContext},
	{"reports messages without an answer as unsent", "ContextEndsMeanwhile", turned(sinks.Retry, sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))},
	{"reports messages without an answer as delivered", "ContextEndsMeanwhile", turned(sinks.Retry, sinks.Ok(""))},
	{"rejects messages without an answer", "ContextEndsMeanwhile", turned(sinks.Retry, sinks.Fail(sinks.Reject, sinks.ReasonRefused, "no answer"))},
	{"fails for ever after a timeout", "ContextEndsMeanwhile", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			if outcomes := b.reference.Send(ctx, batch); outcomes[0].Result != sinks.Retry {
				return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "broken for good"))
			}
			return sinks.All(len(batch), sinks.Fail(sinks.Retry, sinks.ReasonTimeout, ""))
		}
	}},
}

func ignoringContext(b *bent) {
	b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
		return b.reference.Send(context.WithoutCancel(ctx), batch)
	}
}
