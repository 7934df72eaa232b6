package relay

import (
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A relay that has just started gets its share of both full and empty lanes. Lanes that are being given up stay chosen, even
// if few items are left in them.
func TestBeyondShareChoosesLanes(t *testing.T) {
	t.Parallel()
	lanes := func(sizes ...int) (lanes []*lane) {
		for number, size := range sizes {
			l := &lane{Lease: storage.Lease{Lane: number}, readers: readers{newReader(0)}}
			for id := range int64(size) {
				l.readers[0].known[id] = &item{}
			}
			lanes = append(lanes, l)
		}
		return lanes
	}
	with := func(lanes []*lane, change func(*lane), numbers ...int) []*lane {
		for _, number := range numbers {
			change(lanes[number])
		}
		return lanes
	}
	draining, void := func(l *lane) { l.draining = true }, func(l *lane) { l.void = true }
	for name, c := range map[string]struct {
		lanes []*lane
		share int
		want  []int
	}{
		"no lanes beyond the share":        {lanes(9, 9), 2, nil},
		"a share that grew":                {with(lanes(9, 9), draining, 0), 3, nil},
		"full and empty lanes":             {lanes(9, 9, 9, 9, 0, 0, 0, 0), 4, []int{1, 3, 5, 7}},
		"a third of a few busy lanes":      {lanes(0, 8, 0, 9, 0, 7, 0, 0, 0), 6, []int{4, 5, 8}},
		"lanes that are being given up":    {with(lanes(9, 0, 8, 0), draining, 0, 1), 2, []int{0, 1}},
		"one more than are being given up": {with(lanes(9, 0, 8, 7), draining, 1), 2, []int{1, 3}},
		"fewer than are being given up":    {with(lanes(9, 0, 8, 0), draining, 0, 1), 3, []int{0}},
		"all":                              {lanes(9, 0), 0, []int{0, 1}},
		"void lanes":                       {with(lanes(9, 0, 0), void, 0), 3, []int{0}},
		"void and other lanes":             {with(lanes(9, 8, 7, 6), void, 0), 1, []int{0, 2, 3}},
	} {
		var got []int
		for l := range beyondShare(c.lanes, c.share) {
			got = append(got, l.Lane)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: given up are %v, want %v", name, got, c.want)
		}
	}
}
