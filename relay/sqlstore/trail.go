package sqlstore

import (
	"slices"
	"time"
)

// trail is how far ids are final where nobody can tell which transactions are
// open: those that were given out so long ago that, so we are told, none of that
// time is open any more. A row of a longer transaction is found by a sweep, but
// the order isn't kept.
type trail struct {
	longest time.Duration // that a transaction stays open
	steps   []step
}

// step: at that time, no higher id was known to have been given out.
type step struct {
	at time.Time
	id int64
}

// trailSteps is about how many steps there are in the longest transaction.
const trailSteps = 64

// passed notes how far ids are given out now, and says how far they are final.
// The time is the monotonic clock's.
func (t *trail) passed(given int64, now time.Time) (final int64) {
	old := 0
	for old < len(t.steps) && now.Sub(t.steps[old].at) >= t.longest {
		final = t.steps[old].id
		old++
	}
	t.steps = slices.Delete(t.steps, 0, old)
	if n := len(t.steps); n == 0 || now.Sub(t.steps[n-1].at) >= t.longest/trailSteps && t.steps[n-1].id < given {
		t.steps = append(t.steps, step{now, given})
	}
	return final
}

// emptied is the same trail, without its steps.
func (t *trail) emptied() *trail {
	if t == nil {
		return nil
	}
	return &trail{longest: t.longest}
}
