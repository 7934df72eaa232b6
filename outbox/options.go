package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The bounds of Options.MaxPayload, in bytes.
const (
	defaultMaxPayload = 1 << 20
	highestMaxPayload = 256 << 20
)

// Options say how a [Writer] writes. The zero value is fine.
type Options struct {
	// Table is the outbox table's name: "name" or "schema.name", as
	// [dialect.ParseTable] reads it. Defaults to "outbox".
	Table string

	// MaxPayload refuses payloads of more bytes than this, at most 256 MiB.
	// Defaults to 1 MiB. Every sink has a limit of its own as well.
	MaxPayload int

	// KeyLocks makes writers of the same key wait for each other until their
	// transactions end, so that the messages of a key are delivered in the order
	// of commits. Without it that is so only if the application serialises them
	// itself, for instance by locking the row that the messages are about.
	//
	// On PostgreSQL a Write takes one transaction-level advisory lock for each of
	// its keys, in a fixed order, so that two Writes can't deadlock. Transactions
	// that call Write several times can, if they come to the same keys in another
	// order; so put all messages into one Write. A few thousand keys in one
	// transaction exhaust the server's table of locks. A Write to a *sql.DB is
	// refused, as locks end with a transaction. It does nothing on SQLite, which
	// has one writer at a time anyway, and is an error where the database is
	// claimed by rows only.
	KeyLocks bool

	// Notify wakes relays on PostgreSQL when the transaction commits, by a NOTIFY
	// in it. It is a hint: nothing is lost without it. A relay in the same process
	// is woken more cheaply by its Wake method, called after the commit. It is an
	// error where the database can't notify.
	Notify bool

	// NotifyInterval is the least time from one notification of this Writer to its
	// next one, because each takes a lock of the whole server at commit and wakes
	// every relay. A message written sooner after one that was announced waits for
	// the relays' next look at the table, as all do without Notify. Defaults to 0:
	// each Write notifies.
	NotifyInterval time.Duration

	// Duplicates says what becomes of a message whose ID the table still knows. Defaults
	// to [AllowDuplicates].
	Duplicates Duplicates

	// Headers returns what is added to the headers of each message of a Write, whose context
	// it is given: for a trace that its consumers are to go on with, as the W3C's traceparent.
	// A message's own headers go before these. It is called once a Write, by concurrent ones.
	// Defaults to none.
	Headers func(ctx context.Context) map[string]string

	// NewID makes the ids of messages that have none, which have to be UUIDs; for
	// tests that compare what was written. It is called by concurrent Writes.
	// Defaults to [NewID].
	NewID func() string
}

// apply reports all that is wrong at once.
func (w *Writer) apply(o Options) error {
	var wrong []error
	reject := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	table, err := dialect.ParseTable(cmp.Or(o.Table, dialect.DefaultTable))
	reject(err != nil, "Table: %w", err)
	w.table = table
	reject(o.MaxPayload < 0 || o.MaxPayload > highestMaxPayload, "MaxPayload: must be between 1 and %d bytes, and is %d", highestMaxPayload, o.MaxPayload)
	if o.MaxPayload > 0 {
		w.maxPayload = o.MaxPayload
	}
	w.keyLocks = o.KeyLocks
	reject(o.Notify && len(w.dialect.Notify(w.table)) == 0, "Notify: %s has no notifications: leave the option out, relays look by themselves", w.dialect.Name())
	reject(o.NotifyInterval < 0, "NotifyInterval: must not be negative, and is %s", o.NotifyInterval)
	reject(o.NotifyInterval > 0 && !o.Notify, "NotifyInterval: is for Notify, which isn't set")
	if o.Notify {
		w.notices = &limiter{interval: o.NotifyInterval}
	}
	reject(o.Duplicates < AllowDuplicates || o.Duplicates > KeepFirst, "Duplicates: must be AllowDuplicates, RefuseDuplicates or KeepFirst, and is %d", o.Duplicates)
	w.duplicates = o.Duplicates
	w.headers = o.Headers
	if o.NewID != nil {
		w.newID = o.NewID
	}
	return errors.Join(wrong...)
}
