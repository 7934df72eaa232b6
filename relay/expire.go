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

// tooOld reports whether a row must not be sent any more. A row without a route, and without a time of its own, waits.
func (r *router) tooOld(row *storage.Row, clock *databaseClock) bool {
	if row.Message.ExpiresAt.IsZero() && !r.expires {
		return false
	}
	at, by := r.expiryOf(row)
	return clock.passed(at) && by.sinks[0] < len(r.names)
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
