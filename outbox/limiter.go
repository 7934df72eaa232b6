package outbox

import (
	"sync"
	"time"
)

// limiter lets one pass in each interval. A nil one lets none pass.
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
