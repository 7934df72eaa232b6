package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The default and the bounds of Options.Window.
const (
	defaultWindow = 7 * 24 * time.Hour
	leastWindow   = time.Hour
	longestWindow = 10 * 365 * 24 * time.Hour
)

// Options configure an [Inbox]. The zero value is ready for use.
type Options struct {
	// Table is the inbox table's name: "name" or "schema.name", as
	// [dialect.ParseTable] reads it. Defaults to "inbox".
	Table string

	// Window is how long a message is recognised after it was first received:
	// between an hour and 10 years. [Inbox.Clean] keeps the id until then. See the
	// package documentation for how to choose it. Defaults to 7 days.
	Window time.Duration
}

// New returns the Inbox of one consumer. Several consumers that receive the same
// messages can share a table, because each id is stored with the consumer's name.
// All processes of a consumer must use the same name, and the name must not
// change: under a new name all messages count as new. The name has 1 to 100 bytes of UTF-8.
// The error lists all invalid arguments.
func New(d dialect.Dialect, consumer string, options Options) (*Inbox, error) {
	if d == nil {
		return nil, errors.New("make an inbox: the dialect is nil: pass your database's dialect from package dialect")
	}
	window := cmp.Or(options.Window, defaultWindow)
	table, tableErr := dialect.ParseTable(cmp.Or(options.Table, "inbox"))
	if err := errors.Join(checkConsumer(consumer), tableErr, checkWindow(window)); err != nil {
		return nil, fmt.Errorf("make an inbox: %w", err)
	}
	return &Inbox{dialect: d, table: table, consumer: consumer, window: window}, nil
}

func checkConsumer(name string) error {
	if err := checkText(name, maxConsumer); err != nil {
		return fmt.Errorf("the consumer's name %w", err)
	}
	return nil
}

func checkWindow(window time.Duration) error {
	if window < leastWindow || window > longestWindow {
		return fmt.Errorf("the option Window must be between %s and %s, and is %s", leastWindow, longestWindow, window)
	}
	return nil
}
