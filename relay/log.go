package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// What is logged, and at which level:
//
//	debug  each failed attempt of each message
//	info   starts, stops and recoveries, and once a minute how many messages were delivered, retried and parked
//	warn   failures that the relay handles itself: a sink or a database that is down, and a message's
//	       first and every tenth failed attempt
//	error  events that need an operator: a parked message, a sink that hangs, an outcome that the
//	       database refuses
//
// logLimiter limits lines that may be frequent. No line contains a payload.

// logAttempt logs a sink's answer for a message.
func (b *base) logAttempt(level slog.Level, what string, it *item, outcome *sinks.Outcome, more ...any) {
	if !b.options.Logger.Enabled(context.Background(), level) {
		return
	}
	b.options.Logger.Log(context.Background(), level, what, append([]any{"relay", b.options.Name, "sink", it.queue.name,
		"topic", it.row.Message.Topic, "id", it.row.Message.ID, "attempt", it.row.Attempts + 1,
		"reason", string(outcome.Reason), "detail", loggable(outcome)}, more...)...)
}

// warnEvery selects the failed attempts of a message that are logged as warnings: the first one, and each one whose number is a
// multiple of warnEvery.
const warnEvery = 10

// logRetry logs a failed attempt that is charged, and the time of the next attempt.
func (b *base) logRetry(it *item, outcome *sinks.Outcome, attempts int, wait time.Duration) {
	b.observeAttempt("is tried again", it, outcome)
	level, suppressed := slog.LevelDebug, 0
	if attempts == 1 || attempts%warnEvery == 0 {
		if allowed, more := b.logLimiter.allow("failed " + it.queue.name + string(outcome.Reason)); allowed {
			level, suppressed = slog.LevelWarn, more
		}
	}
	b.logAttempt(level, "relay: a message failed and will be tried again", it, outcome,
		"next", time.Now().Add(wait).Round(time.Millisecond), "suppressed", suppressed)
}

// logUncharged logs a failed attempt that is not charged, because the destination is down, or because it is not known yet whether
// the message or the destination is the cause.
func (b *base) logUncharged(it *item, outcome *sinks.Outcome) {
	b.observeAttempt("waits; the attempt is not charged", it, outcome)
	level, suppressed := slog.LevelDebug, 0
	if outcome.Result != sinks.Unavailable && it.suspension != nil && it.suspension.tries == 1 {
		if allowed, more := b.logLimiter.allow("suspended " + it.queue.name + string(outcome.Reason)); allowed {
			level, suppressed = slog.LevelWarn, more
		}
	}
	b.logAttempt(level, "relay: a message failed and will be tried again; the attempt is not charged", it, outcome, "suppressed", suppressed)
}

// logParked logs that a message was parked, and why.
func (b *base) logParked(what string, it *item, outcome *sinks.Outcome) {
	b.observeAttempt("is parked", it, outcome)
	if allowed, more := b.logLimiter.allow("parked " + it.queue.name + string(outcome.Reason)); allowed {
		b.logAttempt(slog.LevelError, what, it, outcome, "suppressed", more)
	} else {
		b.logAttempt(slog.LevelDebug, what, it, outcome)
	}
}

// observeAttempt passes an attempt to the observer if the observer implements [AttemptObserver].
func (b *base) observeAttempt(became string, it *item, outcome *sinks.Outcome) {
	if observer, wants := b.options.Observer.(AttemptObserver); wants {
		observer.Attempted(Attempt{
			At: time.Now(), Sink: it.queue.name, Topic: it.row.Message.Topic, ID: it.row.ID, MessageID: it.row.Message.ID, Number: it.row.Attempts + 1,
			Reason: outcome.Reason, Detail: shorten(outcome.Detail, 1000), Err: outcome.Err, Became: became,
		})
	}
}

// traceClaimed passes the messages that were read to the tracer.
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

// traceSettled passes messages to the tracer after their outcomes were written, or with the error if they couldn't be written.
func (b *base) traceSettled(began time.Time, items []*item, err error) {
	messages := make([]sinks.Message, len(items))
	for i, it := range items {
		messages[i] = it.message()
	}
	b.options.Tracer.Settled(began, messages, err)
}

// work counts what a relay has done since its last summary in the log.
type work struct {
	started, began, housekept           time.Time // housekept: the time of the last housekeeping, which runs once a second
	delivered, retried, parked, expired int       // the numbers of messages since the time in `began`
}
