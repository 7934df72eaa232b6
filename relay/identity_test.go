package relay

import (
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func rowOf(id int64, message string) storage.Row {
	return storage.Row{ID: id, Message: outbox.Message{ID: message, Topic: "t"}}
}

// A row that has the id of one in memory, and another message, isn't that one: it is
// looked for once that one has left, and no mark passes it until then.
func TestAnotherMessageWithAKnownID(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known, read storage.Row
		again       bool
	}{
		"the same":              {rowOf(7, "a"), rowOf(7, "a"), false},
		"another":               {rowOf(7, "a"), rowOf(7, "b"), true},
		"another, while held":   {held(rowOf(7, "a")), rowOf(7, "b"), true},
		"another, that is held": {rowOf(7, "a"), held(rowOf(7, "b")), false}, // it comes with the next pass
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, l := withLanes(&engine{}, nil), emptyLane(storage.Lease{}, 1)
			l.cursor = 9
			it := &item{row: c.known, lane: l, queue: &sinkQueue{}}
			l.known[7] = it
			if e.admit(l, &c.read) {
				t.Error("it was taken beside the known one")
			}
			passes := c.known.Deferred && !c.again
			if mark := l.marks(9, "", []string{"sink"}).Main; (mark > 6) != passes {
				t.Errorf("the mark is at %d while the id's row is in memory", mark)
			}
			e.forget(it)
			if again := l.recheck == 6; again != c.again {
				t.Errorf("after the known one left, rows above %d are looked for", l.recheck)
			}
		})
	}
}

func held(row storage.Row) storage.Row {
	row.Deferred = true
	return row
}

// settledCounts is told what settlements did.
type settledCounts struct {
	NoObserver
	counts storage.Settled
}

func (s *settledCounts) Settled(counts storage.Settled, _ map[storage.State]int) {
	s.counts.Changed += counts.Changed
	s.counts.Fenced += counts.Fenced
}

// What was read under a lease that was lost is not written, whatever the lane's fence
// is by now; what belongs to other lanes is.
func TestOutcomesOfLostLanesAreNotWritten(t *testing.T) {
	t.Parallel()
	observer := &settledCounts{}
	e := withLanes(settlingOf(&base{options: Options{Observer: observer, Logger: slog.New(slog.DiscardHandler)}}, 1), nil)
	lost, kept := emptyLane(storage.Lease{Lane: 1, Fence: 1}, 0), emptyLane(storage.Lease{Lane: 2, Fence: 1}, 0)
	for id := range int64(6) {
		l := []*lane{lost, kept}[id%2]
		it := &item{row: storage.Row{ID: id, Lane: l.Lane}, lane: l, stage: inSettle}
		l.known[id] = it
		e.settle.add(it, it.settlement(storage.StateError))
	}
	e.dropLane(lost)
	e.lanes = map[int]*lane{1: emptyLane(lost.Lease, 0), 2: kept} // the same fence again
	e.settle.start(time.Now())
	job := <-e.settle.settles
	if len(job.items) != 3 || job.items[0].lane != kept {
		t.Errorf("%d outcomes are written, want the 3 of the lane that is held", len(job.items))
	}
	if observer.counts.Fenced != 3 || len(lost.known) != 0 {
		t.Errorf("%d outcomes were told as fenced, %d rows are in memory; want 3 and 0", observer.counts.Fenced, len(lost.known))
	}
}

// withLanes makes an engine claim by lanes, with these.
func withLanes(e *engine, lanes map[int]*lane) *byLanes {
	if e.base == nil {
		e.base = &base{}
	}
	b := newByLanes(e, maxBlockedKeys, farBehind)
	b.lanes, e.claiming = lanes, b
	return b
}
