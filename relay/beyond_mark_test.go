package relay

import (
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Rows may appear in a stretch of ids after it was walked, and before the store is asked for the safe id. The next page tells of
// them, and until then no mark passes them.
func TestMarkOfAStretchThatWasPassedOver(t *testing.T) {
	t.Parallel()
	e := withLanes(&engine{routes: toOneSink(), names: []string{"a"}, queues: []*sinkQueue{{}},
		base: &base{health: &health{}, options: Options{Observer: NoObserver{}}}}, map[int]*lane{})
	e.held.lanes[3] = newLane(storage.Grant{Lease: storage.Lease{Lane: 3}, Marks: storage.Marks{Main: 100}}, "", e.engine.names, time.Time{})
	e.late.lastID = 100
	e.merge(&fetch{kind: readBeyond, seq: 1, positions: []storage.Position{{Lane: 3, After: 100, Until: 200}}, scan: &lateScan{},
		page: storage.Page{LateAfter: 120, SafeID: 200, LastID: 200}, lateAfter: none})
	if mark := e.rights(false).(*laneRights).renewals[0].Marks.Main; mark != 120 {
		t.Errorf("the mark is %d, though rows may have appeared above 120", mark)
	}
}
