package relay

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func rowOf(id int64, message string) storage.Row {
	return storage.Row{ID: id, Message: outbox.Message{ID: message, Topic: "t"}}
}

// A row with the id of a row in memory, but another message, is a different row. It is read when the first one has left memory,
// and until then no mark passes it.
func TestAnotherMessageWithAKnownIDWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known, read storage.Row
		again       bool
	}{
		"the same message":                   {rowOf(7, "a"), rowOf(7, "a"), false},
		"another":                            {rowOf(7, "a"), rowOf(7, "b"), true},
		"another message, while deferred":    {held(rowOf(7, "a")), rowOf(7, "b"), true},
		"another message, which is deferred": {rowOf(7, "a"), held(rowOf(7, "b")), false}, // the next pass over deferred rows returns it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := withLanes(&engine{routes: toOneSink()}, nil), emptyLane(storage.Lease{}, 1)
			l.readers[0].cursor = 9
			it := &item{row: c.known, lane: l, queue: &sinkQueue{}}
			l.add(it)
			if e.admit(l, &c.read) {
				t.Error("it was admitted while the known one is in memory")
			}
			passes := c.known.Deferred && !c.again
			if mark := l.marks(9, none, "", []string{"sink"}).Main; (mark > 6) != passes {
				t.Errorf("the mark is at %d while the id's row is in memory", mark)
			}
			e.held.forget(it)
			if again := l.readers[0].cursor == 6; again != c.again {
				t.Errorf("after the known one left, rows above %d are read again", l.readers[0].cursor)
			}
		})
	}
}

func held(row storage.Row) storage.Row {
	row.Deferred = true
	return row
}

// withLanes makes an engine claim by lanes, with these lanes.
func withLanes(e *engine, lanes map[int]*lane) *byLanes {
	if e.base == nil {
		e.base = &base{}
	}
	b := newByLanes(e, maxBlockedKeys, mostPassed)
	b.held.lanes, e.claiming = lanes, b
	return b
}
