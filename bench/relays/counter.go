package relays

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// Counter is a sink that only counts messages.
type Counter struct {
	discard.Sink
	count atomic.Int64
}

// Send counts the batch, and returns Delivered for all messages.
func (c *Counter) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	c.count.Add(int64(len(batch)))
	return c.Sink.Send(ctx, batch)
}

// Count returns the number of messages that have arrived so far.
func (c *Counter) Count() int { return int(c.count.Load()) }

// Wait waits until the given number of messages has arrived.
func (c *Counter) Wait(ctx context.Context, count int) error {
	for c.Count() < count {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
