package sqlstore

import (
	"testing"

	"github.com/rowrelay/rowrelay/relay"
)

// A lane that had more than its share is read as far as its share will reach; one
// that had less, or nothing up to its end, is read on without one.
func TestPacesBoundLanesThatHadMoreThanTheirShare(t *testing.T) {
	t.Parallel()
	const share = 16
	positions := []relay.Position{{Lane: 1, After: 100}, {Lane: 2, After: 100}, {Lane: 3, After: 100}, {Lane: 4, After: 100}}
	var p paces
	if _, more := p.bounded(positions, share); more {
		t.Error("lanes are bounded of which nothing is known")
	}
	rows := append(rowsOf(1, 100, 64, 40), rowsOf(2, 100, 64, 3)...)
	p.learn(positions, append(rows, rowsOf(3, 100, 64, 20)...), share, true)
	ended, more := p.bounded(positions, share)
	for i, want := range []int64{100 + 1 + 64*share, 0, 100 + 1 + 64*share, 100 + 1 + 64*share} {
		if ended[i].Until != want {
			t.Errorf("lane %d: read up to %d, want %d", ended[i].Lane, ended[i].Until, want)
		}
	}
	if !more {
		t.Error("behind the ends there may be more")
	}
	p.learn(ended, rowsOf(3, 200, 64, 3), share, false)
	ended, _ = p.bounded(positions, share)
	for i, want := range []int64{0, 0, 100 + 1 + 2*64*share, 0} {
		if ended[i].Until != want {
			t.Errorf("then lane %d: read up to %d, want %d", ended[i].Lane, ended[i].Until, want)
		}
	}
}

func rowsOf(lane int, after, step int64, count int) (rows []relay.Row) {
	for i := range count {
		rows = append(rows, relay.Row{Lane: lane, ID: after + step*int64(i+1)})
	}
	return rows
}
