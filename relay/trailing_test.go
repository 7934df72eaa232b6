package relay

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// rowsOf makes a page: of each lane so many rows, so many ids from one to the next.
func rowsOf(lanes map[int][2]int64) (rows []Row) {
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		n, apart := lanes[lane][0], lanes[lane][1]
		for i := range n {
			rows = append(rows, Row{Lane: lane, ID: 1 + i*apart})
		}
	}
	return rows
}

// A lane that is behind the others by a good part of a page has one of its own.
func TestLanesThatTrail(t *testing.T) {
	t.Parallel()
	even := map[int][2]int64{}
	for lane := range 64 {
		even[lane] = [2]int64{31, 120 + int64(lane)%7}
	}
	with := func(lane int, rows, apart int64) map[int][2]int64 {
		lanes := maps.Clone(even)
		lanes[lane] = [2]int64{rows, apart}
		return lanes
	}
	for name, c := range map[string]struct {
		lanes map[int][2]int64
		want  []int
	}{
		"nothing":                      {lanes: nil},
		"equal lanes":                  {lanes: even},
		"one busy lane":                {lanes: with(7, 31, 2), want: []int{7}},
		"a little busier":              {lanes: with(7, 31, 60)},
		"one row far back":             {lanes: with(7, 1, 1)},
		"one lane that ended":          {lanes: with(7, 3, 100_000)},
		"one lane alone":               {lanes: map[int][2]int64{7: {2000, 1}}},
		"a small page with a busy one": {lanes: map[int][2]int64{1: {4, 50}, 2: {4, 60}, 3: {4, 2}}, want: []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := slices.Sorted(maps.Keys(trailing(rowsOf(c.lanes)))); !slices.Equal(got, c.want) {
				t.Errorf("lanes %v trail, want %v", got, c.want)
			}
		})
	}
}

// Others are read after each page of the lanes that trail, and at once where these
// have filled their part of the memory.
func TestTrailingLanesHaveEveryOtherPage(t *testing.T) {
	t.Parallel()
	e := &engine{lanes: map[int]*lane{}, outlets: []*outlet{{options: SinkOptions{Buffer: 8}}}}
	for n := range 4 {
		e.lanes[n] = newLane(Lease{Lane: n}, 1, time.Time{})
	}
	for _, step := range []struct{ trailing, known, want int }{{3, 0, 1}, {-1, 0, 4}, {3, 1, 1}, {3, 2, 4}} {
		if step.trailing >= 0 {
			e.read.trailing = map[int]bool{step.trailing: true}
			for id := range int64(step.known) {
				e.lanes[step.trailing].known[id] = &item{}
			}
		}
		lanes, part := e.lanesToRead()
		if len(lanes) != step.want || part != (step.want == 1) || e.read.trailing != nil {
			t.Errorf("%+v: reads %d lanes, part %v, next %v", step, len(lanes), part, e.read.trailing)
		}
	}
}
