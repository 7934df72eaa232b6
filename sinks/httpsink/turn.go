package httpsink

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// turn is the right to make one request to an endpoint.
type turn struct {
	all   *endpoints
	to    *endpoint
	slow  bool
	began time.Time

	message string // its id
}

var cancelled = sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, "")

// enter waits for a turn, up to the patience; without one it returns the outcome
// of the message.
func (all *endpoints) enter(ctx context.Context, r *round, name string) (*turn, sinks.Outcome) {
	for {
		t, notNow, again := all.try(r, name)
		if again == nil {
			return t, notNow
		}
		if !again.wait(ctx) {
			return nil, cancelled
		}
	}
}

// pause is what a message waits for before it tries again.
type pause struct {
	left <-chan struct{}
	most time.Duration
}

func (p *pause) wait(ctx context.Context) bool {
	timer := time.NewTimer(p.most)
	defer timer.Stop()
	select {
	case <-p.left:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// try returns a turn, or an outcome, or what to wait for.
func (all *endpoints) try(r *round, name string) (*turn, sinks.Outcome, *pause) {
	all.mu.Lock()
	defer all.mu.Unlock()
	e, now := all.of(name), time.Now()
	if o, closed := e.closed(now); closed {
		return nil, o, nil
	}
	switch {
	case e.stuck(now), e.slow() && !all.maySlowly(r, now):
		return nil, e.busy(now, all.share, e.took), nil
	case e.next.Sub(now) > patience:
		return nil, e.busy(now, 1, all.apart), nil
	case e.flying >= all.share:
		return nil, sinks.Outcome{}, e.waiting(e.moved.Add(patience + time.Millisecond).Sub(now))
	case e.next.After(now):
		return nil, sinks.Outcome{}, &pause{most: e.next.Sub(now)}
	}
	return all.take(r, e, now), sinks.Outcome{}, nil
}

// maySlowly says whether this Send may wait for a slow endpoint.
func (all *endpoints) maySlowly(r *round, now time.Time) bool {
	return !r.mixed && (all.slow == nil || all.slow == r) && now.Sub(r.began) <= patience
}

func (e *endpoint) waiting(most time.Duration) *pause {
	if e.left == nil {
		e.left = make(chan struct{})
	}
	return &pause{left: e.left, most: most}
}

func (all *endpoints) take(r *round, e *endpoint, now time.Time) *turn {
	if e.flying++; e.flying == 1 {
		e.moved = now
	}
	e.next = now.Add(all.apart)
	if e.slow() {
		all.slow = r
		all.slowly++
	}
	return &turn{all: all, to: e, slow: e.slow()}
}

// begin notes that the request goes out now.
func (t *turn) begin() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.began = time.Now()
	t.to.moved = t.began
}

// leave gives the turn back, and returns what the request's outcome is to its
// message.
func (all *endpoints) leave(t *turn, o sinks.Outcome) sinks.Outcome {
	all.mu.Lock()
	defer all.mu.Unlock()
	e, now := t.to, time.Now()
	e.flying--
	if t.slow {
		if all.slowly--; all.slowly == 0 {
			all.slow = nil
		}
	}
	if e.left != nil {
		close(e.left)
		e.left = nil
	}
	if t.began.IsZero() || o.Result == sinks.Unsent {
		return o
	}
	e.moved, e.took = now, now.Sub(t.began)
	return e.learn(t.message, o, now, all.longest)
}
