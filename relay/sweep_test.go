package relay

import (
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A lane is lost and leased again while a step of its sweep is under way: what the
// step has walked doesn't count for it. It is walked once more, and read then.
func TestALaneThatIsLeasedAgainIsSweptAgain(t *testing.T) {
	t.Parallel()
	stays, again := emptyLane(storage.Lease{Lane: 1}, 1), emptyLane(storage.Lease{Lane: 2}, 1)
	stays.cursor, again.cursor = 20, 20
	e := withLanes(&engine{routes: &router{}, base: &base{health: &health{},
		options: Options{Observer: NoObserver{}, Logger: slog.New(slog.DiscardHandler), Poll: time.Second}}}, map[int]*lane{1: stays, 2: again})
	e.sweep.add(stays)
	e.sweep.add(again)
	f := e.sweep.step(time.Now())
	if f == nil || len(f.positions) != 2 {
		t.Fatalf("the first step is %+v, want one that walks two lanes", f)
	}
	anew := emptyLane(storage.Lease{Lane: 2, Fence: 1}, 1)
	anew.cursor, anew.seq = 20, 3
	e.lanes[2], e.sorted = anew, nil
	e.sweep.add(anew)
	f.seq, f.scan.left = 3, nil
	e.sweep.merge(f)
	if stays.unswept || !anew.unswept {
		t.Errorf("unswept are lane 1 (%v) and lane 2 (%v), want lane 2 alone", stays.unswept, anew.unswept)
	}
	f = e.sweep.step(time.Now())
	if f == nil || len(f.positions) != 1 || f.positions[0] != (storage.Position{Lane: 2, Until: 20}) {
		t.Fatalf("the next step is %+v, want one that walks lane 2 from its beginning", f)
	}
	f.seq, f.scan.left = 4, nil
	if e.sweep.merge(f); anew.unswept {
		t.Error("lane 2 was swept, and isn't read")
	}
}
