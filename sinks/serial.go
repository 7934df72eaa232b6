package sinks

import (
	"context"
	"fmt"
	"time"
)

// Serial runs calls that nothing can interrupt, such as the write of a file, one
// at a time and without holding up their callers: a Send returns soon after its
// context ends, while a call that is stuck goes on and keeps its turn.
type Serial struct {
	turn chan struct{}
}

// NewSerial returns a Serial for one destination.
func NewSerial() *Serial { return &Serial{turn: make(chan struct{}, 1)} }

// grace is how long Send waits for a call that notices the end of its context.
const grace = 100 * time.Millisecond

// Send runs write for a batch of n messages and returns its outcomes. Messages
// whose turn didn't come before the context ended are [Unsent]; those of a
// write that was still running then are a [Retry] with [ReasonTimeout], since
// they may be delivered yet. Write must not use the batch. Send may be called
// concurrently.
func (s *Serial) Send(ctx context.Context, n int, write func(context.Context) []Outcome) []Outcome {
	if !s.begin(ctx) {
		return All(n, Cancelled())
	}
	result := make(chan []Outcome, 1)
	go func() {
		defer s.end()
		result <- write(ctx)
	}()
	select {
	case outcomes := <-result:
		return outcomes
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case outcomes := <-result:
		return outcomes
	case <-timer.C:
		return All(n, Fail(Retry, ReasonTimeout, "the write has not ended in time"))
	}
}

// Do runs f when no write is running, and keeps others waiting meanwhile. It
// fails where a write is still running when the context ends.
func (s *Serial) Do(ctx context.Context, f func() error) error {
	if !s.begin(ctx) {
		return fmt.Errorf("wait for a write that is still running: %w", context.Cause(ctx))
	}
	defer s.end()
	return f()
}

func (s *Serial) begin(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Serial) end() { <-s.turn }
