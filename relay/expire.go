package relay

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Expiry. A message is too old to be sent from its ExpiresAt on, or from its route's ExpireAfter
// after it was written, whichever is earlier, by the database's clock. It is looked at when it
// comes into memory (admit.go, rows.go), and once more when it is taken for a batch (send.go); a
// message that is too old goes to settle, to be parked or discarded, in the place of its sink.
//
// What must hold: what is in flight never expires, nor what a sink may have from before. Nothing
// of a key is sent after a message that has expired until that is written: else a successor whose
// routes are others might send it after later ones. So it counts as in flight for its key, and
// its followers wait in memory.

// expiryOf is when a message is too old, and the route that says what becomes of it then. The
// zero time means never.
func (r *router) expiryOf(row *storage.Row) (at time.Time, by target) {
	at = row.Message.ExpiresAt
	if row.NeverExpires || at.IsZero() && !r.expires {
		return time.Time{}, by
	}
	if by = r.route(row.Message.Topic); by.expireAfter > 0 {
		at = earliest(at, row.CreatedAt.Add(by.expireAfter))
	}
	return at, by
}

// databaseClock is the database's time, as a relay knows it: what the database said last, and
// when that was heard. The two clocks needn't agree.
type databaseClock struct {
	said, heard time.Time
}

// passed says that a time has passed by the database's clock. Of a clock that was never heard
// none has. It may be wrong by the time that the answer took, but never says so too early.
func (c *databaseClock) passed(at time.Time) bool {
	return !at.IsZero() && !c.said.IsZero() && !c.now().Before(at)
}

// tooOld says that a row must not be sent any more.
func (e *engine) tooOld(row *storage.Row) bool {
	if row.Message.ExpiresAt.IsZero() && !e.routes.expires {
		return false
	}
	at, by := e.routes.expiryOf(row)
	return e.clock.passed(at) && e.queues[by.sinks[0]].options.Sink != nil
}

// expire parks or discards an item that is too old, and says whether it did: it doesn't if the
// sink may have the message from before. Where there is a key, that waits until it is written.
func (e *engine) expire(q *sinkQueue, it *item) bool {
	if it.maybeCommitted || e.duplicates != nil && e.duplicates.mayHave(it) {
		return false
	}
	_, by := e.routes.expiryOf(&it.row)
	it.expired = true
	e.work.expired++
	if it.key != nil {
		it.key.inFlight++
	}
	var gone result
	gone.state, gone.problem = by.expire(&it.row)
	said := ""
	if gone.state == storage.StateError {
		said = e.addDeadLetter(q, &it.row, "expired", &gone)
	}
	by.tellExpired(e.options.Observer, e.options.Logger, &e.logLimiter, e.options.Name, q.name, &it.row, said)
	it.row.Message.Payload, it.row.Message.Headers = nil, nil // no buffer may count them
	e.settle.add(it, gone)
	return true
}

// expire is what becomes of a row that is too old, and its last error.
func (t target) expire(row *storage.Row) (become storage.State, problem string) {
	if t.onExpire == DiscardExpired {
		return storage.StateDiscarded, ""
	}
	return storage.StateError, shorten(t.describeExpired(row), 1000)
}

// tellExpired tells of a row that is too old what becomes of it: to the observer of each, to the
// log of some, with what else is said of it.
func (t target) tellExpired(observer Observer, logger *slog.Logger, limiter *logLimiter, relay, sink string, row *storage.Row, said string) {
	observer.Expired(sink, t.onExpire)
	level, did := logger.Error, "parked"
	if t.onExpire == DiscardExpired {
		level, did = logger.Info, "discarded"
	}
	if allowed, more := limiter.allow("expired " + sink + did); allowed {
		level("relay: "+did+" a message that is too old to be sent"+said, "relay", relay, "sink", sink,
			"topic", row.Message.Topic, "id", row.Message.ID, "detail", t.describeExpired(row), "unsaid", more)
	}
}

// describeExpired is what an operator reads on the row: since when it was too old, and why.
func (t target) describeExpired(row *storage.Row) string {
	at, why := row.Message.ExpiresAt, "its expires_at"
	if t.expireAfter > 0 {
		if after := row.CreatedAt.Add(t.expireAfter); at.IsZero() || after.Before(at) {
			at, why = after, fmt.Sprintf("%v after it was written", t.expireAfter)
		}
	}
	text := storage.Expired + "since " + at.UTC().Format(time.RFC3339Nano) + ", " + why
	if row.Attempts > 0 {
		text += fmt.Sprintf("; attempts: %d", row.Attempts)
	}
	return text
}
