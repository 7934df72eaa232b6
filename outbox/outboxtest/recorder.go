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
// instead of storing them; for tests without a database of code that takes its
// writer as an interface. It knows nothing of transactions: what is rolled back
// stays recorded.
//
// The zero value is ready for use. Its methods may be called concurrently.
type Recorder struct {
	// Err is what Write and Cancel return instead of recording, if it isn't nil. It is
	// set before the Recorder is used. [outbox.ErrDuplicate] is one to try.
	Err error

	mu       sync.Mutex
	messages []outbox.Message
}

// Write checks the messages as a Writer without options does, and records them.
// The transaction isn't used and may be nil, also as outbox.Pgx makes it of a pgx.Tx
// that is.
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

// Cancel forgets scheduled messages as a Writer's Cancel deletes them, by the clock of this
// process: those that were written with an ID and a time that is more than five seconds
// ahead. The transaction isn't used and may be nil.
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

// Messages returns what was written so far. Messages without an ID have none
// here either.
func (r *Recorder) Messages() []outbox.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.messages)
}

// rules is a Writer that writes to nowhere, and tells what breaks a rule.
var rules, _ = outbox.NewWriter(dialect.SQLite(), outbox.Options{}) // these options are right

// nowhere is a handle that runs nothing.
type nowhere struct{}

func (nowhere) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return driver.RowsAffected(0), nil
}
