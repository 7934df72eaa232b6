package relay

import (
	"maps"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// TestOffer offers a row with id 7 to a reader whose cursor is 50. It checks the answer, and the reader's positions
// afterwards.
func TestOffer(t *testing.T) {
	t.Parallel()
	roomy := meeting{room: 1, keyKnown: true}
	withKey := storage.Row{ID: 7, Message: outbox.Message{ID: "a", Key: "k"}}
	keyed := func(state func(*key)) func(*reader) {
		return func(r *reader) {
			r.keys["k"] = &key{}
			state(r.keys["k"])
		}
	}
	for name, c := range map[string]struct {
		reader func(r *reader)
		row    storage.Row // the row that is offered; withKey if its id is 0
		meets  func(m *meeting)
		want   answer
		cursor int64 // the cursor afterwards; 0 stands for 50
		gap    int64 // the gap afterwards; 0 stands for none
		resume int64 // the key's resumeFrom afterwards; 0 stands for none
	}{
		"with room":                   {want: rowTaken},
		"without room":                {meets: func(m *meeting) { m.room = 0 }, want: rowStopped, cursor: 6},
		"a deferred row, and no room": {row: storage.Row{ID: 7, Deferred: true}, meets: func(m *meeting) { m.room = 0 }, want: rowStopped},
		"above the cursor":            {reader: func(r *reader) { r.rewind(6) }, want: rowBeyond, cursor: 6},
		"a deferred row above the cursor": {reader: func(r *reader) { r.rewind(6) }, row: storage.Row{ID: 7, Deferred: true},
			want: rowTaken, cursor: 6},
		"above the cursor, and paused": {reader: func(r *reader) { r.rewind(6) }, meets: func(m *meeting) { m.paused = true },
			want: rowBeyond, cursor: 6},
		"paused": {meets: func(m *meeting) { m.paused = true }, want: rowPaused, gap: 6},
		"paused, like one below": {reader: func(r *reader) { r.leaveOut(4) }, meets: func(m *meeting) { m.paused = true },
			want: rowPaused, gap: 3},
		"paused and deferred": {row: storage.Row{ID: 7, Deferred: true}, meets: func(m *meeting) { m.paused = true }, want: rowPaused},
		"in memory":           {reader: knows(7, "a"), want: rowKnown},
		"in memory, and above the cursor": {reader: func(r *reader) { knows(7, "a")(r); r.rewind(3) },
			want: rowKnown, cursor: 3},
		"another message has its id":              {reader: knows(7, "b"), want: rowDoubled},
		"the lane is being given up":              {meets: func(m *meeting) { m.leaving = true }, want: rowStopped, cursor: 6},
		"it is scheduled":                         {row: storage.Row{ID: 7, Later: true}, meets: func(m *meeting) { m.room, m.paused = 0, true }, want: rowLater},
		"its key is unknown":                      {meets: func(m *meeting) { m.keyKnown = false }, want: rowUnasked},
		"its key is unknown, but it is in memory": {reader: keyed(func(*key) {}), meets: func(m *meeting) { m.keyKnown = false }, want: rowTaken},
		"its key is blocked":                      {reader: keyed(blockedBy(5)), want: rowBehind, resume: 6},
		"its key is blocked, no room":             {reader: keyed(blockedBy(5)), meets: func(m *meeting) { m.room = 0 }, want: rowBehind, resume: 6},
		"above its key's position":                {reader: keyed(func(k *key) { k.dropAt(5) }), want: rowBehind, resume: 4},
		"below its key's position":                {reader: keyed(func(k *key) { k.dropAt(9) }), want: rowTaken, resume: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, m, row := newReader(50), roomy, withKey
			if c.reader != nil {
				c.reader(&r)
			}
			if c.meets != nil {
				c.meets(&m)
			}
			if c.row.ID != 0 {
				row = c.row
			}
			if got := r.offer(&row, m); got != c.want {
				t.Errorf("answer %d, want %d", got, c.want)
			}
			resume := int64(0)
			if k := r.keys["k"]; k != nil && k.dropped {
				resume = k.resumeFrom
			}
			if cursor, gap := orElse(c.cursor, 50), orElse(c.gap, none); r.cursor != cursor || r.gap != gap || resume != c.resume {
				t.Errorf("cursor %d, gap %d, key from %d; want %d, %d, %d", r.cursor, r.gap, resume, cursor, gap, c.resume)
			}
		})
	}
}

func knows(id int64, message string) func(*reader) {
	return func(r *reader) {
		r.known[id] = &item{row: storage.Row{ID: id, Message: outbox.Message{ID: message}}}
	}
}

func orElse(value, other int64) int64 {
	if value == 0 {
		return other
	}
	return value
}

// The gap is below the lowest row that was left out. A row above the cursor doesn't count, since it will be read anyway.
func TestGap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change      func(r *reader)
		cursor, gap int64
	}{
		"the lowest counts":    {func(r *reader) { r.leaveOut(9); r.leaveOut(7); r.leaveOut(8) }, 50, 6},
		"above the cursor":     {func(r *reader) { r.leaveOut(51) }, 50, none},
		"rewound below it":     {func(r *reader) { r.leaveOut(9); r.rewind(7) }, 7, none},
		"rewound, not so far":  {func(r *reader) { r.leaveOut(9); r.rewind(20) }, 20, 8},
		"closed":               {func(r *reader) { r.leaveOut(9); r.closeGap() }, 8, none},
		"closed without a gap": {func(r *reader) { r.closeGap() }, 50, none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReader(50)
			if c.change(&r); r.cursor != c.cursor || r.gap != c.gap {
				t.Errorf("cursor %d, gap %d, want %d and %d", r.cursor, r.gap, c.cursor, c.gap)
			}
		})
	}
}

// A page moves the cursors of the readers for which it was read, except a cursor below the page's beginning: its reader hasn't
// been offered the rows in between.
func TestAdvance(t *testing.T) {
	t.Parallel()
	rs := readers{newReader(20), newReader(15), newReader(9), newReader(40), newReader(20)}
	rs[4].routeless = true
	rs.advance(10, 30, func(queue int) bool { return queue != 1 })
	var got []int64
	for i := range rs {
		got = append(got, rs[i].cursor)
	}
	if want := []int64{30, 15, 9, 40, 30}; !slices.Equal(got, want) {
		t.Errorf("the cursors are %v, want %v", got, want)
	}
	if rs[4].cursor = 99; rs.head() != 40 {
		t.Errorf("the head is %d, want 40, because the reader of rows without a route doesn't count", rs.head())
	}
}

// The mark of all sinks is below every row that must be read again. If the row's sink is behind, only the sink's own mark is.
func TestMarks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		place  func(rs readers)
		final  int64
		main   int64
		behind map[int]int64
	}{
		"all is finished":       {final: 100, main: 50},
		"rows may still appear": {final: 40, main: 40},
		"all are rewound":       {place: func(rs readers) { rs.rewind(30) }, final: 100, main: 30},
		"one is behind":         {place: func(rs readers) { rs[1].rewind(10) }, final: 100, main: 50, behind: map[int]int64{1: 10}},
		"the position of the sink that is behind isn't final": {place: func(rs readers) { rs[1].rewind(10) }, final: 5, main: 5, behind: map[int]int64{1: 5}},
		"a gap":                 {place: func(rs readers) { rs[1].leaveOut(13) }, final: 100, main: 12},
		"rows of a blocked key": {place: func(rs readers) { rs[1].keys["k"] = &key{}; rs[1].keys["k"].dropAt(14) }, final: 100, main: 13},
		"a row in memory":       {place: func(rs readers) { knows(8, "a")(&rs[1]) }, final: 100, main: 7},
		"a deferred row":        {place: func(rs readers) { knows(8, "a")(&rs[1]); rs[1].known[8].row.Deferred = true }, final: 100, main: 50},
		"with another row that has its id": {place: func(rs readers) {
			knows(8, "a")(&rs[1])
			rs[1].known[8].row.Deferred, rs[1].known[8].idCollision = true, true
		}, final: 100, main: 7},
		"in a sink that is behind": {place: func(rs readers) { rs[1].rewind(10); knows(8, "a")(&rs[1]) }, final: 100, main: 50, behind: map[int]int64{1: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := readers{newReader(50), newReader(50)}
			if c.place != nil {
				c.place(rs)
			}
			if main, behind := rs.marks(c.final); main != c.main || !maps.Equal(behind, c.behind) {
				t.Errorf("marks %d and %v, want %d and %v", main, behind, c.main, c.behind)
			}
		})
	}
}
