package plugins

import (
	"time"
)

// longLife is how long a plug-in has to live to have been no crash even if it
// delivered nothing.
const longLife = time.Minute

// crashes ends the restarts of a plug-in that never comes to anything. It is
// used by Open alone.
type crashes struct {
	most  int
	pause time.Duration

	inARow int
	until  time.Time // when it may be started again
	last   error
}

// count notes a crash.
func (c *crashes) count(now time.Time, cause error) {
	c.inARow++
	c.last = cause
	if c.inARow >= c.most {
		c.until = now.Add(c.pause)
	}
}

// forget is called after a life that was of use.
func (c *crashes) forget() { c.inARow, c.until, c.last = 0, time.Time{}, nil }

// allow says whether the plug-in may be started now. After the pause it gets one
// more try, and another pause if that is in vain.
func (c *crashes) allow(now time.Time) error {
	if now.Before(c.until) {
		return config("the plug-in has ended %d times in a row without delivering anything, and is not started again before %s, or until the relay is: %v",
			c.inARow, c.until.UTC().Format(time.TimeOnly+" UTC"), c.last)
	}
	return nil
}
