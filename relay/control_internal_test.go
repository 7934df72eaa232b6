package relay

import (
	"fmt"
	"testing"
)

// If 1.5 million keys are paused, the set of one lane's keys has fewer than 1 % false positives.
func TestKeySetHasFewFalsePositives(t *testing.T) {
	t.Parallel()
	const keys = 1_500_000 / 64
	set := newKeySet()
	for i := range keys {
		set.add(i%2, fmt.Sprint("key-", i))
	}
	missing, others := 0, 0
	for i := range keys {
		if !set.has(i%2, fmt.Sprint("key-", i)) {
			missing++
		}
		if set.has(i%2, fmt.Sprint("other-", i)) {
			others++
		}
		if set.has(1-i%2, fmt.Sprint("key-", i)) { // the same key of another sink
			others++
		}
	}
	if missing > 0 || others > 2*keys/100 {
		t.Errorf("%d keys were added, and %d of them are missing; %d of %d other keys are false positives", keys, missing, others, 2*keys)
	}
	bytes := 0
	for _, filter := range set.filters {
		bytes += 8 * len(filter)
	}
	if bytes > 64<<10 {
		t.Errorf("the set has %d bytes", bytes)
	}
}
