package relay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Messages of several sinks. A row that several sinks need comes into memory once for each of them
// (admit.go), and each of these items goes its own way: with its own key, attempts and circuit.
// Their outcomes come in here before they are written, as all of them change one row. Out goes, to
// settle, one settlement for the row where all its sinks have the message within
// fanoutPatience; else one for each sink that differs, after which the row names the sinks that
// are left.
//
// What must hold: outcomes of one key and sink are written in their order, those of messages of this
// sink alone, too. Of one row one settlement is under way at a time, and it says which sinks the
// table has for the row before and after it. A sink that is done with is not among those that are
// left before that is written: whoever takes the lane over sends to all that the row names.

// fanoutPatience is how long a delivered message waits for its other sinks, so that its row is
// written once. It is not waited for a sink that is down, has no room, or failed.
const fanoutPatience = 100 * time.Millisecond

// fanout is a row that several sinks need, from when it comes into memory until none of its
// items is there any more.
type fanout struct {
	lane     *lane
	id       int64
	deferred bool
	message  string // its id
	needed   []int  // the queues that it was made with

	left  []string // the sinks whose outcomes aren't written
	ready []*item  // of these, those that have one
	since time.Time

	writing *item // whose settlement is under way, or whose handler's transaction
	riders  []*item
	part    part // what it writes
}

// part is what a settlement says of a row's sinks: those that the row has, those that it is of, and
// those that are left then. The last two are empty where it is of the whole row.
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

// fanouts are the rows of several sinks of which an outcome waits.
type fanouts struct {
	waiting   []*fanout // for others of their sinks, the longest first
	unwritten int       // items with an outcome that isn't on its way
}

// due is when the first of those that wait has waited long enough; zero without one.
func (w *fanouts) due() (at time.Time) {
	if len(w.waiting) > 0 {
		at = w.waiting[0].since.Add(fanoutPatience)
	}
	return at
}

// outcomeAt is an item's outcome, and when it came.
type outcomeAt struct {
	item *item
	at   time.Time
}

// addBehind keeps an outcome until those of earlier messages of its key are on their way.
func (s *settling) addBehind(it *item) {
	s.fanouts.unwritten++
	it.key.behind = append(it.key.behind, outcomeAt{it, time.Now()})
}

// addReady takes in the outcome of a sink among several, and writes what is to be written now.
func (s *settling) addReady(it *item, at time.Time) {
	f := it.fanout
	if f.ready = append(f.ready, it); len(f.ready) == 1 || at.Before(f.since) {
		f.since = at
	}
	s.fanouts.unwritten++
	if it.key != nil {
		it.key.unwritten++
	}
	s.advance(f, time.Now())
}

// onItsWay lets the outcomes behind an item in its key follow.
func (s *settling) onItsWay(it *item) {
	s.fanouts.unwritten--
	k := it.key
	if k == nil {
		return
	}
	for k.unwritten--; k.unwritten == 0 && len(k.behind) > 0; {
		next := k.behind[0]
		k.behind[0] = outcomeAt{}
		k.behind = k.behind[1:]
		s.fanouts.unwritten--
		if next.item.fanout != nil {
			s.addReady(next.item, next.at)
		} else {
			s.write(next.item)
		}
	}
	k.lane.forget(k)
}

// advanceLate writes what has waited long enough, and when the relay stops all that waits.
func (s *settling) advanceLate(now time.Time) {
	w := &s.fanouts
	for len(w.waiting) > 0 && (s.stopping.begun || !now.Before(w.due())) {
		f := w.waiting[0]
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
		s.advance(f, now)
	}
}

// advance writes the next settlement of a row, unless one is under way: of its last sink; else of one
// for which the message wasn't delivered; else of those that have it, unless others will soon.
func (s *settling) advance(f *fanout, now time.Time) {
	if f.writing != nil || len(f.ready) == 0 {
		return
	}
	failed := slices.IndexFunc(f.ready, func(it *item) bool { return it.toWrite.state != storage.StateDone })
	switch {
	case len(f.left) > 1 && failed >= 0:
		s.writePart(f, f.ready[failed:failed+1])
	case len(f.ready) < len(f.left) && s.mayWait(f, now):
		s.fanouts.waiting = append(s.fanouts.waiting, f)
	default:
		s.writePart(f, f.ready)
	}
}

// mayWait says that the sinks that are left will probably have the message soon.
func (s *settling) mayWait(f *fanout, now time.Time) bool {
	if s.stopping.begun || f.lane.lost || f.lane.draining || now.Sub(f.since) >= fanoutPatience {
		return false
	}
	for _, name := range f.left {
		queue := slices.Index(s.names, name)
		if queue < 0 {
			return false
		}
		it, c := f.member(queue), &s.engine.queues[queue].circuit
		if down := c.state != circuitClosed && c.failures > 0; it == nil || it.stage < inSettle && down {
			return false
		}
	}
	return true
}

// writePart has one settlement written for some of a row's sinks. Of several the message is
// delivered; their row has the receipts of all.
func (s *settling) writePart(f *fanout, items []*item) {
	items = slices.Clone(items)
	f.lend(s.names, items)
	if leader := f.writing; len(f.riders) > 0 {
		var receipts []string
		for _, it := range items {
			leader.toWrite.problem = cmp.Or(leader.toWrite.problem, it.toWrite.problem)
			if it.toWrite.receipt != "" {
				receipts = append(receipts, s.names[it.slot]+": "+it.toWrite.receipt)
			}
		}
		leader.toWrite.receipt = shorten(strings.Join(receipts, "; "), 255)
	}
	s.write(f.writing)
	for _, it := range items {
		s.onItsWay(it)
	}
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

// lendTo gives the row to the transaction of an item's handler, which marks it; false while another
// settlement of the row is under way.
func (e *engine) lendTo(it *item) bool {
	f := it.fanout
	if f == nil {
		return true
	}
	if f.writing != nil {
		return false
	}
	f.lend(e.names, []*item{it})
	return true
}

// unlend takes the row back from a handler whose transaction hasn't marked it.
func (e *engine) unlend(it *item) {
	if f := it.fanout; f != nil && f.writing == it {
		f.writing, f.part = nil, part{sinks: f.part.sinks}
		e.settle.advance(f, time.Now())
	}
}

// wrote goes on with a row once one of its settlements is written: with the items that this was
// of, too, and then with the next one. It returns those items.
func (s *settling) wrote(it *item) (riders []*item) {
	f := it.fanout
	riders = f.riders
	f.writing, f.riders = nil, nil
	if f.part.left == "" {
		f.left = nil
	} else {
		f.left = storage.SplitSinks(f.part.left)
	}
	f.part = part{sinks: f.part.left}
	return riders
}
