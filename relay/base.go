package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// base is what every part of the engine needs: the table, the options, and whom to tell
// of trouble. Any goroutine may use it.
type base struct {
	store       storage.Store
	options     Options
	callTimeout time.Duration // of one call of the database, which must not hold the relay for longer than its lease
	health      *health
	logLimiter  logLimiter
}

// reached notes how a call of the database went that began then.
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

// failed reports trouble with a stage, which will try again. Of trouble that
// lasts, a line now and then is enough.
func (b *base) failed(stage string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	b.options.Observer.Failed(stage, err)
	if allowed, more := b.logLimiter.allow("failed " + stage); allowed {
		b.options.Logger.Warn("relay: trouble, trying again", "relay", b.options.Name, "stage", stage, "error", err, "unsaid", more)
	}
}

// tried notes how a call went whose trouble may last.
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

// backAfter is how long a database must have been silent for its return to be told.
const backAfter = time.Second

// logBack tells that the database answers again, after every call had failed for so long.
func (b *base) logBack(silent time.Duration) {
	if silent < backAfter {
		return
	}
	if allowed, more := b.logLimiter.allow("back"); allowed {
		b.options.Logger.Info("relay: the database is back", "relay", b.options.Name, "after", silent.Round(time.Millisecond), "unsaid", more)
	}
}

// quietTime is how long a line of the log that was written is not repeated.
const quietTime = 10 * time.Second

// logLimiter keeps trouble that lasts from filling the log.
type logLimiter struct {
	mu    sync.Mutex
	lines map[string]limitedLine
}

type limitedLine struct {
	last time.Time
	more int
}

// allow says whether a line may be written now, and how many like it were not
// since the last one.
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

// earliest returns the earlier of two times. A zero one isn't set.
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
