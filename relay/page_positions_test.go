package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// A page replaces a scan for the late rows above an id only if it has all rows of the lane above that id.
func TestPageReplacesAScan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *fetch, l *lane)
		after  int64
		want   bool
	}{
		"the page begins there":            {after: 10, want: true},
		"the page begins below":            {after: 11, want: true},
		"the page begins above":            {after: 9},
		"another kind of read":             {after: 10, change: func(f *fetch, _ *lane) { f.kind = readSkipped }},
		"a page that was cut off":          {after: 10, change: func(f *fetch, _ *lane) { f.page.More = true }},
		"another lane":                     {after: 10, change: func(_ *fetch, l *lane) { l.Lane = 4 }},
		"a lane that is given up":          {after: 10, change: func(_ *fetch, l *lane) { l.draining = true }},
		"not for a sink that is set apart": {after: 10, change: func(f *fetch, _ *lane) { f.reads = func(int) bool { return false } }},
		"for a sink that is set apart, later": {after: 10, want: true, change: func(f *fetch, l *lane) {
			f.reads, l.readers[0].cursor = func(queue int) bool { return queue > 0 }, 10
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := laneAt(20)
			f := &fetch{kind: readLanes, positions: []storage.Position{{Lane: 3, After: 10}}}
			if c.change != nil {
				c.change(f, l)
			}
			if got := f.brings(l, c.after); got != c.want {
				t.Errorf("replaces a scan above %d: %v, want %v", c.after, got, c.want)
			}
		})
	}
}

// A lane is read from a few ids below its cursor, unless the cursor is still the mark that another relay stored.
func TestReadsAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cursor int64
		placed bool
		want   int64
	}{
		"read by this relay":                     {1000, true, 900},
		"read by this relay, near the beginning": {20, true, 20},
		"begins at another relay's mark":         {1000, false, 1000},
	} {
		l := laneAt(c.cursor)
		l.placed = c.placed
		if got := l.readsAfter(900); got != c.want {
			t.Errorf("a lane %s is read after %d, want %d", name, got, c.want)
		}
	}
}

// The cursors of lanes without rows move, too: to the end of a full page, or to the id below which no row can appear.
func TestCursorsOfEmptyLanesMove(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(l *lane)
		page   storage.Page
		want   int64
	}{
		"a complete page":              {page: storage.Page{SafeID: 60, LastID: 90, Through: 80}, want: 60},
		"nothing is final":             {page: storage.Page{SafeID: 5, LastID: 90}, want: 20},
		"a full page":                  {page: storage.Page{SafeID: 60, LastID: 90, Through: 50, More: true}, want: 50},
		"a full page of another sink":  {page: storage.Page{SafeID: 60, LastID: 90, More: true}, want: 20},
		"a lane that is given up":      {page: storage.Page{SafeID: 60, LastID: 90}, change: func(l *lane) { l.draining = true }, want: 20},
		"a lane that was leased later": {page: storage.Page{SafeID: 60, LastID: 90}, change: func(l *lane) { l.seq = 7 }, want: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, other := laneAt(20), laneAt(20)
			other.Lane = 4
			if c.change != nil {
				c.change(l)
			}
			e := withLanes(&engine{stopping: stop{begun: true}}, map[int]*lane{3: l, 4: other})
			e.mergeLanes(&fetch{kind: readLanes, seq: 7, positions: []storage.Position{{Lane: 3, After: 20}}, page: c.page})
			if got, elsewhere := l.readers.head(), other.readers.head(); got != c.want || elsewhere != 20 {
				t.Errorf("the cursor is %d, and %d in a lane that the page doesn't cover; want %d and 20", got, elsewhere, c.want)
			}
		})
	}
}

// Pages begin so far below the cursors that they return most late rows, but not so far that rows which were read before fill
// the page.
func TestSpanOfLateRows(t *testing.T) {
	t.Parallel()
	near, far := laneAt(90), laneAt(1000)
	near.Lane = 0
	e := withLanes(&engine{routes: toOneSink(), queues: make([]*sinkQueue, 2)}, map[int]*lane{0: near, 3: far})
	e.engine.poll.rowBytes, e.late.lastID = 0, 1000
	look := func(lateAfter int64) {
		e.late.scanFirst(&fetch{kind: readLanes, seq: 1, page: storage.Page{LateAfter: lateAfter, LastID: 1000}})
		e.late.lateAfter = none // as if the page was merged
	}
	for _, step := range []struct{ lateAfter, want int64 }{
		{-1, 1000}, {995, 995}, {998, 995}, {0, 995}, {900, 900}, {1000, 912}, {-1, 912},
	} {
		look(step.lateAfter)
		if got := e.held.furthest() - e.late.span; got != step.want {
			t.Errorf("after late rows above %d, pages begin above %d, want %d", step.lateAfter, got, step.want)
		}
	}
	e.engine.poll.rowBytes = againBytes
	e.late.span = 0
	look(990)
	if got := e.held.furthest() - e.late.span; got != 1000 {
		t.Errorf("with large rows, pages begin above %d", got)
	}
}

// A queue that is behind reads from its cursor up to the head, and no further. Above the head, a row may also be needed by
// another sink, for which it would arrive before rows that are not read yet.
func TestSinkThatIsBehindResumesAtItsCursor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		head, cursor int64
		draining     bool
		want         []storage.Position
	}{
		"it is behind":               {head: 50, cursor: 20, want: []storage.Position{{Lane: 3, After: 20, Until: 50}}},
		"it is behind, and given up": {head: 50, cursor: 20, draining: true},
		"it is at the head":          {head: 50, cursor: 50},
		"nothing was read":           {},
		"it is above the head":       {head: 50, cursor: 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := laneAt(c.head)
			l.readers[0].cursor, l.readers[0].routeless, l.draining = c.cursor, true, c.draining
			e := withLanes(&engine{}, map[int]*lane{3: l})
			if got := e.held.lagging(&sinkQueue{index: 0}); !slices.Equal(got, c.want) {
				t.Errorf("the queue reads at %v, want %v", got, c.want)
			}
		})
	}
}

// If a sink has no room for a row, its cursor stops before the row, and so does the head if no other sink's cursor moves past
// it. The row isn't read again until the sink has room.
func TestStoppedSinkReadsOnceItHasRoom(t *testing.T) {
	t.Parallel()
	q, l := &sinkQueue{capacity: 1, buffered: 1, options: SinkOptions{Sink: struct{ sinks.Sink }{}, Buffer: 1, BufferBytes: 1}}, emptyLane(storage.Lease{Lane: 3}, 1)
	l.readers[0].cursor = 10
	e := withLanes(&engine{routes: toOneSink(), queues: []*sinkQueue{q}}, map[int]*lane{3: l})
	e.mergeLanes(&fetch{kind: readLanes, seq: 1, positions: []storage.Position{{Lane: 3, After: 10}},
		page: storage.Page{Rows: []storage.Row{{ID: 11, Lane: 3}, {ID: 12, Lane: 3}}, More: true, Through: 12}})
	if e.startRead(time.Time{}); l.readers.head() != 10 || e.engine.poll.fresh {
		t.Errorf("the next page begins above %d, immediately: %v", l.readers.head(), e.engine.poll.fresh)
	}
	q.buffered = 0
	if e.startRead(time.Time{}); !e.engine.poll.fresh {
		t.Error("the sink has room, but nothing is read")
	}
}
