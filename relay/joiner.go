package relay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// joiner decides what is written for a row that several sinks need, and when. Such a row is in memory as one item for each sink.
// Each item has its own key and attempts, and the items' outcomes arrive separately. If all sinks deliver the message within
// joinPatience, the joiner returns one settlement for the row. Otherwise it returns one settlement for each sink that failed, and
// one for the sinks that have delivered by then. After each settlement, the row names the sinks that remain. The joiner has no
// clock, channel, goroutine or store: the loop calls it, and writes what it returns.
//
// What must hold: for each key and sink, outcomes are written in order, even if some of the messages have only one sink. A
// row has at most one settlement in progress. The settlement lists the sinks that the row names before and after the write. The row
// names a sink until the sink's outcome is written, so that the next holder of the lane sends to that sink.
type joiner struct {
	names    []string      // the names of the sinks, by queue
	patience time.Duration // how long a delivery waits for the other sinks of its row; 0 once the relay stops
	waiting  []arrival     // deliveries that wait for the other sinks of their rows, ordered by time; some of them may have been returned in the meantime
	count    int           // how many outcomes have not been returned yet, including outcomes of messages without a key
}

// joinPatience is how long a delivery waits for the outcomes of the row's other sinks, so that the row is written once. It
// doesn't wait for a sink that is down, that has no item of the row in memory, or that this relay doesn't have.
const joinPatience = 100 * time.Millisecond

func newJoiner(names []string) joiner {
	return joiner{names: names, patience: joinPatience}
}

// jointOf returns the state that the items of a row share. It also returns the queues to which the row may be added. Some of the
// given queues may no longer need it, because the row may have been read before its last settlement. The state is nil if one item
// represents the whole row.
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
	case whole: // one item in memory represents the whole row already
		return nil, nil
	case row.Later && !row.Deferred || row.Holds != storage.NoHold: // the row is scheduled, skipped or discarded for all its sinks
		return nil, queues[:1]
	}
	f := &joint{sinks: row.Sinks, left: storage.SplitSinks(row.Sinks), ready: make([]*item, 0, len(queues))}
	if f.left == nil {
		f.left = make([]string, 0, len(queues))
		for _, queue := range queues {
			f.left = append(f.left, j.names[queue])
		}
	}
	return f, queues
}

// isOther reports whether the given row, which has the same id and message as the joint's row, is a retry that was split off from
// a scheduled row. The joint's own row names at least one of the remaining sinks, or no sink at all.
func (f *joint) isOther(row *storage.Row) bool {
	return row.Sinks != "" && len(f.left) > 0 && !slices.ContainsFunc(storage.SplitSinks(row.Sinks), func(name string) bool { return slices.Contains(f.left, name) })
}

// joins reports whether the item's outcome must be passed to joiner.add. Other outcomes are written directly.
func (j *joiner) joins(it *item) bool {
	return it.joint != nil || it.key != nil && len(it.key.outcomes) > 0
}

// add adds an item's outcome. Like the other methods, it returns the items whose settlements may be written now, in order.
func (j *joiner) add(it *item, now time.Time) []*item {
	j.count++
	if it.key == nil {
		return j.join(arrival{it, now}, now)
	}
	if it.key.outcomes = append(it.key.outcomes, arrival{it, now}); len(it.key.outcomes) > 1 {
		return nil
	}
	return j.next(it.key, now)
}

// next removes outcomes from the front of a key's list and returns them, up to the first outcome whose message several sinks
// need. It adds that outcome to its row.
func (j *joiner) next(k *key, now time.Time) (write []*item) {
	for len(k.outcomes) > 0 {
		first := k.outcomes[0]
		if first.item.joint != nil {
			return append(write, j.join(first, now)...)
		}
		j.leave(k)
		write = append(write, first.item)
	}
	return write
}

// leave removes the first outcome of a key, which is about to be returned.
func (j *joiner) leave(k *key) {
	j.count--
	k.outcomes[0] = arrival{}
	k.outcomes = k.outcomes[1:]
}

// join adds an outcome to its row.
func (j *joiner) join(a arrival, now time.Time) []*item {
	f := a.item.joint
	if f.ready = append(f.ready, a.item); len(f.ready) == 1 || a.at.Before(f.since) {
		f.since, f.waits = a.at, false
	}
	return j.advance(f, now)
}

// advance begins the next settlement of a row, unless one is in progress. If a sink did not deliver the message and other sinks
// remain, the settlement is for that sink alone. Otherwise it is for all sinks that have an outcome, but it waits if the
// remaining sinks will probably deliver soon.
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

// wait adds the row to j.waiting, which is ordered by the times at which the rows' oldest outcomes arrived. The row may have to be
// inserted before others, because its outcome may have waited behind another outcome of its key.
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

// mayWait reports whether the remaining sinks will probably deliver the message soon.
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

// due returns the time at which the method `late` must be called; zero if no row waits.
func (j *joiner) due() time.Time {
	if len(j.waiting) == 0 {
		return time.Time{}
	}
	return j.waiting[0].at.Add(j.patience)
}

// late begins the settlements of rows whose oldest outcome has waited for j.patience.
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

// settle begins one settlement for some of a row's sinks. If it is for several sinks, all of them delivered the message, and the
// settlement has all their receipts. Then settle continues with the next outcomes of the items' keys.
func (j *joiner) settle(f *joint, items []*item, now time.Time) []*item {
	if len(items) == len(f.ready) {
		f.ready = nil
	} else {
		items = slices.Clone(items)
		f.ready = slices.DeleteFunc(f.ready, func(it *item) bool { return slices.Contains(items, it) })
	}
	slices.SortFunc(items, func(a, b *item) int { return a.slot - b.slot })
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
		j.leave(it.key)
		write = append(write, j.next(it.key, now)...)
	}
	return write
}

// begin records which sinks the settlement of these items is for, and which of the row's sinks remain after it.
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

// lend lets the transaction of an item's handler settle the item's row. It returns false while another settlement of the row is in
// progress.
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

// takeBack undoes a call of lend if the transaction of the item's handler hasn't settled the row.
func (j *joiner) takeBack(it *item, now time.Time) []*item {
	f := it.joint
	if f == nil || len(f.writing) == 0 || f.writing[0] != it {
		return nil
	}
	f.writing, f.of, f.rest = nil, "", ""
	return j.advance(f, now)
}

// written is called after a settlement of the row has been written. It begins the row's next settlement.
func (j *joiner) written(it *item, now time.Time) []*item {
	it.joint.sinks, it.joint.left = it.joint.rest, storage.SplitSinks(it.joint.rest)
	return j.takeBack(it, now)
}

// together returns the items that are settled by an item's settlement. If several sinks need the row, there may be several such
// items.
func (it *item) together() []*item {
	if it.joint == nil {
		return []*item{it}
	}
	return it.joint.writing
}

// wholly reports whether the item's settlement is for all remaining sinks of its row.
func (it *item) wholly() bool { return it.joint == nil || it.joint.of == "" }

// settlement returns the settlement of the item.
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
	if r.state != storage.StateDone {
		s.Failed = it.failed
	}
	if it.lane != nil {
		s.Fence = it.lane.Fence
	}
	if f := it.joint; f != nil {
		s.Sinks, s.For, s.Left = f.sinks, f.of, f.rest
	}
	return s
}
