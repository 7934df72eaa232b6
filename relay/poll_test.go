package relay

import (
	"testing"
	"time"
)

// The poll interval is short while polls find rows, and then grows again.
func TestPollInterval(t *testing.T) {
	t.Parallel()
	const longest = 200 * time.Millisecond
	p := &polling{}
	now := time.Unix(0, 0)
	look := func(unasked, found bool) time.Duration {
		p.polled = unasked
		p.begin(now, longest)
		p.count(!found)
		return p.at.Sub(p.began)
	}
	if got := look(true, false); got != longest {
		t.Errorf("without messages the next poll is after %v, want %v", got, longest)
	}
	if got := look(false, true); got != longest {
		t.Errorf("after a wake-up that found a message the next poll is after %v, want %v", got, longest)
	}
	if got := look(true, true); got != quickPoll {
		t.Errorf("after a poll that found a message the next poll is after %v, want %v", got, quickPoll)
	}
	looks, waited := 0, time.Duration(0)
	for last := quickPoll; last < longest; looks++ {
		next := look(true, false)
		if looks > 0 && next > last+waited/16+time.Millisecond {
			t.Errorf("after %v without a message the next poll is after %v", waited, next)
		}
		last, waited = next, waited+next
	}
	if looks < 40 || looks > 70 {
		t.Errorf("it took %d polls until the interval was as long as before", looks)
	}
	if got := look(true, true); got != quickPoll {
		t.Errorf("after another message the next poll is after %v, want %v", got, quickPoll)
	}
	short := 3 * time.Millisecond
	p.begin(now, short)
	if got := p.at.Sub(now); got != short {
		t.Errorf("with Poll set to %v the next poll is after %v", short, got)
	}
}
