package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The bounds of WithWindow.
const (
	defaultWindow = 7 * 24 * time.Hour
	leastWindow   = time.Hour
	longestWindow = 10 * 365 * 24 * time.Hour
)

// Option changes an [Inbox] from its defaults.
type Option func(*settings)

type settings struct {
	table  string
	window time.Duration
}

// WithTable takes another table than "inbox": "name" or "schema.name", as
// [dialect.ParseTable] reads it.
func WithTable(name string) Option { return func(s *settings) { s.table = name } }

// WithWindow says for how long a message is recognised after it was first
// received, from an hour to 10 years: [Inbox.Clean] deletes no id earlier. What
// it has to be longer than, says the package's description. Default 7 days.
func WithWindow(window time.Duration) Option { return func(s *settings) { s.window = window } }

// New makes the Inbox of one consumer. Its name tells it from others that
// receive the same messages and keep the same table: each has an effect of its
// own. It must stay the same, or all messages are new to it; all processes of a
// consumer have the same. It has 1 to 100 bytes of UTF-8. An error names
// everything that is wrong.
func New(d dialect.Dialect, consumer string, options ...Option) (*Inbox, error) {
	if d == nil {
		return nil, errors.New("make an inbox: the dialect is nil; give dialect.Postgres() or that of your database")
	}
	s := settings{window: defaultWindow}
	for _, option := range options {
		if option == nil {
			return nil, errors.New("make an inbox: an option is nil: use the functions whose names begin with With")
		}
		option(&s)
	}
	table, tableErr := dialect.ParseTable(cmp.Or(s.table, "inbox"))
	if err := errors.Join(checkConsumer(consumer), tableErr, checkWindow(s.window)); err != nil {
		return nil, fmt.Errorf("make an inbox: %w", err)
	}
	return &Inbox{dialect: d, table: table, consumer: consumer, window: s.window}, nil
}

func checkConsumer(name string) error {
	if err := checkText(name, maxConsumer); err != nil {
		return fmt.Errorf("the consumer's name %w", err)
	}
	return nil
}

func checkWindow(window time.Duration) error {
	if window < leastWindow || window > longestWindow {
		return fmt.Errorf("WithWindow: must be between %s and %s, and is %s", leastWindow, longestWindow, window)
	}
	return nil
}
