package outbox

import (
	"sync"
	"time"
)

// limiter allows one call in each interval. A nil limiter allows no calls.
type limiter struct {
	interval time.Duration

	mu   sync.Mutex
	next time.Time
}

func (l *limiter) allow() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		return false
	}
	l.next = now.Add(l.interval)
	return true
}
