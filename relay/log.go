package relay

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

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

// quietTime is how long a line of the log that was written is not repeated.
const quietTime = 10 * time.Second

// logLimiter keeps trouble that lasts from filling the log.
type logLimiter struct {
	mu    sync.Mutex
	lines map[string]limitedLine
}

type limitedLine struct {
	last time.Time
	more int
}

// allow says whether a line may be written now, and how many like it were not
// since the last one.
func (q *logLimiter) allow(line string) (ok bool, more int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = map[string]limitedLine{}
	}
	l, now := q.lines[line], time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < quietTime {
		l.more++
		q.lines[line] = l
		return false, 0
	}
	q.lines[line] = limitedLine{last: now}
	return true, l.more
}

// loggable is what the log may have of an outcome. What follows the status of an
// answer is the destination's own text, which may repeat a payload.
func loggable(outcome *sinks.Outcome) string {
	cause, detail := "", shorten(outcome.Detail, 4000)
	if outcome.Reason == sinks.ReasonExhausted { // the last reason and its detail
		if reason, rest, found := strings.Cut(detail, ": "); found {
			cause, detail = reason+": ", rest
		}
	}
	if len(detail) > 3 && strings.Trim(detail[:3], "0123456789") == "" {
		detail, _, _ = strings.Cut(detail, ": ")
	}
	return cause + detail
}

// shorten cuts a text to at most n bytes of valid UTF-8, without NUL, which
// some databases can't store.
func shorten(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// logAttempt writes a line about what a sink answered for a message.
func (e *engine) logAttempt(level slog.Level, what string, it *item, outcome *sinks.Outcome, more ...any) {
	if !e.options.Logger.Enabled(context.Background(), level) {
		return
	}
	e.options.Logger.Log(context.Background(), level, what, append([]any{"relay", e.options.Name, "sink", it.queue.name,
		"topic", it.row.Message.Topic, "id", it.row.Message.ID, "attempt", it.row.Attempts + 1,
		"reason", string(outcome.Reason), "detail", loggable(outcome)}, more...)...)
}

// tellEach: of a message that fails again and again, so many attempts make one more line than
// the first.
const tellEach = 10

// logRetry tells of a failed attempt that is charged, and when the next one is.
func (e *engine) logRetry(it *item, outcome *sinks.Outcome, attempts int, wait time.Duration) {
	e.tellAttempt("is tried again", it, outcome)
	level, unsaid := slog.LevelDebug, 0
	if attempts == 1 || attempts%tellEach == 0 {
		if allowed, more := e.logLimiter.allow("failed " + it.queue.name + string(outcome.Reason)); allowed {
			level, unsaid = slog.LevelWarn, more
		}
	}
	e.logAttempt(level, "relay: a message failed and is tried again", it, outcome,
		"next", time.Now().Add(wait).Round(time.Millisecond), "unsaid", unsaid)
}

// logUncharged tells of an attempt that costs the message nothing: the trouble is its
// destination's, or it is tried again before that is known.
func (e *engine) logUncharged(it *item, outcome *sinks.Outcome) {
	e.tellAttempt("waits uncharged", it, outcome)
	level, unsaid := slog.LevelDebug, 0
	if outcome.Result != sinks.Unavailable && it.suspension != nil && it.suspension.tries == 1 {
		if allowed, more := e.logLimiter.allow("suspended " + it.queue.name + string(outcome.Reason)); allowed {
			level, unsaid = slog.LevelWarn, more
		}
	}
	e.logAttempt(level, "relay: a message failed, and waits uncharged until others are delivered", it, outcome, "unsaid", unsaid)
}

// logParked tells of a message that waits for an operator, and why.
func (e *engine) logParked(what string, it *item, outcome *sinks.Outcome) {
	e.tellAttempt("is parked", it, outcome)
	if allowed, more := e.logLimiter.allow("parked " + it.queue.name + string(outcome.Reason)); allowed {
		e.logAttempt(slog.LevelError, what, it, outcome, "unsaid", more)
	} else {
		e.logAttempt(slog.LevelDebug, what, it, outcome)
	}
}

// backAfter is how long a database must have been silent for its return to be told.
const backAfter = time.Second

// logBack tells that the database answers again, after every call had failed for so long.
func (b *base) logBack(silent time.Duration) {
	if silent < backAfter {
		return
	}
	if allowed, more := b.logLimiter.allow("back"); allowed {
		b.options.Logger.Info("relay: the database is back", "relay", b.options.Name, "after", silent.Round(time.Millisecond), "unsaid", more)
	}
}

// work is what a relay has done since it last told so in the log.
type work struct {
	started, began, lookedAfter         time.Time // lookedAfter: when the loop did what it does each second
	delivered, retried, parked, expired int       // since began
}

// inFlight is how many messages are being sent.
func (q *sinkQueue) inFlight() (n int) {
	for f := range q.flights {
		n += len(f.items)
	}
	return n
}

// tellWork tells the Observer, each second, what is in memory; and the log, each minute, what was
// done, if that was anything, and at the end of a run that has lasted for one.
func (e *engine) tellWork(now time.Time, over bool) {
	w, inFlight, buffered := &e.work, 0, 0
	for _, q := range e.queues {
		sending := q.inFlight()
		inFlight, buffered = inFlight+sending, buffered+q.buffered
		if q.options.Sink != nil {
			e.options.Observer.InMemory(q.name, sending, q.buffered)
		}
	}
	if now.Sub(w.began) < time.Minute && (!over || now.Sub(w.started) < time.Minute) {
		return
	}
	if w.delivered+w.retried+w.parked+w.expired+buffered > 0 {
		e.options.Logger.Info("relay: work done", "relay", e.options.Name, "within", now.Sub(w.began).Round(time.Millisecond),
			"delivered", w.delivered, "retried", w.retried, "parked", w.parked, "expired", w.expired, "in_flight", inFlight, "in_memory", buffered)
	}
	*w = work{started: w.started, began: now, lookedAfter: w.lookedAfter}
}

// tellAttempt hands an attempt on to an Observer that wants to know.
func (e *engine) tellAttempt(became string, it *item, outcome *sinks.Outcome) {
	if observer, wants := e.options.Observer.(AttemptObserver); wants {
		observer.Attempted(Attempt{
			At: time.Now(), Sink: it.queue.name, Topic: it.row.Message.Topic, ID: it.row.ID, MessageID: it.row.Message.ID, Number: it.row.Attempts + 1,
			Reason: outcome.Reason, Detail: shorten(outcome.Detail, 1000), Err: outcome.Err, Became: became,
		})
	}
}

// logStopping tells whoever has asked for a stop, and waits, for what.
func (e *engine) logStopping(now time.Time, unsettled int) {
	var waits []string
	for _, q := range e.queues {
		if n := q.inFlight(); n > 0 {
			waits = append(waits, fmt.Sprintf("%d messages in flight at sink %q", n, q.name))
		}
	}
	if unsettled > 0 {
		waits = append(waits, fmt.Sprintf("the database, to write %d outcomes", unsettled))
	}
	e.options.Logger.Info("relay: stopping, but not before what is in flight has ended", "relay", e.options.Name,
		"waits for", strings.Join(waits, "; "), "at most", e.stopping.deadline.Sub(now).Round(time.Second))
}
