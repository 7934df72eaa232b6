package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The default and the upper bound of Options.MaxPayload, in bytes.
const (
	defaultMaxPayload = 1 << 20
	highestMaxPayload = 256 << 20
)

// Options configure a [Writer]. The zero value is ready for use.
type Options struct {
	// Table is the outbox table's name: "name" or "schema.name", as
	// [dialect.ParseTable] reads it. Defaults to "outbox".
	Table string

	// MaxPayload is the largest payload in bytes that Write accepts, at most
	// 256 MiB. Defaults to 1 MiB. Sinks have their own limits.
	MaxPayload int

	// KeyLocks makes writers of the same key wait for each other until their
	// transactions end, so that the messages of a key are delivered in commit
	// order. Without KeyLocks the application has to make these writers wait for
	// each other, for instance by locking the row that the messages are about.
	//
	// On PostgreSQL, Write takes one transaction-level advisory lock for each of
	// its keys, in a fixed order, so that two Writes can't deadlock. Two transactions
	// that call Write several times, with the same keys in different orders, can
	// deadlock; so pass all messages to one Write. Several thousand keys in one
	// transaction can exhaust the server's lock table. With KeyLocks Write refuses a
	// *sql.DB, because the locks need a transaction that holds them. KeyLocks has
	// no effect on SQLite, which has one writer at a time anyway.
	KeyLocks bool

	// Notify makes Write add a NOTIFY to the transaction, which wakes listening
	// relays when the transaction commits. Notify only makes delivery faster: without
	// it, relays find the messages when they poll. To wake a relay in the same
	// process, it is cheaper to call its Wake method after the commit. NewWriter
	// refuses Notify except on PostgreSQL, because other databases have no
	// notifications.
	Notify bool

	// NotifyInterval is the minimum time between two notifications of this Writer.
	// Each notification takes a server-wide lock at commit and wakes every relay.
	// A message that is written within the interval after a notification waits
	// until relays poll, as all messages do without Notify. Defaults to 0: each
	// Write notifies.
	NotifyInterval time.Duration

	// Duplicates selects how Write treats a message whose ID was already written.
	// Defaults to [AllowDuplicates].
	Duplicates Duplicates

	// Headers returns headers that Write adds to each of its messages, for instance
	// the W3C header traceparent, so that consumers can continue the trace. Its
	// argument is the context passed to Write. If a message has a header of the same
	// name, the message's value is kept. Headers is called once for each Write, and
	// must allow concurrent calls. Defaults to no added headers.
	Headers func(ctx context.Context) map[string]string

	// NewID returns an id for each message that has none. The id must be a UUID. Set
	// it in tests that compare written messages. It must allow concurrent calls.
	// Defaults to [NewID].
	NewID func() string
}

// apply sets the options, and returns one error that lists all invalid options.
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
	reject(o.Notify && len(w.dialect.Notify(w.table)) == 0, "Notify: %s has no notifications: leave the option out; relays poll anyway", w.dialect.Name())
	reject(o.NotifyInterval < 0, "NotifyInterval: must not be negative, and is %s", o.NotifyInterval)
	reject(o.NotifyInterval > 0 && !o.Notify, "NotifyInterval: has no effect without Notify: set Notify too")
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
