package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// What the log says, and at which level:
//
//	debug  each failed attempt of each message
//	info   what begins, ends, or works again; and what was done in the last minute
//	warn   trouble that the relay deals with by itself: a sink or a database that is gone, and
//	       of a message's failed attempts the first and each tenth
//	error  what waits for somebody: a parked message, a sink that is stuck, an outcome that
//	       the database refuses
//
// What may come often is bounded by logLimiter. Nothing here holds a payload.

// logAttempt writes a line about what a sink answered for a message.
func (b *base) logAttempt(level slog.Level, what string, it *item, outcome *sinks.Outcome, more ...any) {
	if !b.options.Logger.Enabled(context.Background(), level) {
		return
	}
	b.options.Logger.Log(context.Background(), level, what, append([]any{"relay", b.options.Name, "sink", it.queue.name,
		"topic", it.row.Message.Topic, "id", it.row.Message.ID, "attempt", it.row.Attempts + 1,
		"reason", string(outcome.Reason), "detail", loggable(outcome)}, more...)...)
}

// tellEach: of a message that fails again and again, so many attempts make one more line than
// the first.
const tellEach = 10

// logRetry tells of a failed attempt that is charged, and when the next one is.
func (b *base) logRetry(it *item, outcome *sinks.Outcome, attempts int, wait time.Duration) {
	b.tellAttempt("is tried again", it, outcome)
	level, unsaid := slog.LevelDebug, 0
	if attempts == 1 || attempts%tellEach == 0 {
		if allowed, more := b.logLimiter.allow("failed " + it.queue.name + string(outcome.Reason)); allowed {
			level, unsaid = slog.LevelWarn, more
		}
	}
	b.logAttempt(level, "relay: a message failed and is tried again", it, outcome,
		"next", time.Now().Add(wait).Round(time.Millisecond), "unsaid", unsaid)
}

// logUncharged tells of an attempt that costs the message nothing: the trouble is its
// destination's, or it is tried again before that is known.
func (b *base) logUncharged(it *item, outcome *sinks.Outcome) {
	b.tellAttempt("waits uncharged", it, outcome)
	level, unsaid := slog.LevelDebug, 0
	if outcome.Result != sinks.Unavailable && it.suspension != nil && it.suspension.tries == 1 {
		if allowed, more := b.logLimiter.allow("suspended " + it.queue.name + string(outcome.Reason)); allowed {
			level, unsaid = slog.LevelWarn, more
		}
	}
	b.logAttempt(level, "relay: a message failed, and waits uncharged until others are delivered", it, outcome, "unsaid", unsaid)
}

// logParked tells of a message that waits for an operator, and why.
func (b *base) logParked(what string, it *item, outcome *sinks.Outcome) {
	b.tellAttempt("is parked", it, outcome)
	if allowed, more := b.logLimiter.allow("parked " + it.queue.name + string(outcome.Reason)); allowed {
		b.logAttempt(slog.LevelError, what, it, outcome, "unsaid", more)
	} else {
		b.logAttempt(slog.LevelDebug, what, it, outcome)
	}
}

// tellAttempt hands an attempt on to an Observer that wants to know.
func (b *base) tellAttempt(became string, it *item, outcome *sinks.Outcome) {
	if observer, wants := b.options.Observer.(AttemptObserver); wants {
		observer.Attempted(Attempt{
			At: time.Now(), Sink: it.queue.name, Topic: it.row.Message.Topic, ID: it.row.ID, MessageID: it.row.Message.ID, Number: it.row.Attempts + 1,
			Reason: outcome.Reason, Detail: shorten(outcome.Detail, 1000), Err: outcome.Err, Became: became,
		})
	}
}

// traceClaimed tells the tracer of rows that came into memory.
func (b *base) traceClaimed(began time.Time, rows []storage.Row) {
	if len(rows) == 0 {
		return
	}
	messages := make([]sinks.Message, len(rows))
	for i := range rows {
		messages[i] = (&item{row: rows[i]}).message()
	}
	b.options.Tracer.Claimed(began, messages)
}

// traceSettled tells it of outcomes that were written back.
func (b *base) traceSettled(began time.Time, items []*item, err error) {
	messages := make([]sinks.Message, len(items))
	for i, it := range items {
		messages[i] = it.message()
	}
	b.options.Tracer.Settled(began, messages, err)
}

// work is what a relay has done since it last told so in the log.
type work struct {
	started, began, lookedAfter         time.Time // lookedAfter: when the loop did what it does each second
	delivered, retried, parked, expired int       // since began
}
