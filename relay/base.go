package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// base holds what all parts of the engine share: the store, the options, and the reporting of errors. Any goroutine may use it.
type base struct {
	store       storage.Store
	options     Options
	callTimeout time.Duration // the time-out of a database call; as long as a lease, but at least 5 s
	health      *health
	logLimiter  logLimiter
}

// reached records the result of a database call.
func (b *base) reached(call string, began time.Time, err error) {
	b.options.Observer.Called(call, time.Since(began))
	if err == nil {
		b.health.reached.Store(b.health.now())
		b.health.problem.Store(nil)
		if since := b.health.silentSince.Swap(0); since != 0 {
			b.logBack(time.Duration(b.health.now() - since))
		}
		return
	}
	text := fmt.Sprint(err)
	b.health.problem.Store(&text)
	if !errors.Is(err, context.Canceled) {
		b.health.silentSince.CompareAndSwap(0, max(1, b.health.now()))
	}
}

// failed reports a failed database call that will be repeated. The parameter `stage` names the kind of call. At most one failure
// of each kind is logged per quietTime.
func (b *base) failed(stage string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	b.options.Observer.Failed(stage, err)
	if allowed, more := b.logLimiter.allow("failed " + stage); allowed {
		b.options.Logger.Warn("relay: a database call failed, trying again", "relay", b.options.Name, "stage", stage, "error", err, "suppressed", more)
	}
}

// tried records the result of a call whose lasting failure makes the relay unhealthy (see [Relay.Healthy]).
func (b *base) tried(l *lasting, err error) {
	if err == nil {
		l.since.Store(0)
		return
	}
	text, now := err.Error(), max(1, b.health.now())
	l.problem.Store(&text)
	if last := l.last.Swap(now); l.since.Load() == 0 || time.Duration(now-last) > 2*b.callTimeout {
		l.since.Store(now)
	}
}

// backAfter is the shortest outage of the database whose end is logged.
const backAfter = time.Second

// logBack logs that the database answers again.
func (b *base) logBack(silent time.Duration) {
	if silent < backAfter {
		return
	}
	if allowed, more := b.logLimiter.allow("back"); allowed {
		b.options.Logger.Info("relay: the database is back", "relay", b.options.Name, "after", silent.Round(time.Millisecond), "suppressed", more)
	}
}

// quietTime is how long similar log lines are suppressed after one was logged.
const quietTime = 10 * time.Second

// logLimiter keeps lasting failures from filling the log. It may be used concurrently.
type logLimiter struct {
	mu    sync.Mutex
	lines map[string]limitedLine
}

type limitedLine struct {
	last time.Time
	more int
}

// allow reports whether a line may be logged now, and if so, how many similar lines were suppressed since the last logged one.
func (q *logLimiter) allow(line string) (ok bool, more int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = map[string]limitedLine{}
	}
	l, now := q.lines[line], time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < quietTime {
		l.more++
		q.lines[line] = l
		return false, 0
	}
	q.lines[line] = limitedLine{last: now}
	return true, l.more
}

// sleep waits for the duration d. It returns false if the context ends first.
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

// earliest returns the earlier of two times, ignoring a zero one.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
