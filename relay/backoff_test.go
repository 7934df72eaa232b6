package relay

import (
	"testing"
	"testing/quick"
	"time"
)

// A wait is anywhere between zero and a bound that doubles with each attempt, up to Max.
func TestBackoffStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: 500 * time.Millisecond, Max: 5 * time.Minute}
	within := func(n uint16) bool {
		attempt := int(n) + 1
		bound := b.Max
		if attempt < 11 {
			bound = min(b.Max, b.Min<<(attempt-1))
		}
		short, long := false, false
		for range 100 {
			d := b.draw(attempt)
			if d < 0 || d > bound {
				return false
			}
			short, long = short || d < bound/2, long || d > bound/2
		}
		return short && long
	}
	if err := quick.Check(within, nil); err != nil {
		t.Error(err)
	}
}
