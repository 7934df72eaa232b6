package relay

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// emptyLane returns a lane that was never read, with this number of queues.
func emptyLane(lease storage.Lease, queues int) *lane {
	return newLane(storage.Grant{Lease: lease}, "", make([]string, queues), time.Time{})
}

// laneAt returns a lane with two queues, which was read up to the given id.
func laneAt(cursor int64) *lane {
	l := emptyLane(storage.Lease{Lane: 3, Fence: 1}, 2)
	for i := range l.readers {
		l.readers[i].cursor = cursor
	}
	return l
}

// The mark is below every row that must be read again. If only one sink must read rows again, only that sink's own mark is
// lower.
func TestMarkIsBelowRowsToReread(t *testing.T) {
	t.Parallel()
	sink := &sinkQueue{index: 1}
	for name, c := range map[string]struct {
		place  func(l *lane)
		safeID int64
		late   int64 // late rows above this id have appeared and aren't merged; 0: none
		main   int64
		sinks  map[string]int64
	}{
		"all is finished":               {safeID: 100, main: 50},
		"rows may still appear":         {safeID: 40, main: 40},
		"all are read again":            {place: func(l *lane) { l.readers.rewind(30) }, safeID: 100, main: 30},
		"the lowest of three positions": {place: func(l *lane) { l.readers.rewind(30); l.readers.rewind(20); l.readers.rewind(40) }, safeID: 100, main: 20},
		"rows may have appeared":        {late: 25, safeID: 100, main: 25},
		"below where it can appear":     {place: func(l *lane) { l.floor = 40 }, late: 25, safeID: 100, main: 40},
		"a sink is behind":              {place: func(l *lane) { l.readers[1].rewind(10) }, safeID: 100, main: 50, sinks: map[string]int64{"b": 10}},
		"a sink behind, and the rest":   {place: func(l *lane) { l.readers[1].rewind(10) }, late: 5, safeID: 100, main: 5, sinks: map[string]int64{"b": 5}},
		"rows of forgotten keys":        {place: func(l *lane) { l.readers[1].leaveOut(13) }, safeID: 100, main: 12},
		"rows of a blocked key":         {place: func(l *lane) { l.key(keyRef{1, "k"}).dropAt(14) }, safeID: 100, main: 13},
		"a row in memory":               {place: func(l *lane) { l.add(&item{row: storage.Row{ID: 8}, slot: 1, queue: sink}) }, safeID: 100, main: 7},
		"a row that is only deferred":   {place: func(l *lane) { l.add(&item{row: storage.Row{ID: 8}}) }, safeID: 100, main: 7},
		"a deferred row":                {place: func(l *lane) { l.add(&item{row: storage.Row{ID: 8, Deferred: true}, slot: 1, queue: sink}) }, safeID: 100, main: 50},
		"with another row that has its id": {place: func(l *lane) {
			l.add(&item{row: storage.Row{ID: 8, Deferred: true}, slot: 1, queue: sink, idCollision: true})
		}, safeID: 100, main: 7},
		"in a sink that is behind": {place: func(l *lane) { l.readers[1].rewind(10); l.add(&item{row: storage.Row{ID: 8}, slot: 1, queue: sink}) }, safeID: 100, main: 50, sinks: map[string]int64{"b": 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := laneAt(50)
			if c.place != nil {
				c.place(l)
			}
			got := l.marks(c.safeID, orElse(c.late, none), "routes", []string{"a", "b"})
			if got.Main != c.main || !maps.Equal(got.Sinks, c.sinks) || got.Routes != "routes" {
				t.Errorf("marks %+v, want %d and %v", got, c.main, c.sinks)
			}
		})
	}
}

// A lane's next holder starts at the marks. If it has other routes, it starts at the lowest mark.
func TestSuccessorStartsAtTheMarks(t *testing.T) {
	t.Parallel()
	marks := storage.Marks{Routes: "routes", Main: 50, Sinks: map[string]int64{"b": 10, "gone": 5}}
	same := newLane(storage.Grant{Marks: marks}, "routes", []string{"a", "b"}, time.Time{})
	other := newLane(storage.Grant{Marks: marks}, "others", []string{"a", "b"}, time.Time{})
	if got := cursorsOf(same); same.floor != 50 || !slices.Equal(got, []int64{50, 10}) {
		t.Errorf("with the same routes: from %v", got)
	}
	if got := cursorsOf(other); !slices.Equal(got, []int64{5, 5}) {
		t.Errorf("with other routes: from %v", got)
	}
}

func cursorsOf(l *lane) (cursors []int64) {
	for i := range l.readers {
		cursors = append(cursors, l.readers[i].cursor)
	}
	return cursors
}

// The key's messages are taken in the order of ids, and only while no batch of the key is in flight. While the key is blocked,
// only the message that blocks it is taken.
func TestKeyTakeReturnsSendableItems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state func(k *key)
		n     int
		want  []int64
	}{
		"in the order of ids":  {n: 9, want: []int64{1, 2, 3}},
		"at most n":            {n: 2, want: []int64{1, 2}},
		"a batch is in flight": {state: func(k *key) { k.inFlight = 1 }, n: 9},
		"blocked":              {state: func(k *key) { k.blocked, k.blockedBy = true, 2 }, n: 9, want: []int64{2}},
		"blocked by an item that isn't in memory": {state: func(k *key) { k.blocked, k.blockedBy = true, 7 }, n: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := laneAt(50).key(keyRef{0, "k"})
			for _, id := range []int64{2, 3, 1} {
				k.add(&item{row: storage.Row{ID: id}})
			}
			if c.state != nil {
				c.state(k)
			}
			var got []int64
			for _, it := range k.take(c.n, 1<<20) {
				got = append(got, it.row.ID)
			}
			if !slices.Equal(got, c.want) || len(k.items) != 3-len(got) {
				t.Errorf("took %v and left %d, want %v", got, len(k.items), c.want)
			}
		})
	}
}

// The rows of a blocked key are dropped, and the position from which to read them is kept.
func TestAdmissionOfABlockedKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state func(k *key)
		row   storage.Row
		takes bool
		from  int64 // the position; none: nothing is dropped
	}{
		"anything":                                 {row: storage.Row{ID: 7}, takes: true, from: none},
		"behind a blocked key":                     {state: blockedBy(5), row: storage.Row{ID: 7}, from: 6},
		"the message that blocks it":               {state: blockedBy(5), row: storage.Row{ID: 5, Deferred: true}, takes: true, from: none},
		"another deferred row":                     {state: blockedBy(5), row: storage.Row{ID: 4, Deferred: true}, from: none},
		"above what was dropped":                   {state: func(k *key) { k.dropAt(6) }, row: storage.Row{ID: 7}, from: 5},
		"below what was dropped":                   {state: func(k *key) { k.dropAt(9) }, row: storage.Row{ID: 7}, takes: true, from: 8},
		"before the database was asked":            {state: func(k *key) { k.fromDatabase = true }, row: storage.Row{ID: 7}, from: 6},
		"a deferred row although rows are dropped": {state: func(k *key) { k.dropAt(6) }, row: storage.Row{ID: 7, Deferred: true}, takes: true, from: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := laneAt(50).key(keyRef{0, "k"})
			if c.state != nil {
				c.state(k)
			}
			if got := k.takes(&c.row); got != c.takes {
				t.Errorf("takes it: %v, want %v", got, c.takes)
			}
			if k.dropped != (c.from != none) || k.dropped && k.resumeFrom != c.from {
				t.Errorf("dropped from %d (%v), want %d", k.resumeFrom, k.dropped, c.from)
			}
			if k.lane.forget(k); k.reader().keys[k.ref.key] == nil && (k.blocked || k.dropped) {
				t.Error("the key's state would be forgotten")
			}
		})
	}
}

func blockedBy(id int64) func(*key) {
	return func(k *key) { k.blocked, k.blockedBy = true, id }
}

// A scan identifies rows by their ids. So it treats a row as known only if no other pending row can have the id of the row in
// memory.
func TestNumberingOfReusedIDs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		row     storage.Row
		safeID  int64
		lastID  int64
		highest int64 // the highest id before the id sequence was reset
		want    int
	}{
		"the id sequence was never reset":     {row: storage.Row{ID: 7}, lastID: 9, want: 2},
		"a deferred row":                      {row: storage.Row{ID: 7, Deferred: true}, lastID: 9, want: -1},
		"its id may be assigned again":        {row: storage.Row{ID: 7}, lastID: 3, highest: 20, want: -1},
		"no row can appear there":             {row: storage.Row{ID: 7}, safeID: 8, lastID: 9, highest: 20, want: 2},
		"ids have passed the highest old one": {row: storage.Row{ID: 7}, lastID: 21, highest: 20, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := withLanes(&engine{}, nil)
			e.late.idGeneration, e.late.safeID, e.late.lastID, e.late.highest = 2, c.safeID, c.lastID, c.highest
			if got := e.late.numberingOf(&c.row); got != c.want {
				t.Errorf("the id generation is %d, want %d", got, c.want)
			}
		})
	}
}

// If another message in memory has a row's id, the row waits until that message has left memory. The later rows of the row's
// key wait, too.
func TestRowUnderAKnownIDIsAdmittedLater(t *testing.T) {
	t.Parallel()
	e := withLanes(&engine{routes: toOneSink()}, nil)
	q, l := &sinkQueue{}, emptyLane(storage.Lease{Lane: 3}, 1)
	l.readers[0].cursor = 9
	e.engine.queues = []*sinkQueue{q}
	k := l.key(keyRef{0, "k"})
	before, known, after := &item{row: storage.Row{ID: 6}}, &item{row: storage.Row{ID: 7, Message: outbox.Message{ID: "a"}}}, &item{row: storage.Row{ID: 8}}
	for _, it := range []*item{before, known, after} {
		it.lane, it.queue = l, q
		l.add(it)
		q.buffered++
	}
	for _, it := range []*item{before, after} {
		it.key = k
		k.add(it)
	}
	if e.admit(l, &storage.Row{ID: 7, Message: outbox.Message{ID: "b", Key: "k"}}) {
		t.Error("it was admitted while the known one is in memory")
	}
	if !known.idCollision || !k.dropped || k.resumeFrom != 6 || !k.mustWait() || len(e.blocked.resuming) != 1 {
		t.Errorf("the item in memory is %+v, and the key %+v; want both to remember the row", known, k)
	}
	if len(k.items) != 1 || k.items[0] != before || after.stage != dropped || l.readers[0].known[8] != nil {
		t.Errorf("%d items of the key wait, want only the one before the row", len(k.items))
	}
	if e.held.forget(known); l.readers[0].cursor != 6 || k.mustWait() {
		t.Errorf("after the item with the same id has left memory, rows above %d are read again, and the key waits: %v", l.readers[0].cursor, k.mustWait())
	}
}

// If the relay starts to give up a lane during a scan for late rows, the rows that the scan finds are not admitted, and the
// lane remembers the position of the first one for its next holder. The same happens if there is no room for the rows.
func TestLateRowsOfADrainingLane(t *testing.T) {
	t.Parallel()
	l := emptyLane(storage.Lease{Lane: 3}, 1)
	e := withLanes(&engine{routes: toOneSink(), queues: []*sinkQueue{{}}}, map[int]*lane{3: l})
	l.readers[0].cursor, l.draining = 50, true
	e.mergeLate(&fetch{seq: 9, late: &lateScan{positions: []storage.Position{{Lane: 3, After: 4, Until: 50}}, skipped: map[laneQueue]int64{{3, 0}: 30},
		rows: []storage.Row{{ID: 7, Lane: 3}, {ID: 9, Lane: 3, Message: outbox.Message{Key: "k"}}}}})
	if marks := l.marks(100, none, "", []string{"a"}); l.readers.head() != 6 || marks.Main != 6 || l.size() != 0 {
		t.Errorf("rows above %d are read, the mark is %+v, %d items in memory; want 6 and none", l.readers.head(), marks, l.size())
	}
}
