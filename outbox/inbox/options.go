package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The bounds of Options.Window.
const (
	defaultWindow = 7 * 24 * time.Hour
	leastWindow   = time.Hour
	longestWindow = 10 * 365 * 24 * time.Hour
)

// Options say which table an [Inbox] keeps, and for how long. The zero value is fine.
type Options struct {
	// Table is the inbox table's name: "name" or "schema.name", as
	// [dialect.ParseTable] reads it. Defaults to "inbox".
	Table string

	// Window is how long a message is recognised after it was first received, from
	// an hour to 10 years: [Inbox.Clean] deletes no id earlier. What it has to be
	// longer than, says the package's description. Defaults to 7 days.
	Window time.Duration
}

// New makes the Inbox of one consumer. Its name tells it from others that
// receive the same messages and keep the same table: each has an effect of its
// own. It must stay the same, or all messages are new to it; all processes of a
// consumer have the same. It has 1 to 100 bytes of UTF-8. An error names
// everything that is wrong.
func New(d dialect.Dialect, consumer string, options Options) (*Inbox, error) {
	if d == nil {
		return nil, errors.New("make an inbox: the dialect is nil; give that of your database, from package dialect")
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
