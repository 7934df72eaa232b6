package relay

import (
	"log/slog"
	"testing"
	"time"
)

// A lane is lost and leased again while a step of its sweep is under way: what the
// step has walked doesn't count for it. It is walked once more, and read then.
func TestALaneThatIsLeasedAgainIsSweptAgain(t *testing.T) {
	t.Parallel()
	stays, again := newLane(Lease{Lane: 1}, 1, time.Time{}), newLane(Lease{Lane: 2}, 1, time.Time{})
	stays.cursor, again.cursor = 20, 20
	e := withLanes(&engine{routes: &router{}, base: &base{health: &health{},
		options: Options{Observer: NoObserver{}, Logger: slog.New(slog.DiscardHandler), Poll: time.Second}}}, map[int]*lane{1: stays, 2: again})
	e.read.sweep.ids = leastStride
	e.read.sweep.add(stays)
	e.read.sweep.add(again)
	job, ok := e.sweepOn(time.Now())
	if job.seq = 3; !ok || len(job.positions) != 2 {
		t.Fatalf("the first step walks %v, want two lanes", job.positions)
	}
	anew := newLane(Lease{Lane: 2, Fence: 1}, 1, time.Time{})
	anew.cursor, anew.seq = 20, 3
	e.lanes[2], e.sorted = anew, nil
	e.read.sweep.add(anew)
	e.mergeSweep(readResult{job: job})
	if !stays.readable() || anew.readable() {
		t.Errorf("readable are lane 1 (%v) and lane 2 (%v), want lane 1 alone", stays.readable(), anew.readable())
	}
	job, ok = e.sweepOn(time.Now())
	if job.seq = 4; !ok || len(job.positions) != 1 || job.positions[0] != (Position{Lane: 2, Until: 20}) {
		t.Fatalf("the next step walks %v, want lane 2 from its beginning", job.positions)
	}
	if e.mergeSweep(readResult{job: job}); !anew.readable() {
		t.Error("lane 2 was swept, and isn't read")
	}
}
