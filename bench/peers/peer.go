// Package peers runs other outboxes and job queues of the Go world on PostgreSQL,
// each in this process, with tables of its own, and set up for speed as its
// documentation and its authors' own benchmark have it.
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

// Handler delivers one message. A peer calls it from as many goroutines as it
// works with, and takes nil for delivered.
type Handler func(ctx context.Context, payload []byte) error

// Peer is one way to run a competitor.
type Peer interface {
	// Name is for figures.
	Name() string
	// Keeps says that done rows stay.
	Keeps() bool
	// Create makes the tables.
	Create(ctx context.Context, d *table.Database) error
	// Insert is a statement that writes so many messages ($1) of so many bytes of
	// payload ($2), as the peer's own writer does.
	Insert() string
	// Start runs the peer until stop is called, which returns what went wrong.
	Start(ctx context.Context, d *table.Database, handle Handler) (stop func() error, err error)
	// Pending is a query that says whether a message is not yet done.
	Pending() string
}

// All are the peers, each keeping and deleting where it can do both.
var All = []Peer{
	River{}, Watermill{}, Watermill{Forwarder: true},
	River{Delete: true}, Watermill{Delete: true}, Watermill{Delete: true, Forwarder: true}, Oagudo{},
}

const (
	// tick is how soon a peer looks again when nothing wakes it.
	tick = time.Millisecond
	// most is how many messages a peer takes at once: all are the faster, the more
	// they take, so that one number for all of them is fair. It is what River
	// completes at once, and more than a relay's buffer.
	most = 5000
)

// some is how many messages a transaction writes: many for a backlog, yet not all
// of it.
const some = 1000

// Fill makes the peer's tables with a backlog, and lets the database come to rest.
func Fill(ctx context.Context, p Peer, d *table.Database, count, payload int) error {
	if err := p.Create(ctx, d); err != nil {
		return fmt.Errorf("create the tables of %s: %w", p.Name(), err)
	}
	if err := Write(ctx, p, d, count, payload); err != nil {
		return err
	}
	return d.Rest(ctx)
}

// Write writes messages, a thousand a transaction.
func Write(ctx context.Context, p Peer, d *table.Database, count, payload int) error {
	for n := 0; n < count; n += some {
		if _, err := d.DB.ExecContext(ctx, p.Insert(), min(some, count-n), payload); err != nil {
			return fmt.Errorf("write messages for %s: %w", p.Name(), err)
		}
	}
	return nil
}

// Drain runs a peer on a backlog that is there until the database shows nothing
// pending, and returns how long that took from its start on.
func Drain(ctx context.Context, p Peer, d *table.Database, backlog int, handle Handler) (took time.Duration, err error) {
	if left, err := Left(ctx, p, d); err != nil {
		return 0, err
	} else if !left {
		return 0, fmt.Errorf("%s shows nothing pending before it starts", p.Name())
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

// UntilDone waits until the database shows nothing pending. Looking costs it
// something, so that it should begin when little is left.
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

// Left says whether the database shows a message that isn't done.
func Left(ctx context.Context, p Peer, d *table.Database) (left bool, err error) {
	err = d.DB.QueryRowContext(ctx, p.Pending()).Scan(&left)
	return left, err
}

// Nothing is a handler that does nothing.
func Nothing(context.Context, []byte) error { return nil }

// Counter counts what a handler took.
type Counter struct{ count atomic.Int64 }

// Around counts what the handler takes.
func (c *Counter) Around(handle Handler) Handler {
	return func(ctx context.Context, payload []byte) error {
		err := handle(ctx, payload)
		if err == nil {
			c.count.Add(1)
		}
		return err
	}
}

// Wait waits until the handler took so many.
func (c *Counter) Wait(ctx context.Context, count int) error {
	for c.count.Load() < int64(count) {
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d messages came: %w", c.count.Load(), count, err)
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
