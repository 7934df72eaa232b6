package load

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// Stopwatch knows when each message was committed and when it was answered for.
type Stopwatch struct {
	began               time.Time
	committed, answered []atomic.Int64 // nanoseconds since began; 0: not yet
	missing             atomic.Int64
}

// NewStopwatch is one for so many messages.
func NewStopwatch(count int) *Stopwatch {
	s := &Stopwatch{began: time.Now(), committed: make([]atomic.Int64, count), answered: make([]atomic.Int64, count)}
	s.missing.Store(int64(count))
	return s
}

// ID is the message id of a message.
func ID(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

// Committed notes that a message's transaction has committed.
func (s *Stopwatch) Committed(n int) { s.committed[n].Store(int64(time.Since(s.began))) }

// Answered notes that the sink has answered for a message; others' are passed
// over.
func (s *Stopwatch) Answered(id string) {
	n, err := strconv.Atoi(id[len(id)-12:])
	if err == nil && n < len(s.answered) && s.answered[n].CompareAndSwap(0, int64(time.Since(s.began))) {
		s.missing.Add(-1)
	}
}

// Wait waits until all are answered for.
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

// Took is how long each message took in milliseconds; nothing if the answer came
// before the commit's.
func (s *Stopwatch) Took() []float64 {
	took := make([]float64, len(s.answered))
	for n := range took {
		took[n] = float64(max(0, s.answered[n].Load()-s.committed[n].Load())) / 1e6
	}
	return took
}
