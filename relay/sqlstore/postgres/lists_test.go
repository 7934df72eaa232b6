package postgres

import (
	"reflect"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A list ends before a large gap, before an id that isn't higher, before another lease, or at its greatest length.
// So the range from its first to its last id has few other rows.
func TestListsOfIDsHaveSmallGaps(t *testing.T) {
	t.Parallel()
	long := make([]storage.Settlement, listLength+1)
	for i := range long {
		long[i] = storage.Settlement{Lane: 1, Fence: 1, ID: int64(i)}
	}
	for name, c := range map[string]struct {
		settlements []storage.Settlement
		want        [][]int64
	}{
		"none":        {},
		"one":         {[]storage.Settlement{{ID: 5}}, [][]int64{{5}}},
		"together":    {[]storage.Settlement{{ID: 5}, {ID: 5 + listGap}}, [][]int64{{5, 5 + listGap}}},
		"far apart":   {[]storage.Settlement{{ID: 5}, {ID: 6 + listGap}}, [][]int64{{5}, {6 + listGap}}},
		"twice":       {[]storage.Settlement{{ID: 5}, {ID: 5}}, [][]int64{{5}, {5}}},
		"no order":    {[]storage.Settlement{{ID: 5}, {ID: 4}, {ID: 6}}, [][]int64{{5}, {4, 6}}},
		"lanes":       {[]storage.Settlement{{ID: 5}, {ID: 6, Lane: 1}}, [][]int64{{5}, {6}}},
		"fences":      {[]storage.Settlement{{ID: 5}, {ID: 6, Fence: 1}, {ID: 7}}, [][]int64{{5}, {6}, {7}}},
		"a long list": {long, [][]int64{backend.Column(long[:listLength], func(s *storage.Settlement) int64 { return s.ID }), {listLength}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got [][]int64
			at := 0
			for _, list := range listsOf(c.settlements) {
				if first := c.settlements[at]; list.Lease != (storage.Lease{Lane: first.Lane, Fence: first.Fence}) {
					t.Errorf("the list from settlement %d on has the lease %v", at, list.Lease)
				}
				got, at = append(got, list.ids), at+len(list.ids)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("lists %v, want %v", got, c.want)
			}
		})
	}
}
