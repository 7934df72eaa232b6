package relays

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// Counter is a sink that does nothing but count.
type Counter struct {
	discard.Sink
	count atomic.Int64
}

// Send counts the batch as delivered.
func (c *Counter) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	c.count.Add(int64(len(batch)))
	return c.Sink.Send(ctx, batch)
}

// Count is how many messages came.
func (c *Counter) Count() int { return int(c.count.Load()) }

// Wait waits until so many messages have come.
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
