package sinks

import (
	"context"
	"fmt"
	"time"
)

// Serial runs calls that can't be interrupted, such as writing to a file, one at a
// time. It doesn't block the callers: Send returns soon after its context ends. A
// call that is stuck continues in the background, and no other call starts before
// it returns.
type Serial struct {
	turn chan struct{}
}

// NewSerial returns a Serial for one destination.
func NewSerial() *Serial { return &Serial{turn: make(chan struct{}, 1)} }

// grace is how long Send waits for the call to return after the context has ended.
const grace = 100 * time.Millisecond

// Send runs the function write for a batch of n messages and returns the outcomes that
// the function returned. If the context ends before the function has started, all
// outcomes are [Unsent]. If the context ends while the function is running, and the
// function doesn't return soon, all outcomes are [Retry] with [ReasonTimeout], because
// the function may still deliver the messages. The function must not use the batch,
// because it may run longer than Send. Send may be called concurrently.
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
		return All(n, Fail(Retry, ReasonTimeout, "the write did not finish in time"))
	}
}

// Do calls the function f when no write is running, and starts no write until f
// has returned. Do returns an error if a write is still running when the context
// ends.
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
