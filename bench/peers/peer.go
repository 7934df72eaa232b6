// Package peers runs other Go outboxes and job queues on PostgreSQL. Each peer runs in this process
// with its own tables. It is configured for speed, as its documentation and its authors' benchmarks
// recommend.
package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
)

// Handler delivers a message. A result of nil means that the message was delivered. A peer may call
// a Handler from several goroutines.
type Handler func(ctx context.Context, payload []byte) error

// Peer is another outbox or queue in one configuration.
type Peer interface {
	// Name returns the name for figures.
	Name() string
	// Keeps reports whether rows stay in the tables when they are done.
	Keeps() bool
	// Create creates the tables.
	Create(ctx context.Context, d *table.Database) error
	// Insert returns a statement that writes $1 messages with payloads of $2 bytes. The rows are
	// like the rows that the peer's own writer writes.
	Insert() string
	// Start runs the peer until `stop` is called. The function `stop` returns the peer's error.
	Start(ctx context.Context, d *table.Database, handle Handler) (stop func() error, err error)
	// Pending returns a query that reports whether an unfinished message exists.
	Pending() string
}

// All has all peers. Peers that can both keep and delete done rows appear with both configurations.
var All = []Peer{
	River{}, Watermill{}, Watermill{Forwarder: true},
	River{Delete: true}, Watermill{Delete: true}, Watermill{Delete: true, Forwarder: true}, Oagudo{},
}

const (
	// tick is the poll interval of peers without notifications.
	tick = time.Millisecond
	// most is the batch size of all peers. It is large, because each peer is faster with larger
	// batches. River completes at most this number of jobs in one statement.
	most = 5000
)

// some is the number of messages that each transaction writes.
const some = 1000

// Fill creates the peer's tables with a backlog, and makes the database do its
// deferred work.
func Fill(ctx context.Context, p Peer, d *table.Database, count, payload int) error {
	if err := p.Create(ctx, d); err != nil {
		return fmt.Errorf("create the tables of %s: %w", p.Name(), err)
	}
	if err := Write(ctx, p, d, count, payload); err != nil {
		return err
	}
	return d.Rest(ctx)
}

// Write writes messages, a thousand per transaction.
func Write(ctx context.Context, p Peer, d *table.Database, count, payload int) error {
	for n := 0; n < count; n += some {
		if _, err := d.DB.ExecContext(ctx, p.Insert(), min(some, count-n), payload); err != nil {
			return fmt.Errorf("write messages for %s: %w", p.Name(), err)
		}
	}
	return nil
}

// Drain runs a peer on an existing backlog until no message is pending, and returns the time since
// its start.
func Drain(ctx context.Context, p Peer, d *table.Database, backlog int, handle Handler) (took time.Duration, err error) {
	if left, err := Left(ctx, p, d); err != nil {
		return 0, err
	} else if !left {
		return 0, fmt.Errorf("%s reports no pending message before it starts", p.Name())
	}
	began := time.Now()
	var count Counter
	stop, err := p.Start(ctx, d, count.Around(handle))
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Name(), err)
	}
	if err = count.Wait(ctx, backlog); err == nil {
		err = UntilDone(ctx, p, d)
	}
	return time.Since(began), errors.Join(err, stop())
}

// UntilDone waits until no message is pending. Its queries put load on the database, so it should
// be called when few messages are left.
func UntilDone(ctx context.Context, p Peer, d *table.Database) error {
	for {
		left, err := Left(ctx, p, d)
		if err != nil || !left {
			return err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
}

// Left reports whether an unfinished message exists.
func Left(ctx context.Context, p Peer, d *table.Database) (left bool, err error) {
	err = d.DB.QueryRowContext(ctx, p.Pending()).Scan(&left)
	return left, err
}

// Nothing is a handler that does nothing.
func Nothing(context.Context, []byte) error { return nil }

// Counter counts the messages that a handler has accepted.
type Counter struct{ count atomic.Int64 }

// Around returns a handler that calls another one and counts the messages that it accepts.
func (c *Counter) Around(handle Handler) Handler {
	return func(ctx context.Context, payload []byte) error {
		err := handle(ctx, payload)
		if err == nil {
			c.count.Add(1)
		}
		return err
	}
}

// Wait waits until the handler has accepted the given number of messages.
func (c *Counter) Wait(ctx context.Context, count int) error {
	for c.count.Load() < int64(count) {
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d messages arrived: %w", c.count.Load(), count, err)
		}
	}
	return nil
}

func pause(ctx context.Context, for_ time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(for_):
		return nil
	}
}

// execAll runs statements that are separated by semicolons at a line's end.
func execAll(ctx context.Context, d *table.Database, statements string) error {
	for statement := range strings.SplitSeq(statements, ";\n") {
		if _, err := d.DB.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
