package relay

import (
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A message counts as one that had not failed before only if all of its attempts were
// charged since the destination last worked: an old failure that comes again says
// nothing of the destination.
func TestWhatHadNotFailedBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempts, charged int // in all, and since it last worked
		fresh             int
	}{
		"the first attempt":                         {0, 0, 1},
		"again, in the same row of failures":        {1, 1, 1},
		"several times, in the same row":            {3, 3, 1},
		"again, as before it last worked":           {1, 0, 0},
		"again, and once in this row after others":  {7, 1, 0},
		"again, some in this row and some before":   {3, 2, 0},
		"given back what the last trouble had cost": {0, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := &trouble{failing: map[failing]struct{}{}, charged: map[int64]charged{}}
			if c.charged > 0 {
				tr.charged[1] = charged{attempts: c.charged}
			}
			it := &item{row: storage.Row{ID: 1, Attempts: c.attempts}}
			tr.fail(it)
			tr.fail(it) // once
			if tr.fresh != c.fresh || len(tr.failing) != 1 {
				t.Errorf("%d fresh of %d, want %d of 1", tr.fresh, len(tr.failing), c.fresh)
			}
		})
	}
}

// TestUsualFailuresTakeMorePatience: where some keys always fail between two deliveries, it takes more of
// them in a row, or more time, until it is the destination's trouble.
func TestUsualFailuresTakeMorePatience(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		usual          float64
		fresh, failing int
		silent         time.Duration // since the last delivery
		evident        bool
	}{
		{usual: 0, fresh: 4, evident: false},
		{usual: 0, fresh: 5, evident: true},
		{usual: 0, failing: 50, silent: 4 * time.Second, evident: false},
		{usual: 0, failing: 50, silent: 5 * time.Second, evident: true},
		{usual: 3, fresh: 64, evident: false}, // three of four are refused
		{usual: 3, fresh: 65, evident: true},
		{usual: 3, fresh: 5, silent: 64 * time.Second, evident: false},
		{usual: 3, fresh: 5, silent: 65 * time.Second, evident: true}, // there are no more keys
		{usual: 3, fresh: 4, silent: time.Hour, evident: false},
		{usual: 3, failing: 50, silent: 64 * time.Second, evident: false},
		{usual: 3, failing: 50, silent: 65 * time.Second, evident: true},
	} {
		now := time.Now()
		tr := &trouble{failing: map[failing]struct{}{}, fresh: c.fresh, usual: c.usual, worked: now.Add(-c.silent)}
		for i := range max(c.fresh, c.failing) {
			tr.failing[failing{id: int64(i)}] = struct{}{}
		}
		if got := tr.evident(5, now); got != c.evident {
			t.Errorf("%+v: evident %v", c, got)
		}
	}
}
