package steady

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// Clock is a sink that records how long each message of a steady load took, and counts all other
// messages.
type Clock struct {
	discard.Sink
	mu     sync.Mutex
	took   []time.Duration
	others int
}

// Send records the batch's times.
func (c *Clock) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	now := time.Now().UnixNano()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		if m.Topic != Topic {
			c.others++
		} else if due, err := strconv.ParseInt(string(bytes.TrimRight(m.Payload, " ")), 10, 64); err == nil {
			c.took = append(c.took, time.Duration(now-due))
		}
	}
	return c.Sink.Send(ctx, batch)
}

// Others returns the number of messages that don't belong to the steady load.
func (c *Clock) Others() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.others
}

// Take returns the times that were recorded since the last call of Take, sorted.
func (c *Clock) Take() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took = nil
	slices.Sort(took)
	return took
}

// Quantile returns a quantile of sorted times. It returns 0 if there are no times.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
