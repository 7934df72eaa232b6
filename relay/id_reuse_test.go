package relay

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func rowOf(id int64, message string) storage.Row {
	return storage.Row{ID: id, Message: outbox.Message{ID: message, Topic: "t"}}
}

// If a row has the id of a row in memory but another message, it is a different row. It is read when the row in memory has
// left memory, and until then no mark passes its id.
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
				t.Error("the row was admitted while the other row with its id is in memory")
			}
			passes := c.known.Deferred && !c.again
			if mark := l.marks(9, none, "", []string{"sink"}).Main; (mark > 6) != passes {
				t.Errorf("the mark is %d while the other row with the id is in memory", mark)
			}
			e.held.forget(it)
			if again := l.readers[0].cursor == 6; again != c.again {
				t.Errorf("after the other row has left memory, rows above %d are read again", l.readers[0].cursor)
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
