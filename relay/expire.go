package relay

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Expiry. A message expires at its ExpiresAt, or when its route's ExpireAfter has passed since it was written, whichever is
// earlier on the database's clock. The engine checks this when it reads the message (admit.go, rows.go), and again when it takes
// the message for a batch (send.go). An expired message is not sent. It is settled as parked or discarded.
//
// What must hold: a message doesn't expire while it is in flight, while its handler's transaction may have been committed, or
// while it has a reference to a batch that its sink may have (dedup.go). Until the settlement of an expired message is written, no
// later message of its key is sent; otherwise the lane's next holder, which may have other routes, might send the expired message
// after the later ones. So an expired message counts as in flight for its key, and the later messages wait in memory.

// expiryOf returns when a message expires, and the target of its route, which determines what happens to the message then. A zero
// time means never.
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

// tooOld reports whether a row has expired. A row without a route doesn't expire: it waits, even if it has an ExpiresAt.
func (r *router) tooOld(row *storage.Row, clock *databaseClock) bool {
	if row.Message.ExpiresAt.IsZero() && !r.expires {
		return false
	}
	at, by := r.expiryOf(row)
	return clock.passed(at) && by.sinks[0] < len(r.names)
}

// expire returns the state in which an expired row is settled, and the error text that is stored with it.
func (t target) expire(row *storage.Row) (become storage.State, problem string) {
	if t.onExpire == DiscardExpired {
		return storage.StateDiscarded, ""
	}
	return storage.StateError, shorten(t.describeExpired(row), 1000)
}

// reportExpired reports an expired row to the observer, and logs it unless a similar line was logged within quietTime. The
// parameter `note` is appended to the log message.
func (t target) reportExpired(observer Observer, logger *slog.Logger, limiter *logLimiter, relay, sink string, row *storage.Row, note string) {
	observer.Expired(sink, t.onExpire)
	level, did := logger.Error, "parked"
	if t.onExpire == DiscardExpired {
		level, did = logger.Info, "discarded"
	}
	if allowed, more := limiter.allow("expired " + sink + did); allowed {
		level("relay: "+did+" a message that has expired"+note, "relay", relay, "sink", sink,
			"topic", row.Message.Topic, "id", row.Message.ID, "detail", t.describeExpired(row), "suppressed", more)
	}
}

// describeExpired returns the error text of an expired row: when it expired, and why.
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
