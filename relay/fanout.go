package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A message of several sinks. Its row comes into memory once for each of them (admit.go), and each of
// these items goes its own way: with its own key, attempts and breaker. What became of them meets
// in settle.go, as all of it changes one row; here is what they have in common.

// fanout is a row that several sinks need, from when it comes into memory until none of its
// items is there any more.
type fanout struct {
	lane     *lane
	id       int64
	deferred bool
	message  string // its id
	needed   []int  // the queues that it was made with

	left  []string // the sinks whose outcomes aren't written
	ready []*item  // items of these sinks whose outcome is known, and isn't being written yet
	since time.Time

	writing *item // whose settlement is under way, or whose handler's transaction
	riders  []*item
	part    part // what it writes
}

// part is what a settlement says of a row's sinks: those that the row names before it, those that it settles, and those
// that are left after it. The last two are empty if it settles the whole row.
type part struct{ sinks, of, left string }

// member is the item of one of its sinks that is in memory; nil if it isn't.
func (f *fanout) member(queue int) *item {
	if it := f.lane.known[queue][f.id]; it != nil && it.fanout == f {
		return it
	}
	return nil
}

// inMemory says that something of it is in memory.
func (f *fanout) inMemory() bool {
	return slices.ContainsFunc(f.needed, func(queue int) bool { return f.member(queue) != nil })
}

// isWhole says that the item is the same row, which is put away for all of its sinks at once.
func (it *item) isWhole(row *storage.Row) bool {
	return it != nil && it.fanout == nil && it.row.Message.ID == row.Message.ID && it.row.Deferred == row.Deferred
}

// lend gives the row to the settlement of some of its items.
func (f *fanout) lend(names []string, items []*item) {
	f.writing, f.riders, f.part = items[0], items[1:], part{sinks: f.part.sinks}
	f.ready = slices.DeleteFunc(slices.Clone(f.ready), func(it *item) bool { return it == f.writing || slices.Contains(f.riders, it) })
	if len(items) == len(f.left) {
		return
	}
	var of []string
	for _, it := range items {
		of = append(of, names[it.slot])
	}
	f.part.of = storage.JoinSinks(of)
	f.part.left = storage.JoinSinks(slices.DeleteFunc(slices.Clone(f.left), func(name string) bool { return slices.Contains(of, name) }))
}

// outcomeAt is an item's outcome, and when it came.
type outcomeAt struct {
	item *item
	at   time.Time
}
