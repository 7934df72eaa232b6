package relay

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A page has the late rows of one lane, and waits for the scan of another lane. If the scan fails, the page isn't merged. Then
// both lanes must be scanned later, since no other page reports these late rows.
func TestFailedScanReturnsUnwalkedPositions(t *testing.T) {
	t.Parallel()
	again, fine := emptyLane(storage.Lease{Lane: 1}, 1), emptyLane(storage.Lease{Lane: 2}, 1)
	again.readers[0].cursor, fine.readers[0].cursor = 20, 20
	e := withLanes(&engine{routes: toOneSink(), base: &base{health: &health{},
		options: Options{Observer: NoObserver{}, Logger: slog.New(slog.DiscardHandler), Poll: time.Second}}}, map[int]*lane{1: again, 2: fine})
	e.late.lastID = 20
	look := func(first, second, late int64) *fetch {
		positions := []storage.Position{{Lane: 1, After: first}, {Lane: 2, After: second}}
		return &fetch{kind: readLanes, seq: 9, positions: positions, page: storage.Page{LateAfter: late, SafeID: 5, LastID: 20}, lateAfter: none}
	}
	e.merge(look(10, 5, 6))
	f := <-e.reads
	if f.step != stepLate || len(f.late.positions) != 1 || f.late.positions[0].Lane != 1 {
		t.Fatalf("scanned at %v, want lane 1 alone", f.late.positions)
	}
	f.err = errors.New("the connection broke")
	e.merge(f)
	e.merge(look(20, 20, none))
	if len(e.reads) == 0 {
		t.Fatal("the next page needs no scan, want one of both lanes")
	}
	f = <-e.reads
	if len(f.late.positions) != 2 || f.late.positions[0].After > 6 || f.late.positions[1].After > 6 {
		t.Errorf("scanned at %v, want both lanes from 6", f.late.positions)
	}
}

// A page that is merged after a scan for late rows counts as a successful read: for Healthy, the earlier failures are over.
func TestReadWithAScanSucceeds(t *testing.T) {
	t.Parallel()
	l := emptyLane(storage.Lease{Lane: 1}, 1)
	l.readers[0].cursor = 20
	e := withLanes(&engine{routes: toOneSink(), base: &base{health: &health{}, options: Options{Observer: NoObserver{}}}}, map[int]*lane{1: l})
	e.late.lastID, e.failingSince[readLanes] = 20, 1
	e.merge(&fetch{kind: readLanes, seq: 9, positions: []storage.Position{{Lane: 1, After: 20}}, page: storage.Page{LateAfter: 7, LastID: 20}, lateAfter: none})
	f := <-e.reads
	if f.step != stepLate {
		t.Fatalf("the page doesn't wait for a scan, its step is %d", f.step)
	}
	if e.merge(f); e.engine.health.readFails.Load() != 0 {
		t.Error("Healthy still reports failing reads")
	}
}

// A scan is repeated only where it may have found some rows of a transaction and missed others.
func TestToScanAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		appeared int64
		steps    bool
		want     []int64 // the id after which each position is scanned again
	}{
		"nothing has appeared":              {appeared: none},
		"above its beginning":               {appeared: 10},
		"above its beginning, but in steps": {appeared: 15, steps: true, want: []int64{15, 15}},
		"above everything, in steps":        {appeared: 40, steps: true},
		"below where one position began":    {appeared: 7, want: []int64{7}},
		"below":                             {appeared: 3, want: []int64{3, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := toScanAgain([]storage.Position{{Lane: 1, After: 10, Until: 40}, {Lane: 2, After: 5, Until: 40}}, c.appeared, c.steps)
			if len(got) != len(c.want) {
				t.Fatalf("starts again at %v, want %v", got, c.want)
			}
			for i, p := range got {
				if p.After != c.want[i] {
					t.Errorf("starts again at %v, want %v", got, c.want)
				}
			}
		})
	}
}

// A page's safe id limits the marks only once the page is merged. During the page's scan for late rows, no mark passes the
// page's LateAfter, or the LateAfter that is left from an earlier page.
func TestMarkDuringALateScan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ safeID, owed, told, want int64 }{
		"above the safe id":                       {safeID: 5, owed: none, told: 7, want: 5},
		"below the safe id, from an earlier page": {safeID: 20, owed: 12, told: none, want: 12},
		"both": {safeID: 15, owed: 12, told: 17, want: 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := emptyLane(storage.Lease{Lane: 1}, 1)
			l.readers[0].cursor = 20
			e := withLanes(&engine{routes: toOneSink(), names: []string{"a"}, queues: []*sinkQueue{{}},
				base: &base{health: &health{}, options: Options{Observer: NoObserver{}}}}, map[int]*lane{1: l})
			e.late.lastID, e.late.safeID, e.late.lateAfter = 20, c.safeID, c.owed
			mark := func() int64 { return e.rights(false).(*laneRights).renewals[0].Marks.Main }
			e.merge(&fetch{kind: readLanes, seq: 9, positions: []storage.Position{{Lane: 1, After: 20}}, page: storage.Page{LateAfter: c.told, SafeID: 20, LastID: 20}, lateAfter: none})
			f := <-e.reads
			if got := mark(); f.step != stepLate || got != c.want {
				t.Errorf("the mark is %d, want %d during the scan for late rows (step %d)", got, c.want, f.step)
			}
			if e.merge(f); mark() != 20 {
				t.Errorf("the mark is %d after the page was merged, want 20", mark())
			}
		})
	}
}

// After a failed scan, the ids that it had not reached must be scanned. After a successful scan, the ids above the LateAfter
// that was reported during it must be scanned.
func TestPositionsToScanAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step  func(f *fetch)
		want  int64
		marks int64
	}{
		"all was walked":              {func(*fetch) {}, none, 20},
		"rows appeared meanwhile":     {func(f *fetch) { f.lateAfter = 12 }, 12, 12},
		"the scan failed":             {func(f *fetch) { f.late.left[0].After, f.err = 15, errors.New("the connection broke") }, 15, 5},
		"the query about keys failed": {func(f *fetch) { f.step, f.err = stepBlocked, errors.New("the connection broke") }, 7, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := emptyLane(storage.Lease{Lane: 1}, 1)
			l.readers[0].cursor = 20
			e := withLanes(&engine{routes: toOneSink(), names: []string{"a"}, queues: []*sinkQueue{{}},
				base: &base{health: &health{}, options: Options{Observer: NoObserver{}, Logger: slog.New(slog.DiscardHandler), Poll: time.Second}}}, map[int]*lane{1: l})
			e.late.lastID, e.late.safeID = 20, 5
			e.merge(&fetch{kind: readLanes, seq: 9, positions: []storage.Position{{Lane: 1, After: 20}}, page: storage.Page{LateAfter: 7, SafeID: 20, LastID: 20}, lateAfter: none})
			f := <-e.reads
			c.step(f)
			e.merge(f)
			if got := l.marks(e.late.safeID, e.late.lateAfter, "", e.engine.names).Main; e.late.lateAfter != c.want || got != c.marks {
				t.Errorf("rows above %d are scanned, and the mark is %d; want %d and %d", e.late.lateAfter, got, c.want, c.marks)
			}
		})
	}
}

// A drain doesn't end while a sink that is behind or had no room has rows to read, or a lane was rewound. A sink isn't behind
// in a lane whose head isn't above the sink's cursor.
func TestDrainReadsUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rewound, stopped, behind, paused, over bool }{
		"all was read":                    {over: true},
		"a row is read again":             {rewound: true},
		"a sink is stopped":               {stopped: true},
		"a stopped sink is paused":        {stopped: true, paused: true, over: true},
		"a sink is behind":                {behind: true},
		"a sink that is behind is paused": {behind: true, paused: true, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := threeReaders(t, 50, 50, 50)
			q := e.engine.queues[1]
			q.stopped, q.paused = c.stopped, c.paused
			if c.behind {
				l.readers[1].cursor = 20
			}
			e.share, e.due.none, e.sweep.clean = 1, true, time.Now()
			it := &item{row: storage.Row{ID: 7}, lane: l, slot: 1, idCollision: c.rewound}
			l.add(it)
			e.held.forget(it)
			if got := e.drained(); got != c.over {
				t.Errorf("drained: %v, with the cursors at %v", got, cursorsOf(l))
			}
		})
	}
}
