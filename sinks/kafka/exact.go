package kafka

import (
	"cmp"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// exact is a record batch that was planned.
type exact struct {
	stamp   stamp
	err     error // the name can't be read
	members []int // its messages, in their order
}

// linesOf sorts messages into record batches, and these by partition and by
// their sequences: a line is what is sent one after the other.
func linesOf(batch []sinks.Message) [][]exact {
	byName := map[string]*exact{}
	var all []*exact
	for i := range batch {
		name := batch[i].Ticket.Batch
		e := byName[name]
		if e == nil {
			e = &exact{}
			e.stamp, e.err = parseStamp(name)
			byName[name], all = e, append(all, e)
		}
		e.members = append(e.members, i)
	}
	var order []place
	lines := map[place][]exact{}
	for _, e := range all {
		slices.SortFunc(e.members, func(a, b int) int { return batch[a].Ticket.Place - batch[b].Ticket.Place })
		if lines[e.stamp.to] == nil {
			order = append(order, e.stamp.to)
		}
		lines[e.stamp.to] = append(lines[e.stamp.to], *e)
	}
	sorted := make([][]exact, len(order))
	for i, to := range order {
		slices.SortStableFunc(lines[to], func(a, b exact) int {
			return cmp.Or(cmp.Compare(a.stamp.producer, b.stamp.producer), cmp.Compare(a.stamp.base, b.stamp.base))
		})
		sorted[i] = lines[to]
	}
	return sorted
}
