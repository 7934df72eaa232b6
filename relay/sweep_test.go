package relay

import (
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// If a lane is lost and leased again during a step of its sweep, the step doesn't count. The lane is swept from its beginning,
// and then read.
func TestLaneThatIsLeasedAgainIsSweptAgain(t *testing.T) {
	t.Parallel()
	e := withLanes(&engine{routes: toOneSink(), names: []string{"a"}, base: &base{health: &health{},
		options: Options{Observer: NoObserver{}, Logger: slog.New(slog.DiscardHandler), Poll: time.Second}}}, map[int]*lane{})
	e.engine.settle = newSettler(e.engine.base, nil, settlers, nil, nil)
	lease := func(leases ...storage.Lease) {
		r := &laneRights{of: e, share: 2}
		for _, lease := range leases {
			r.granted = append(r.granted, storage.Grant{Lease: lease, Marks: storage.Marks{Main: 20}})
		}
		r.conclude(nil)
	}
	lease(storage.Lease{Lane: 1}, storage.Lease{Lane: 2})
	e.seq = 3
	f := e.sweep.step(time.Now())
	if f == nil || len(f.positions) != 2 {
		t.Fatalf("the first step is %+v, want one that walks two lanes", f)
	}
	lease(storage.Lease{Lane: 2, Fence: 1})
	stays, anew := e.held.lanes[1], e.held.lanes[2]
	f.seq, f.scan.left = 3, nil
	e.sweep.merge(f)
	if stays.unswept || !anew.unswept {
		t.Errorf("lane 1 is unswept: %v, and lane 2: %v; want only lane 2 unswept", stays.unswept, anew.unswept)
	}
	f = e.sweep.step(time.Now())
	if f == nil || len(f.positions) != 1 || f.positions[0] != (storage.Position{Lane: 2, Until: 20}) {
		t.Fatalf("the next step is %+v, want one that walks lane 2 from its beginning", f)
	}
	f.seq, f.scan.left = 4, nil
	if e.sweep.merge(f); anew.unswept {
		t.Error("lane 2 was swept, but may not be read")
	}
}
