package relay

import (
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// threeReaders returns an engine with the sinks a, b and c. Each sink gets the topic with its name, and has room for ten
// messages. The engine has one lane, in which the sinks' readers have the given cursors.
func threeReaders(t *testing.T, a, b, c int64) (*byLanes, *lane) {
	t.Helper()
	names := []string{"a", "b", "c"}
	routes, err := newRouter([]Route{{Topic: "a", Sink: "a"}, {Topic: "b", Sink: "b"}, {Topic: "c", Sink: "c"}}, names)
	if err != nil {
		t.Fatal(err)
	}
	engine := &engine{routes: routes, base: &base{health: &health{}, store: memstore.New().Store(), options: Options{Observer: NoObserver{}, Logger: slog.New(slog.DiscardHandler), Poll: time.Second}}}
	for i, name := range names {
		q := &sinkQueue{base: engine.base, name: name, index: i, capacity: 10, options: SinkOptions{Sink: struct{ sinks.Sink }{}, Buffer: 10, BufferBytes: 1000, Batch: 1}}
		q.breaker = breaker{state: breakerClosed}
		engine.queues = append(engine.queues, q)
	}
	engine.queues = append(engine.queues, &sinkQueue{name: unroutedName, index: 3})
	engine.names = append(names, unroutedName)
	e, l := withLanes(engine, map[int]*lane{}), newLane(storage.Grant{Lease: storage.Lease{Lane: 3}}, "", engine.names, time.Time{})
	for i, place := range []int64{a, b, c, 90} {
		l.readers[i].cursor = place
	}
	l.placed, e.held.lanes[3] = true, l
	e.late.lastID, e.late.safeID, e.engine.poll.fresh = 100, 100, false
	return e, l
}

func rowFor(id int64, topic, key string) storage.Row {
	return storage.Row{ID: id, Lane: 3, Message: outbox.Message{ID: topic + key, Topic: topic, Key: key}}
}

// A page moves to its end the cursors of the readers for which it was read, and moves no other cursors.
func TestPageMovesItsReaders(t *testing.T) {
	t.Parallel()
	stretch := func(t *testing.T, e *byLanes, l *lane) *fetch {
		e.engine.queues[1].paused, e.engine.poll.fresh = true, true
		e.pageStride = stride(90 - l.readers.head())
		f := e.pollLanes(time.Time{})
		if f == nil || !slices.Equal(f.except, []string{"b"}) {
			t.Fatalf("reads %+v, want a stretch of ids without topic b", f)
		}
		f.page = storage.Page{LateAfter: none, SafeID: 80, LastID: 100}
		return f
	}
	for name, c := range map[string]struct {
		page     func(t *testing.T, e *byLanes, l *lane) *fetch
		from, to []int64
		fresh    bool // new rows are read immediately
	}{
		"new rows": {from: []int64{50, 50, 50}, to: []int64{60, 60, 60}, fresh: true, page: func(_ *testing.T, e *byLanes, _ *lane) *fetch {
			e.engine.poll.fresh = true
			f := e.pollLanes(time.Time{})
			f.page = storage.Page{LateAfter: none, SafeID: 100, LastID: 100, More: true, Through: 60, Rows: []storage.Row{rowFor(60, "a", "")}}
			return f
		}},
		"rows of a sink that is behind": {from: []int64{10, 10, 50}, to: []int64{50, 10, 50}, page: func(_ *testing.T, e *byLanes, _ *lane) *fetch {
			f := e.pollSkipped()
			f.page = storage.Page{LateAfter: none, SafeID: 100, LastID: 100, Rows: []storage.Row{rowFor(20, "b", "")}}
			return f
		}},
		"rows of a sink that is behind, and the id sequence was reset since": {from: []int64{10, 10, 50}, to: []int64{50, 10, 50}, page: func(_ *testing.T, e *byLanes, l *lane) *fetch {
			l.placed, e.late.lastID = true, 30
			f := e.pollSkipped()
			f.page = storage.Page{LateAfter: none, SafeID: 30, LastID: 30}
			return f
		}},
		"a range of ids":                         {from: []int64{50, 10, 50}, to: []int64{90, 10, 90}, fresh: true, page: stretch},
		"a range of ids, and a sink is below":    {from: []int64{20, 10, 50}, to: []int64{20, 10, 90}, fresh: true, page: stretch},
		"a range of ids, and no sink was behind": {from: []int64{50, 50, 50}, to: []int64{90, 50, 90}, fresh: true, page: stretch},
		"a range of ids that a limit has ended": {from: []int64{50, 10, 50}, to: []int64{70, 10, 70}, fresh: true, page: func(t *testing.T, e *byLanes, l *lane) *fetch {
			f := stretch(t, e, l)
			f.page.More, f.page.Through, f.page.Rows = true, 60, []storage.Row{rowFor(70, "a", "")}
			return f
		}},
		"a range of ids with all rows": {from: []int64{50, 10, 50}, to: []int64{80, 10, 80}, page: func(t *testing.T, e *byLanes, l *lane) *fetch {
			f := stretch(t, e, l)
			f.positions[0].Until = 120
			return f
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := threeReaders(t, c.from[0], c.from[1], c.from[2])
			f := c.page(t, e, l)
			f.seq, f.lateAfter = 1, none
			e.merge(f)
			if got := cursorsOf(l)[:3]; !slices.Equal(got, c.to) || e.engine.poll.fresh != c.fresh {
				t.Errorf("the cursors are %v, and new rows are read immediately: %v; want %v and %v", got, e.engine.poll.fresh, c.to, c.fresh)
			}
		})
	}
}

// A scan returns the rows that their sink's reader will not read. It excludes topics whose sink will read all their rows.
func TestScanExpectedRows(t *testing.T) {
	t.Parallel()
	e, l := threeReaders(t, 50, 10, 50)
	l.readers[0].leaveOut(31)
	l.keysUnknown = true
	late := e.late.scan([]storage.Position{{Lane: 3, After: 20, Until: 50}})
	for name, c := range map[string]struct {
		id    int64
		topic string
		want  []int
	}{
		"the reader has passed it":              {50, "a", []int{0}},
		"it will be read":                       {51, "a", nil},
		"its sink is behind":                    {11, "b", nil},
		"its sink is behind, but has passed it": {10, "b", []int{1}},
	} {
		if got := late.unexpected(storage.Candidate{Lane: 3, ID: c.id, Topic: c.topic}); !slices.Equal(got, c.want) {
			t.Errorf("%s: the row is returned for the queues %v, want %v", name, got, c.want)
		}
	}
	for key, want := range map[string]bool{"": false, "k": true} {
		if got := late.follows(storage.Candidate{Lane: 3, ID: 40, Topic: "a", Key: key}, 0); got != want {
			t.Errorf("a row with key %q may follow a message that blocks its key: %v", key, got)
		}
	}
	if got := late.except(late.positions); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the scan excludes the topics %v, want b", got)
	}
}

// An event after which a lane must be read again lowers the cursors of the readers that need the rows. The lane is then read
// immediately.
func TestEventsThatRewindALane(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event func(e *byLanes, l *lane)
		want  []int64
		floor int64
	}{
		"nothing": {event: func(*byLanes, *lane) {}, want: []int64{50, 50, 50}, floor: 5},
		"an item is given up": {want: []int64{19, 19, 19}, floor: 5, event: func(e *byLanes, l *lane) {
			it := &item{row: rowFor(20, "a", ""), lane: l, queue: e.engine.queues[0]}
			l.add(it)
			e.giveUp(it)
		}},
		"a sweep has found a row": {want: []int64{19, 19, 19}, event: func(e *byLanes, _ *lane) {
			e.sweep.merge(&fetch{seq: 1, positions: []storage.Position{{Lane: 3, Until: 50}}, scan: &lateScan{found: map[int]int64{3: 20}}})
		}},
		"late rows have no room": {want: []int64{50, 19, 50}, floor: 5, event: func(e *byLanes, _ *lane) {
			e.mergeLate(&fetch{seq: 1, late: &lateScan{skipped: map[laneQueue]int64{{3, 1}: 20}}})
		}},
		"the id sequence is reset": {want: []int64{0, 0, 0}, event: func(e *byLanes, _ *lane) {
			e.late.detectSequenceReset(&fetch{seq: 1, page: storage.Page{SafeID: 7, LastID: 7}})
		}},
		"a late row in a lane that is being given up": {want: []int64{20, 20, 20}, floor: 5, event: func(e *byLanes, l *lane) {
			l.draining, e.held.rewound = true, true // for the next holder; this relay reads the lane only if it keeps the lane after all
			e.late.scanFirst(&fetch{seq: 1, kind: readLanes, page: storage.Page{LateAfter: 20, SafeID: 50, LastID: 100}})
		}},
		"a pause ends": {want: []int64{50, 29, 50}, floor: 5, event: func(e *byLanes, l *lane) {
			l.readers[1].leaveOut(30)
			e.controlled(&pauses{topics: map[string]bool{"b": true}})
		}},
		"a key's state is unknown": {want: []int64{50, 39, 50}, floor: 5, event: func(e *byLanes, l *lane) {
			l.keysUnknown, e.held.rewound = true, true // now the sink is behind
			row := rowFor(40, "b", "k")
			e.admit(l, &row)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := threeReaders(t, 50, 50, 50)
			l.floor = 5
			c.event(e, l)
			if got := cursorsOf(l)[:3]; !slices.Equal(got, c.want) || l.floor != c.floor {
				t.Errorf("the cursors are %v and the floor %d; want %v and %d", got, l.floor, c.want, c.floor)
			}
			if e.held.rewound != !slices.Equal(c.want, []int64{50, 50, 50}) {
				t.Errorf("the lane is read again immediately: %v", e.held.rewound)
			}
		})
	}
}

// Pages are read for a sink that is behind when it has room and is up. While no sink is up, pages are read for all of them, so
// that they reach the head.
func TestSinkReadsSeparatelyWhileBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(e *byLanes, l *lane)
		want   bool
	}{
		"it is behind":            {func(*byLanes, *lane) {}, true},
		"at the head":             {func(_ *byLanes, l *lane) { l.readers[1].cursor = 50 }, false},
		"it has no room":          {func(e *byLanes, _ *lane) { e.engine.queues[1].buffered = 10 }, false},
		"it is paused":            {func(e *byLanes, _ *lane) { e.engine.queues[1].paused = true }, false},
		"all are paused":          {func(e *byLanes, _ *lane) { pauseAll(e.engine.queues) }, true},
		"its lane is given up":    {func(_ *byLanes, l *lane) { l.draining = true }, false},
		"its lane isn't read yet": {func(_ *byLanes, l *lane) { l.readers[1].cursor, l.readers[0].cursor, l.readers[2].cursor = 0, 0, 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := threeReaders(t, 50, 10, 50)
			c.change(e, l)
			f := e.pollSkipped()
			if (f != nil) != c.want || f != nil && (f.queue != e.engine.queues[1] || f.reads(0) || !f.reads(1)) {
				t.Errorf("reads %+v", f)
			}
		})
	}
}

// A sink is set apart if it is down and has less room than a page may fill, or if pages have returned many of its rows without
// effect while it was behind. It rejoins the others when it has caught up in all lanes.
func TestSetApart(t *testing.T) {
	t.Parallel()
	down := func(e *byLanes) { e.engine.queues[1].paused = true }
	passed := func(n int) func(e *byLanes) { return func(e *byLanes) { e.engine.queues[1].passed = n } }
	roomy := func(e *byLanes) { e.engine.queues[1].capacity = readLimit }
	for name, c := range map[string]struct {
		behind bool
		change []func(e *byLanes)
		want   bool
	}{
		"it is up":                 {behind: true},
		"it is down":               {change: []func(*byLanes){down}, want: true},
		"it is down, and has room": {behind: true, change: []func(*byLanes){down, roomy}},
		"all are down":             {change: []func(*byLanes){func(e *byLanes) { pauseAll(e.engine.queues) }}},
		"it is down, and has no topic of its own": {change: []func(*byLanes){down, func(e *byLanes) { e.engine.routes.ownTopics[1] = nil }}},
		"few rows were returned without effect":   {behind: true, change: []func(*byLanes){passed(mostPassed - 1)}},
		"many rows were returned without effect":  {behind: true, change: []func(*byLanes){passed(mostPassed)}, want: true},
		"many, and it has caught up":              {change: []func(*byLanes){passed(mostPassed)}},
		"it was set apart, and is behind":         {behind: true, change: []func(*byLanes){func(e *byLanes) { e.engine.queues[1].apart = true }}, want: true},
		"it was set apart, and has caught up":     {change: []func(*byLanes){func(e *byLanes) { e.engine.queues[1].apart = true }}},
		"many without a route":                    {change: []func(*byLanes){func(e *byLanes) { e.engine.queues[3].passed = mostPassed }}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := threeReaders(t, 50, 50, 50)
			if c.behind {
				l.readers[1].cursor = 10
			}
			for _, change := range c.change {
				change(e)
			}
			e.setApart()
			if got := e.engine.queues[1].apart; got != c.want {
				t.Errorf("the sink is set apart: %v", got)
			}
		})
	}
}

func pauseAll(queues []*sinkQueue) {
	for _, q := range queues {
		q.paused = true
	}
}

// After a key is unblocked, its dropped rows are read up to its reader's cursor, and then its new rows. If the database
// reported the key as blocked, the database is asked again first. The dropped rows of a forgotten key are read from the gap
// on.
func TestUnblockedKeyResumes(t *testing.T) {
	t.Parallel()
	e, l := threeReaders(t, 50, 10, 50)
	k := l.key(keyRef{0, "k"})
	k.dropAt(31)
	read := func(until int64) {
		e.mergeKeys(&fetch{seq: 1, queue: e.engine.queues[0], keys: []*key{k}, positions: []storage.Position{{Lane: 3, After: k.resumeFrom, Until: until, Key: "k"}}})
	}
	if read(49); !k.dropped || k.resumeFrom != 49 {
		t.Errorf("after a read up to 49, more dropped rows are to be read: %v, from %d", k.dropped, k.resumeFrom)
	}
	if read(50); k.dropped {
		t.Error("after a read up to the cursor, the key has dropped rows")
	}
	named := l.key(keyRef{0, "named"})
	named.blocked, named.fromDatabase = true, true
	if e.blocked.unblock(named); !named.dropped || named.resumeFrom != 50 || len(e.blocked.resuming) != 1 {
		t.Errorf("the key continues although the database wasn't asked again: %+v", named)
	}
	l.readers[0].leaveOut(21)
	if k := e.blocked.blockAgain(l, keyRef{0, "forgotten"}, 7); !k.dropped || k.resumeFrom != 20 {
		t.Errorf("the key's dropped rows are read from %d on, want 20", k.resumeFrom)
	}
	for paused, gap := range map[bool]int64{true: 20, false: none} {
		if e.engine.control.pauses = nil; paused {
			e.engine.control.pauses = &pauses{topics: map[string]bool{"a": true}}
		}
		l.readers[0].gap = 20
		if e.blocked.mergeBlocked(&fetch{seq: 1, lanes: []int{3}, limit: 10}); l.readers[0].gap != gap {
			t.Errorf("the gap is %d while something is paused: %v", l.readers[0].gap, paused)
		}
	}
}

// The database is asked about a row's key if the page moves the cursor of the row's sink past the row, and about no other key.
func TestAskFirstSelectsKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		queue int
		topic string
		want  bool
	}{
		"of the sink that the page is for":    {1, "b", true},
		"of another sink that is behind, too": {1, "a", false},
		"of a sink that has passed it":        {1, "c", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := threeReaders(t, 10, 10, 50)
			l.keysUnknown = true
			f := &fetch{kind: readSkipped, seq: 1, queue: e.engine.queues[c.queue], reads: e.engine.queues[c.queue].is, positions: e.held.lagging(e.engine.queues[c.queue])}
			f.page.Rows = []storage.Row{rowFor(20, c.topic, "k")}
			if got := e.blocked.askFirst(f); got != c.want {
				t.Errorf("asked: %v, want %v", got, c.want)
			}
		})
	}
}

// If a sink may have received a message in an earlier attempt, the message isn't parked when it expires, and waits for room
// like other messages.
func TestAnExpiredRowThatItsSinkMayHaveWaitsForRoom(t *testing.T) {
	t.Parallel()
	for room, cursor := range map[int]int64{0: 19, 1: 50} {
		e, l := threeReaders(t, 50, 50, 50)
		now := time.Now()
		row := rowFor(20, "b", "")
		row.Message.ExpiresAt = now.Add(-time.Hour)
		e.engine.clock = databaseClock{now, now}
		l.journaled.put(refOf(&row, 1), &batchRef{})
		e.engine.queues[1].buffered = 10 - room
		if taken := e.admit(l, &row); taken != (room > 0) || l.readers[1].cursor != cursor {
			t.Errorf("with room for %d messages the row is taken: %v, and the cursor is %d", room, taken, l.readers[1].cursor)
		}
	}
}

// A topic is no longer reported as unrouted after a page that has every unrouted row of all lanes, and none of this topic.
func TestTopicsThatHaveARouteAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *fetch, e *byLanes)
		want   []string
	}{
		"all rows are read": {func(*fetch, *byLanes) {}, []string{"x"}},
		"more rows exist":   {func(f *fetch, _ *byLanes) { f.page.More = true }, []string{"x", "y"}},
		"no row of another lane is read": {func(_ *fetch, e *byLanes) {
			e.held.lanes[4] = newLane(storage.Grant{}, "", e.engine.names, time.Time{})
			e.held.lanes[4].readers[0].cursor = 9
		}, []string{"x", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := threeReaders(t, 50, 50, 50)
			l.readers[3].cursor = 10
			later := time.Now().Add(time.Hour)
			e.engine.unrouted.topics = map[string]*unroutedTopic{"x": {next: later}, "y": {next: later}}
			f := e.pollUnrouted(time.Now())
			f.seq, f.lateAfter, f.page = 1, none, storage.Page{LateAfter: none, SafeID: 100, LastID: 100, Rows: []storage.Row{rowFor(20, "x", "")}}
			c.change(f, e)
			e.merge(f)
			if got := slices.Sorted(maps.Keys(e.engine.unrouted.topics)); !slices.Equal(got, c.want) || l.readers[3].cursor != 19 {
				t.Errorf("the topics are %v, and the cursor is %d; want %v and 19", got, l.readers[3].cursor, c.want)
			}
		})
	}
}
