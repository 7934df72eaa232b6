package relay

import (
	"testing"

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
