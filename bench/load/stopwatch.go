package load

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Stopwatch records when each message was committed and when it was handled.
type Stopwatch struct {
	began               time.Time
	committed, answered []atomic.Int64 // nanoseconds since the stopwatch began; 0: not yet committed or handled
	missing             atomic.Int64
}

// NewStopwatch returns a stopwatch for the given number of messages.
func NewStopwatch(count int) *Stopwatch {
	s := &Stopwatch{began: time.Now(), committed: make([]atomic.Int64, count), answered: make([]atomic.Int64, count)}
	s.missing.Store(int64(count))
	return s
}

// ID returns the message id of message n.
func ID(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

// Committed records that a message's transaction has committed.
func (s *Stopwatch) Committed(n int) { s.committed[n].Store(int64(time.Since(s.began))) }

// Answered records that the sink has handled a message. It ignores unknown ids.
func (s *Stopwatch) Answered(id string) {
	n, err := strconv.Atoi(id[len(id)-12:])
	if err == nil && n < len(s.answered) && s.answered[n].CompareAndSwap(0, int64(time.Since(s.began))) {
		s.missing.Add(-1)
	}
}

// Wait waits until all messages have been handled.
func (s *Stopwatch) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for s.missing.Load() > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages didn't arrive within a minute", s.missing.Load())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// Took returns, for each message, the milliseconds from its commit until it was handled, or 0 if it was handled
// before the commit returned.
func (s *Stopwatch) Took() []float64 {
	took := make([]float64, len(s.answered))
	for n := range took {
		took[n] = float64(max(0, s.answered[n].Load()-s.committed[n].Load())) / 1e6
	}
	return took
}
