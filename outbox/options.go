package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The bounds of WithMaxPayload, in bytes.
const (
	defaultMaxPayload = 1 << 20
	highestMaxPayload = 256 << 20
)

// Option changes a [Writer] from its defaults. Each may be given once.
type Option struct {
	name  string
	apply func(*Writer) error
}

// WithTable writes to another table than "outbox": "name" or "schema.name", as
// [dialect.ParseTable] reads it.
func WithTable(name string) Option {
	return Option{"WithTable", func(w *Writer) (err error) {
		w.table, err = dialect.ParseTable(name)
		return err
	}}
}

// WithMaxPayload refuses payloads of more bytes than this, from 1 byte to
// 256 MiB. Default 1 MiB. Every sink has a limit of its own as well.
func WithMaxPayload(bytes int) Option {
	return Option{"WithMaxPayload", func(w *Writer) error {
		if bytes < 1 || bytes > highestMaxPayload {
			return fmt.Errorf("must be between 1 and %d bytes, and is %d", highestMaxPayload, bytes)
		}
		w.maxPayload = bytes
		return nil
	}}
}

// WithKeyLocks makes writers of the same key wait for each other until their
// transactions end, so that the messages of a key are delivered in the order
// of commits. Without it that is so only if the application serialises them
// itself, for instance by locking the row that the messages are about.
//
// On PostgreSQL a Write takes one transaction-level advisory lock for each of
// its keys, in a fixed order, so that two Writes can't deadlock. Transactions
// that call Write several times can, if they come to the same keys in another
// order; so put all messages into one Write. A few thousand keys in one
// transaction exhaust the server's table of locks. A Write to a *sql.DB
// is refused, as locks end with a transaction. It does nothing on SQLite, which
// has one writer at a time anyway.
//
// NewWriter returns an error where the database is claimed by rows only.
func WithKeyLocks() Option {
	return Option{"WithKeyLocks", func(w *Writer) error {
		if _, rowsOnly := w.dialect.(dialect.RowsOnly); rowsOnly {
			return fmt.Errorf("%s is claimed by rows only, where there is no order that locks could keep: leave the option out", w.dialect.Name())
		}
		w.keyLocks = true
		return nil
	}}
}

// WithNotify wakes relays on PostgreSQL when the transaction commits, by a
// NOTIFY in it; at most one every minInterval from this Writer, because each
// takes a lock of the whole server at commit and wakes every relay. It is a hint:
// nothing is lost without it. A message written less than minInterval after
// one that was announced waits for the relays' next look at the table, as all
// do without this option. A relay in the same process is woken more cheaply by
// its Wake method, called after the commit.
//
// NewWriter returns an error where the database can't notify.
func WithNotify(minInterval time.Duration) Option {
	return Option{"WithNotify", func(w *Writer) error {
		if minInterval < 0 {
			return fmt.Errorf("the interval must not be negative, and is %s", minInterval)
		}
		if len(w.dialect.Notify(w.table)) == 0 {
			return fmt.Errorf("%s has no notifications: leave the option out, relays look by themselves", w.dialect.Name())
		}
		w.notices = &limiter{interval: minInterval}
		return nil
	}}
}

// WithIDs takes the ids of messages that have none from newID rather than from
// [NewID]; for tests that compare what was written. newID has to return UUIDs,
// and is called by concurrent Writes.
func WithIDs(newID func() string) Option {
	return Option{"WithIDs", func(w *Writer) error {
		if newID == nil {
			return errors.New("the function must not be nil")
		}
		w.newID = newID
		return nil
	}}
}

// apply reports all that is wrong at once.
func (w *Writer) apply(options []Option) error {
	var wrong []error
	seen := make(map[string]bool)
	for _, option := range options {
		if option.apply == nil {
			wrong = append(wrong, errors.New("an empty Option was given: use the functions whose names begin with With"))
			continue
		}
		if seen[option.name] {
			wrong = append(wrong, fmt.Errorf("%s was given twice", option.name))
		}
		seen[option.name] = true
		if err := option.apply(w); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", option.name, err))
		}
	}
	return errors.Join(wrong...)
}
