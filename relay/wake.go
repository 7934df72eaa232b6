package relay

import (
	"context"
	"math/rand/v2"
	"time"
)

// waker turns any number of calls into one pending look.
type waker chan struct{}

func (w waker) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// wakePace is how long after a look began the next one begins that somebody asks
// for: where messages come one by one, each look finds more of them so, and the
// last of them waits this long.
const wakePace = 2 * time.Millisecond

// woken looks for new messages, at once unless there was a look just now.
func (e *engine) woken(now time.Time) {
	next := e.read.began.Add(wakePace)
	if now.Before(next) {
		e.read.pollAt = earliest(e.read.pollAt, next)
		return
	}
	e.read.fresh, e.read.polled = true, false
}

func (e *engine) beginLook(now time.Time) {
	e.read.fresh, e.read.polled = false, false
	e.read.began, e.read.pollAt = now, now.Add(e.options.Poll)
}

// draw returns a random wait of at most the n-th bound, n from 1 (full jitter).
func (b Backoff) draw(n int) time.Duration {
	bound := b.Max
	if shift := n - 1; shift < 30 && b.Min<<shift > 0 {
		bound = min(b.Max, b.Min<<shift)
	}
	return time.Duration(rand.Int64N(int64(bound) + 1))
}

// listen keeps a Listener listening until the context ends.
func (e *engine) listen(ctx context.Context) {
	pause := Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second}
	for failures := 1; ; failures++ {
		began := time.Now()
		err := e.options.Listener.Listen(ctx, e.wake.wake)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 1
		}
		e.failed("listen", err)
		if !sleep(ctx, pause.draw(failures)) {
			return
		}
	}
}

// sleep waits for d and says whether the context still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// earliest returns the earliest of the times that are set.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
