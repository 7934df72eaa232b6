package relay

import "time"

// dueAgain notes that a held row becomes due.
func (e *engine) dueAgain(at time.Time) {
	if e.read.nextDue.IsZero() || at.Before(e.read.nextDue) {
		e.read.nextDue = at
	}
	e.dueSooner(time.Now())
}

// dueSooner brings the next look at the held rows forward to when one of them
// is known to become due. The database's clock may be a little behind.
func (e *engine) dueSooner(now time.Time) {
	if e.read.nextDue.IsZero() {
		return
	}
	if !e.read.nextDue.After(now) {
		e.read.nextDue = time.Time{}
		e.read.dueAt = now
		return
	}
	e.read.dueAt = earliest(e.read.dueAt, e.read.nextDue)
}
