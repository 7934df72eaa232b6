package relay

import "time"

// databaseClock estimates the database's time from its last answer. The database's clock and this host's may differ.
type databaseClock struct {
	said, heard time.Time // the last answer, and when it arrived by this host's clock
}

// passed reports whether a time has passed by the database's clock. It may report so late, by the time that the answer took, and
// never too early. Before the first answer it returns false.
func (c *databaseClock) passed(at time.Time) bool {
	return !at.IsZero() && !c.said.IsZero() && !c.now().Before(at)
}

// now returns the database's time, or before the first answer this host's.
func (c *databaseClock) now() time.Time {
	if c.said.IsZero() {
		return time.Now()
	}
	return c.said.Add(time.Since(c.heard))
}
