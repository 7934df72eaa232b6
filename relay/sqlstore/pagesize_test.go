package sqlstore

import (
	"math"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Of large rows no more are asked for than will do, and a page that has as many
// says that there are more.
func TestLargeRowsAreAskedForInSmallNumbers(t *testing.T) {
	t.Parallel()
	const limit, maxBytes, size = 2000, 8 << 20, 1 << 20
	positions := []storage.Position{{Lane: 1}}
	var p pageSizer
	first := p.ask(positions, &reading{limit: limit, maxBytes: maxBytes}, false)
	if first.Limit != limit || first.MaxBytes != 0 {
		t.Errorf("asked for %d rows and %d bytes before anything is known", first.Limit, first.MaxBytes)
	}
	page := &reading{limit: limit, maxBytes: maxBytes}
	page.rows = []storage.Row{{Message: outbox.Message{Payload: make([]byte, size)}}}
	page.bytes = size
	p.learn(page)
	for what, change := range map[string]func(){"after a large row": func() {}, "after a read that failed": func() { p.rowSize = 0; p.failed() }} {
		change()
		into := &reading{limit: limit, maxBytes: maxBytes}
		if read := p.ask(positions, into, false); read.Limit != 17 || into.asked != 17 || read.MaxBytes != maxBytes {
			t.Errorf("%s: asked for %d rows and %d bytes, and expects %d", what, read.Limit, read.MaxBytes, into.asked)
		}
	}
}

// A lane that had more than its share is read as far as its share will reach; one
// that had less, or nothing up to its end, is read on without one.
func TestLaneStridesBoundLanesThatHadMoreThanTheirShare(t *testing.T) {
	t.Parallel()
	const share = 16
	positions := new(Store).groups([]storage.Position{{Lane: 1, After: 100}, {Lane: 2, After: 100}, {Lane: 3, After: 100}, {Lane: 4, After: 100}})[0]
	var s laneStrides
	if _, more := s.bounded(positions, share); more {
		t.Error("lanes are bounded of which nothing is known")
	}
	rows := append(rowsOf(1, 100, 64, 40), rowsOf(2, 100, 64, 3)...)
	s.learn(positions, append(rows, rowsOf(3, 100, 64, 20)...), share, true)
	ended, more := s.bounded(positions, share)
	for i, want := range []int64{100 + 1 + 64*share, math.MaxInt64, 100 + 1 + 64*share, 100 + 1 + 64*share} {
		if ended[i].Until != want {
			t.Errorf("lane %d: read up to %d, want %d", ended[i].Lane, ended[i].Until, want)
		}
	}
	if !more {
		t.Error("behind the ends there may be more")
	}
	s.learn(ended, rowsOf(3, 200, 64, 3), share, false)
	ended, _ = s.bounded(positions, share)
	for i, want := range []int64{math.MaxInt64, math.MaxInt64, 100 + 1 + 2*64*share, math.MaxInt64} {
		if ended[i].Until != want {
			t.Errorf("then lane %d: read up to %d, want %d", ended[i].Lane, ended[i].Until, want)
		}
	}
}

func rowsOf(lane int, after, step int64, count int) (rows []storage.Row) {
	for i := range count {
		rows = append(rows, storage.Row{Lane: lane, ID: after + step*int64(i+1)})
	}
	return rows
}
