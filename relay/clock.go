package relay

import "time"

// databaseClock is the database's time, as a relay knows it: what the database said last, and
// when that was heard. The two clocks needn't agree.
type databaseClock struct {
	said, heard time.Time
}

// passed says that a time has passed by the database's clock. Of a clock that was never heard
// none has. It may be wrong by the time that the answer took, but never says so too early.
func (c *databaseClock) passed(at time.Time) bool {
	return !at.IsZero() && !c.said.IsZero() && !c.now().Before(at)
}

// now is the database's time, or this process's while that was never heard.
func (c *databaseClock) now() time.Time {
	if c.said.IsZero() {
		return time.Now()
	}
	return c.said.Add(time.Since(c.heard))
}
