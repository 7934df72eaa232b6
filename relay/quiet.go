package relay

import (
	"sync"
	"time"
)

// quietTime is how long a line of the log that was written is not repeated.
const quietTime = 10 * time.Second

// quieter keeps trouble that lasts from filling the log.
type quieter struct {
	mu    sync.Mutex
	lines map[string]*quietLine
}

type quietLine struct {
	last time.Time
	more int
}

// again says whether a line may be written now, and how many like it were not
// since the last one.
func (q *quieter) again(line string) (ok bool, more int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = map[string]*quietLine{}
	}
	l := q.lines[line]
	if l == nil {
		l = &quietLine{}
		q.lines[line] = l
	}
	if now := time.Now(); l.last.IsZero() || now.Sub(l.last) >= quietTime {
		more, l.last, l.more = l.more, now, 0
		return true, more
	}
	l.more++
	return false, 0
}
