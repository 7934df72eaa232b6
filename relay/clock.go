package relay

import "time"

// databaseClock estimates the database's present time from the time in the database's last answer. The database's clock and this
// host's may differ.
type databaseClock struct {
	said, heard time.Time // the time in the database's last answer, and the time on this host's clock when that answer arrived
}

// passed reports whether the database's clock has reached a time. It may return true too late, by at most the time that the
// database's last answer took to arrive, but never too early. Before the first answer it returns false.
func (c *databaseClock) passed(at time.Time) bool {
	return !at.IsZero() && !c.said.IsZero() && !c.now().Before(at)
}

// now returns the estimated time of the database, or this host's time before the first answer.
func (c *databaseClock) now() time.Time {
	if c.said.IsZero() {
		return time.Now()
	}
	return c.said.Add(time.Since(c.heard))
}
