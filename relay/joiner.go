package relay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// joiner decides what is written for a row that several sinks need, and when. Such a row is in memory as one item for each of
// the sinks, with its own key and attempts, and their outcomes come one by one. The joiner returns one settlement for the row if
// all its sinks deliver the message within joinPatience. Otherwise it returns one for each sink that differs, after which the
// row names the sinks that are left. It has no clock, channel, goroutine or store: the loop calls it, and writes what it returns.
//
// What must hold: the outcomes of one key and sink are written in their order, those of messages of this sink alone, too. Of a
// row one settlement is under way at a time, and it names the sinks that the table has for the row before and after it. A sink
// whose outcome isn't written stays among those that are left: the next holder of the lane sends to all that the row names.
type joiner struct {
	names    []string           // of the sinks, by their queues
	patience time.Duration      // how long a delivery waits for others of its row; 0 once the relay stops
	lines    map[line][]arrival // outcomes that the loop wasn't given to write yet, in their order; only the first of each line counts for its row
	waiting  []arrival          // deliveries that wait for other sinks of their rows, the oldest first; the loop may have some meanwhile
	count    int                // outcomes that the loop wasn't given yet, with those of messages without a key
}

// joinPatience is how long a delivered message waits for its other sinks, so that its row is written once. It doesn't wait for
// a sink that is down, that doesn't have the message in memory, or that this relay doesn't have.
const joinPatience = 100 * time.Millisecond

// line names a key and sink in a lane: its outcomes are written in their order.
type line struct {
	lane *lane
	keyRef
}

// arrival is an item whose outcome is known, and since when.
type arrival struct {
	item *item
	at   time.Time
}

func newJoiner(names []string) joiner {
	return joiner{names: names, patience: joinPatience, lines: map[line][]arrival{}}
}

// jointOf returns what the items of a row have in common, and the queues that it comes into memory for. The row was read for
// these queues, perhaps before its last settlement. The joint is nil if one item stands for the whole row.
func (j *joiner) jointOf(l *lane, row *storage.Row, queues []int) (*joint, []int) {
	whole := false
	for queue := range l.readers {
		switch it := l.item(queue, row.ID); {
		case it == nil || it.row.Message.ID != row.Message.ID || it.row.Deferred != row.Deferred:
		case it.joint != nil && it.joint.isOther(row):
		case it.joint != nil:
			return it.joint, slices.DeleteFunc(slices.Clone(queues), func(queue int) bool { return !slices.Contains(it.joint.left, j.names[queue]) })
		default:
			whole = whole || slices.Contains(queues, queue)
		}
	}
	switch {
	case len(queues) == 1:
		return nil, queues
	case whole: // it is in memory
		return nil, nil
	case row.Later && !row.Deferred || row.Holds != storage.NoHold: // it is put away, skipped or discarded for all its sinks
		return nil, queues[:1]
	}
	f := &joint{sinks: row.Sinks, left: storage.SplitSinks(row.Sinks)}
	if f.left == nil {
		for _, queue := range queues {
			f.left = append(f.left, j.names[queue])
		}
	}
	return f, queues
}

// isOther reports whether a row is a different one, though its id and message are those of the joint's row: a retry that was
// split off a scheduled row. The joint's row itself names at least one of the sinks that are left, or no sink at all.
func (f *joint) isOther(row *storage.Row) bool {
	return row.Sinks != "" && len(f.left) > 0 && !slices.ContainsFunc(storage.SplitSinks(row.Sinks), func(name string) bool { return slices.Contains(f.left, name) })
}

// joins reports whether the item's outcome must be added. Others are written as they come.
func (j *joiner) joins(it *item) bool {
	return it.joint != nil || it.key != nil && len(j.lines[lineOf(it)]) > 0
}

func lineOf(it *item) line { return line{it.lane, it.key.ref} }

// add takes in an item's outcome. It returns the items whose settlements may be written now, in this order, as the other
// methods do.
func (j *joiner) add(it *item, now time.Time) []*item {
	j.count++
	if it.key == nil {
		return j.join(arrival{it, now}, now)
	}
	l := lineOf(it)
	if j.lines[l] = append(j.lines[l], arrival{it, now}); len(j.lines[l]) > 1 {
		return nil
	}
	return j.next(l, now)
}

// next has the first outcome of a line join its row, and returns those before it that are of one sink alone.
func (j *joiner) next(l line, now time.Time) (write []*item) {
	for len(j.lines[l]) > 0 {
		first := j.lines[l][0]
		if first.item.joint != nil {
			return append(write, j.join(first, now)...)
		}
		j.leave(l)
		write = append(write, first.item)
	}
	return write
}

// leave takes the first outcome out of its line, as it is returned.
func (j *joiner) leave(l line) {
	j.count--
	rest := j.lines[l]
	rest[0] = arrival{}
	if j.lines[l] = rest[1:]; len(rest) == 1 {
		delete(j.lines, l)
	}
}

// join adds an outcome to those of its row.
func (j *joiner) join(a arrival, now time.Time) []*item {
	f := a.item.joint
	if f.ready = append(f.ready, a.item); len(f.ready) == 1 || a.at.Before(f.since) {
		f.since, f.waits = a.at, false
	}
	return j.advance(f, now)
}

// advance begins the next settlement of a row, unless one is under way: of its last sinks; else of one for which the message
// wasn't delivered; else of those that have it, unless others will soon.
func (j *joiner) advance(f *joint, now time.Time) []*item {
	if len(f.writing) > 0 || len(f.ready) == 0 {
		return nil
	}
	failed := slices.IndexFunc(f.ready, func(it *item) bool { return it.toWrite.state != storage.StateDone })
	switch {
	case len(f.left) > 1 && failed >= 0:
		return j.settle(f, f.ready[failed:failed+1], now)
	case len(f.ready) < len(f.left) && j.mayWait(f, now):
		j.wait(f)
		return nil
	default:
		return j.settle(f, f.ready, now)
	}
}

// wait puts the row among those that late settles when their time is over, in the order of their oldest outcomes. An outcome that
// was behind another of its key may be older than those of rows that wait already.
func (j *joiner) wait(f *joint) {
	if f.waits {
		return
	}
	f.waits = true
	at, _ := slices.BinarySearchFunc(j.waiting, f.since, func(a arrival, since time.Time) int {
		if a.at.After(since) {
			return 1
		}
		return -1
	})
	j.waiting = slices.Insert(j.waiting, at, arrival{f.ready[0], f.since})
}

// mayWait reports whether the sinks that are left will probably have the message soon.
func (j *joiner) mayWait(f *joint, now time.Time) bool {
	of := f.ready[0]
	if of.lane.lost || of.lane.draining || now.Sub(f.since) >= j.patience {
		return false
	}
	for _, name := range f.left {
		queue := slices.Index(j.names, name)
		if queue < 0 {
			return false
		}
		it := of.lane.item(queue, of.row.ID)
		if it == nil || it.joint != f || it.stage < inSettle && !it.queue.breaker.sending() && it.queue.breaker.openings > 0 {
			return false
		}
	}
	return true
}

// due is when late has something to return; zero if nothing waits.
func (j *joiner) due() time.Time {
	if len(j.waiting) == 0 {
		return time.Time{}
	}
	return j.waiting[0].at.Add(j.patience)
}

// late begins the settlements of rows that have waited for long enough.
func (j *joiner) late(now time.Time) (write []*item) {
	for len(j.waiting) > 0 && now.Sub(j.waiting[0].at) >= j.patience {
		f := j.waiting[0].item.joint
		j.waiting[0] = arrival{}
		j.waiting = j.waiting[1:]
		f.waits = false
		write = append(write, j.advance(f, now)...)
	}
	return write
}

// settle begins one settlement for some of a row's sinks. For several the message is delivered, and their row has the receipts
// of all. The outcomes behind these in their keys follow.
func (j *joiner) settle(f *joint, items []*item, now time.Time) []*item {
	items = slices.SortedFunc(slices.Values(items), func(a, b *item) int { return a.slot - b.slot })
	f.ready = slices.DeleteFunc(f.ready, func(it *item) bool { return slices.Contains(items, it) })
	j.begin(f, items)
	if first := &items[0].toWrite; len(items) > 1 {
		var receipts []string
		for _, it := range items {
			first.problem = cmp.Or(first.problem, it.toWrite.problem)
			if it.toWrite.receipt != "" {
				receipts = append(receipts, j.names[it.slot]+": "+it.toWrite.receipt)
			}
		}
		first.receipt = shorten(strings.Join(receipts, "; "), 255)
	}
	write := []*item{items[0]}
	for _, it := range items {
		if it.key == nil {
			j.count--
			continue
		}
		l := lineOf(it)
		j.leave(l)
		write = append(write, j.next(l, now)...)
	}
	return write
}

// begin notes the settlement of some of a row's items, and what it says of the row's sinks.
func (j *joiner) begin(f *joint, items []*item) {
	f.writing = items
	if len(items) == len(f.left) {
		return
	}
	var of []string
	for _, it := range items {
		of = append(of, j.names[it.slot])
	}
	f.of = storage.JoinSinks(of)
	f.rest = storage.JoinSinks(slices.DeleteFunc(slices.Clone(f.left), func(name string) bool { return slices.Contains(of, name) }))
}

// lend gives an item's row to the transaction of its handler, which settles it. It returns false while another settlement of
// the row is under way.
func (j *joiner) lend(it *item) bool {
	switch f := it.joint; {
	case f == nil:
		return true
	case len(f.writing) > 0:
		return false
	default:
		j.begin(f, []*item{it})
		return true
	}
}

// takeBack ends the loan of an item's row, if it was lent, to a transaction that hasn't settled it.
func (j *joiner) takeBack(it *item, now time.Time) []*item {
	f := it.joint
	if f == nil || len(f.writing) == 0 || f.writing[0] != it {
		return nil
	}
	f.writing, f.of, f.rest = nil, "", ""
	return j.advance(f, now)
}

// written ends the settlement of a row of several sinks, and begins the next one.
func (j *joiner) written(it *item, now time.Time) []*item {
	it.joint.sinks, it.joint.left = it.joint.rest, storage.SplitSinks(it.joint.rest)
	return j.takeBack(it, now)
}

// together returns the items that an item's settlement is for: of a row that several sinks need there may be several.
func (it *item) together() []*item {
	if it.joint == nil {
		return []*item{it}
	}
	return it.joint.writing
}

// wholly reports whether the item's settlement is for all the sinks that its row has left.
func (it *item) wholly() bool { return it.joint == nil || it.joint.of == "" }

// settlement is what is written back for the item.
func (it *item) settlement() storage.Settlement {
	r := &it.toWrite
	s := storage.Settlement{
		ID: it.row.ID, Lane: it.row.Lane, MessageID: it.row.Message.ID, Token: it.token, Deferred: it.row.Deferred, Sinks: it.row.Sinks,
		State: r.state, Holds: r.holds, Attempts: it.row.Attempts + r.charged, Crashes: it.row.Crashes, Delay: r.delay, Error: r.problem, Receipt: r.receipt,
		DeadLetter: r.deadLetter,
	}
	if it.row.Deferred {
		s.AvailableAt = it.row.Message.AvailableAt
	}
	if it.lane != nil {
		s.Fence = it.lane.Fence
	}
	if f := it.joint; f != nil {
		s.Sinks, s.For, s.Left = f.sinks, f.of, f.rest
	}
	return s
}
