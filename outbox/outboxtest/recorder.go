package outboxtest

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Recorder has the Write and Cancel methods of an [outbox.Writer] and keeps the messages
// in memory. Use it in tests without a database, if the tested code takes its writer as an
// interface. It ignores transactions: messages stay recorded after a rollback.
//
// The zero value is ready for use. Its methods may be called concurrently.
type Recorder struct {
	// Err, if it isn't nil, is the error that Write and Cancel return without changing
	// anything. Set it before the Recorder is used. A test may set it to [outbox.ErrDuplicate].
	Err error

	mu       sync.Mutex
	messages []outbox.Message
}

// Write checks the messages like a Writer without options, and records them. The
// transaction isn't used. It may be nil, or the result of outbox.Pgx for a nil pgx.Tx.
func (r *Recorder) Write(ctx context.Context, _ outbox.Execer, messages ...outbox.Message) error {
	if r.Err != nil {
		return r.Err
	}
	if err := rules.Write(ctx, nowhere{}, messages...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, message := range messages {
		message.Payload = bytes.Clone(message.Payload)
		message.Headers = maps.Clone(message.Headers)
		r.messages = append(r.messages, message)
	}
	return nil
}

// Cancel removes the recorded messages that a Writer's Cancel would delete: each message that
// has one of the ids and is due more than five seconds from now, by the clock of this process.
// The transaction isn't used and may be nil.
func (r *Recorder) Cancel(ctx context.Context, _ outbox.Execer, messageIDs ...string) (cancelled []string, err error) {
	if r.Err != nil {
		return nil, r.Err
	}
	if _, err := rules.Cancel(ctx, nowhere{}, messageIDs...); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = slices.DeleteFunc(r.messages, func(message outbox.Message) bool {
		given := slices.ContainsFunc(messageIDs, func(id string) bool { return strings.EqualFold(id, message.ID) })
		if given = given && time.Until(message.AvailableAt) > outbox.CancelAhead; given {
			cancelled = append(cancelled, strings.ToLower(message.ID))
		}
		return given
	})
	slices.Sort(cancelled)
	return cancelled, nil
}

// Messages returns the messages recorded so far. The Recorder generates no ids: a message
// that was written without an ID has none.
func (r *Recorder) Messages() []outbox.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages)
}

// rules is a Writer that is used only to check messages. It writes to an Execer that ignores all statements.
var rules, _ = outbox.NewWriter(dialect.SQLite(), outbox.Options{}) // can't fail with these options

type nowhere struct{}

func (nowhere) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return driver.RowsAffected(0), nil
}
