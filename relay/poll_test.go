package relay

import (
	"testing"
	"time"
)

// Polls follow each other quickly while they find rows, and then become rare again.
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
		t.Errorf("at rest the next look is after %v, want %v", got, longest)
	}
	if got := look(false, true); got != longest {
		t.Errorf("after a message that was announced the next look is after %v, want %v", got, longest)
	}
	if got := look(true, true); got != quickPoll {
		t.Errorf("after a message that was found the next look is after %v, want %v", got, quickPoll)
	}
	looks, waited := 0, time.Duration(0)
	for last := quickPoll; last < longest; looks++ {
		next := look(true, false)
		if looks > 0 && next > last+waited/16+time.Millisecond {
			t.Errorf("after %v without a message the next look is after %v", waited, next)
		}
		last, waited = next, waited+next
	}
	if looks < 40 || looks > 70 {
		t.Errorf("%d looks until they are as rare as before", looks)
	}
	if got := look(true, true); got != quickPoll {
		t.Errorf("then the next look is after %v, want %v", got, quickPoll)
	}
	short := 3 * time.Millisecond
	p.begin(now, short)
	if got := p.at.Sub(now); got != short {
		t.Errorf("with a poll of %v the next look is after %v", short, got)
	}
}
