package relay

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Lanes, keys and items: what the relay keeps in memory about the rows that it has read. This file has no clock, channel,
// goroutine or store. The loop owns all this state. A diagram in reader.go shows the positions of a lane.

// lane is the state of a lane that the relay holds. When the lease is lost, the whole state is dropped, and a later lease of the
// same lane begins with an empty state.
type lane struct {
	storage.Lease
	epoch string // identifies the server that granted the lease

	readers readers // the lane's readers, by queue
	floor   int64   // the lane's mark when it was leased: no row can appear at or below it
	passed  *keySet // used while topics are paused: the keys of rows that are paused and not in memory; later rows of these keys stay out of memory, too. nil if it is empty

	keysUnknown bool // not all blocked keys of the lane are in memory, so the relay asks the database about keys that aren't in memory
	alarmed     bool // the lane's rows without a route were reported

	unswept  bool  // the lane isn't read until a sweep has searched for missed rows below its mark
	placed   bool  // a page has confirmed that the lane's cursor isn't above the last assigned id, or the lane is read from the beginning
	void     bool  // the server that granted the lease was replaced or has lost commits, so the lane's state in memory may be wrong
	draining bool  // the lane is being given up, because it is void or the relay has more lanes than its share
	lost     bool  // another relay may hold the lane. Outcomes are still written with the old fence, so they are rejected if another relay holds the lane
	seq      int64 // results of reads up to this number are ignored: they began before the lease, or before the id sequence was reset

	journaled journaled // the engine's copy of the lane's journal
	crashes   int       // how many consecutive holders died while they held the lane
	since     time.Time // when the lane was leased
}

// newLane returns a lane that is read from the marks that its last holder stored. The marks of individual sinks are valid only
// for the same routes; with other routes all sinks begin at the lowest mark.
func newLane(g storage.Grant, print string, queues []string, now time.Time) *lane {
	l := &lane{
		Lease: g.Lease, crashes: g.Crashes, since: now, floor: g.Marks.Main,
		readers: make(readers, len(queues)),
	}
	for i, name := range queues {
		l.readers[i] = newReader(g.Marks.Main)
		l.readers[i].routeless = name == unroutedName
		if mark, ok := g.Marks.Sinks[name]; ok && g.Marks.Routes == print {
			l.readers[i].rewind(mark)
		}
	}
	if g.Marks.Routes != print {
		for _, mark := range g.Marks.Sinks {
			l.readers.rewind(mark)
		}
	}
	return l
}

// marks returns the positions from which the lane's next holder must read: one for each sink that is behind, and one for all
// other sinks. The parameter safeID is the safe id of the last merged page: no further row can appear at or below it. If
// lateAfter isn't `none`, rows that are not merged yet may have appeared above that id.
func (l *lane) marks(safeID, lateAfter int64, print string, queues []string) storage.Marks {
	final := safeID
	if lateAfter != none {
		final = min(final, max(lateAfter, l.floor))
	}
	main, behind := l.readers.marks(final)
	marks := storage.Marks{Routes: print, Main: main}
	for i, low := range behind {
		if marks.Sinks == nil {
			marks.Sinks = map[string]int64{}
		}
		marks.Sinks[queues[i]] = low
	}
	return marks
}

// items iterates over the items in memory. A row that several sinks need may be in memory as an item for each of them.
func (l *lane) items() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for i := range l.readers {
			for _, it := range l.readers[i].known {
				if !yield(it) {
					return
				}
			}
		}
	}
}

// item returns a queue's item with this id; nil if no such item is in memory.
func (l *lane) item(queue int, id int64) *item { return l.readers[queue].known[id] }

// size returns the number of items in memory.
func (l *lane) size() (n int) {
	for i := range l.readers {
		n += len(l.readers[i].known)
	}
	return n
}

// add adds an item to its reader.
func (l *lane) add(it *item) {
	l.readers[it.slot].known[it.row.ID] = it
}

// key returns the state of a key, and creates it if needed.
func (l *lane) key(ref keyRef) *key {
	keys := l.readers[ref.queue].keys
	k := keys[ref.key]
	if k == nil {
		k = &key{ref: ref, lane: l}
		keys[ref.key] = k
	}
	return k
}

// forget deletes the key's state if it is no longer needed.
func (l *lane) forget(k *key) {
	if k != nil && !k.forgotten && k.inFlight == 0 && len(k.items) == 0 && len(k.outcomes) == 0 && !k.blocked && !k.dropped {
		k.forgotten = true
		delete(l.readers[k.ref.queue].keys, k.ref.key)
	}
}

// key is the state of one key in one sink. It keeps the order of the key's messages.
//
// At most one batch of a key is in flight at a time. The key's other messages wait here, ordered by id, and the queue has a
// single entry for the key. A message that is to be retried or parked blocks its key: the later messages are dropped from
// memory, and only the position from which to read them is kept. So the later messages take no memory, however many there are.
type key struct {
	ref       keyRef
	lane      *lane
	forgotten bool // the lane has deleted this state, and creates a new one for the key's next message

	items     []*item   // waiting items, ordered by id
	inFlight  int       // how many items are in flight, including expired items whose settlement is not written
	queued    bool      // the key has an entry in the queue
	suspended *item     // an item that is suspended, or that its sink may already have (dedup.go); no other item of the key is sent before it
	outcomes  []arrival // outcomes that the joiner has not returned yet, in order; the joiner adds only the first one to its row (joiner.go)

	blocked      bool  // no item except blockedBy may be sent
	blockedBy    int64 // the id of the message that blocks the key, or that blocked it last
	fromDatabase bool  // the database reported the key as blocked. Several messages may block it, so the relay asks the database again before it sends another message of the key

	dropped    bool  // rows of the key above resumeFrom were dropped and must be read again
	resumeFrom int64 // the position from which to read these rows
	after      *item // an item for another message that has the same id as a dropped row; the row is not read while this item is in memory
}

// keyRef identifies a key in one sink.
type keyRef struct {
	queue int
	key   string
}

// reader returns the reader of the key's sink.
func (k *key) reader() *reader { return &k.lane.readers[k.ref.queue] }

// add adds a waiting item.
func (k *key) add(it *item) {
	at := len(k.items)
	for at > 0 && k.items[at-1].row.ID > it.row.ID {
		at--
	}
	k.items = slices.Insert(k.items, at, it)
}

// addAll adds waiting items. The key may be nil if items is empty.
func (k *key) addAll(items []*item) {
	for _, it := range items {
		k.add(it)
	}
}

// remove removes a waiting item.
func (k *key) remove(it *item) {
	if k.suspended == it {
		k.suspended = nil
	}
	if at := slices.Index(k.items, it); at >= 0 {
		k.items = slices.Delete(k.items, at, at+1)
	}
}

// take removes and returns the items that may be sent now: at most n items, with at most the given bytes in total, but at least
// one item. If the key is blocked, take returns only the message that blocks it. An item that has failed before is returned only
// as the first one: otherwise a sink that accepts only whole batches would fail the items before it, too.
func (k *key) take(n, bytes int) []*item {
	first := 0
	if k.blocked {
		first, n = slices.IndexFunc(k.items, func(it *item) bool { return it.row.ID == k.blockedBy }), 1
	}
	if k.inFlight > 0 || first < 0 {
		return nil
	}
	end := first
	for ; end < len(k.items) && end-first < n; end++ {
		if bytes -= k.items[end].bytes; end > first && (bytes < 0 || k.items[end].suspension != nil) {
			break
		}
	}
	taken := slices.Clone(k.items[first:end])
	k.items = slices.Delete(k.items, first, end)
	return taken
}

// mustWait reports whether it is too early to read the key's dropped rows. There are two reasons. First, memory has an item for
// another message with the same id as a dropped row. Second, the outcome of the message that blocked the key isn't written, so
// the database would report this message again.
func (k *key) mustWait() bool {
	sameID := k.after != nil && k.lane.readers[k.after.slot].known[k.after.row.ID] == k.after
	unwritten := k.fromDatabase && !k.blocked && k.reader().known[k.blockedBy] != nil
	return sameID || unwritten
}

// item is a row in memory, for one sink. It stays in memory until its outcome is written. If the relay claims by lanes, the
// item also stays until all reads that began before the write have ended, since these reads may return the row. The loop owns
// the item, except that a worker owns it while it is in flight.
type item struct {
	// The fields that every step of the loop reads come first, next to the row's id, so that few cache lines are read: cache
	// misses limit the relay's throughput.
	lane  *lane      // nil when claiming by rows
	queue *sinkQueue // nil if the row is settled without being sent
	key   *key       // nil if the message has no key
	joint *joint     // the state that it shares with the row's other items; nil if this item represents the whole row
	slot  int        // when claiming by lanes: the index of its reader
	stage stage
	bytes int // its size in its queue's buffer

	row   storage.Row
	token string // when claiming by rows: the token of its claim

	toWrite result // the outcome to write; set when the stage becomes inSettle or, if the handler's transaction writes it, inFlight

	idGeneration   int  // see lateRows.numberingOf
	unwritable     bool // the database refuses its outcome
	idCollision    bool // another pending message has the same id, and is read once this item has left memory
	maybeCommitted bool // its handler's transaction may have been committed
	expired        bool // it has expired and is being parked or discarded

	lostAnswer string             // the error of the last attempt that got no answer, and so may have delivered the message
	suspension *suspension        // its earlier failures; nil if it has not failed since it was read
	failed     storage.AttemptLog // its failed attempts since it was read, to be written unless it is delivered
}

// suspension records the uncharged failures of a message.
type suspension struct {
	destination string
	turn        int64     // the number of the last job that began before the message's last failure
	period      int       // the breaker's period when the message failed last
	rounds      int       // how many more repeated rejections are needed to park the message
	rejected    bool      // its last failure was a rejection
	repeats     bool      // another message was delivered between its last failure and the beginning of its current send
	tries       int       // how many consecutive failures there were without a delivery in between; it determines the back-off
	since       time.Time // when it first failed; zero if an attempt was charged before: then failsAlone counts from the first failure at the destination since the last delivery there
	soonest     time.Time // the earliest time of its next attempt if another message is delivered
	retryAt     time.Time // the time of its next attempt if no other message is delivered
}

// joint is the state that the items of one row share if several sinks need the row (joiner.go).
type joint struct {
	sinks string    // the sinks that the row names in the table; empty if it names none
	left  []string  // the sinks whose outcomes aren't written
	ready []*item   // items whose outcomes may be written next: each is the first of its key that isn't settled
	since time.Time // when the earliest outcome of the items in `ready` arrived
	waits bool      // joiner.waiting has an entry for the row, with the time in `since`

	writing  []*item // items whose outcomes are being written together, by the settlement of the first of them
	of, rest string  // the sinks that the settlement is for, and the sinks that remain after it; both empty if it is for all remaining sinks
}

// arrival is an item with an outcome, and the time when the outcome arrived.
type arrival struct {
	item *item
	at   time.Time
}

// result is the outcome of an item, as its settlement writes it.
type result struct {
	state   storage.State
	holds   bool // the parked message blocks its key
	charged int  // how many attempts this outcome costs: 0 or 1
	delay   time.Duration
	problem string
	receipt string

	deadLetter    *storage.Copy
	refusedLetter *storage.Copy // a dead letter that the database refused to write with this outcome; the outcome is written without it
}

// stage is the state of an item.
type stage int

const (
	inQueue  stage = iota // in a queue, or waiting behind another message of its key
	inFlight              // a worker has it
	inSettle              // its outcome is to be written
	written               // its outcome is written; a read in progress may still return the row
	dropped               // removed from memory; queues skip it
)

// ref identifies the item's row for one sink.
func (it *item) ref() rowRef { return refOf(&it.row, it.slot) }

// batchRef returns the item's batch reference, or nil. A waiting item that has a reference may have been sent before: either it
// is unknown whether the sink has the item, or the item's outcome isn't written.
func (it *item) batchRef() *batchRef {
	if it.lane == nil || len(it.lane.journaled.batchRefs) == 0 {
		return nil
	}
	return it.lane.journaled.batchRefs[it.ref()]
}

// endBatchRef deletes the item's batch reference, if it has one.
func (it *item) endBatchRef() {
	if it.batchRef() != nil {
		delete(it.lane.journaled.batchRefs, it.ref())
	}
}

// suspected reports whether the item was in flight when a relay died.
func (it *item) suspected() bool {
	if it.lane == nil || len(it.lane.journaled.suspects) == 0 {
		return false
	}
	_, is := it.lane.journaled.suspects[it.ref()]
	return is
}

// unsendable returns why the item must be parked instead of being sent. It returns nil if the item can be sent.
func (it *item) unsendable() *sinks.Outcome {
	switch {
	case it.row.Malformed != "":
		why := sinks.Fail(sinks.Reject, sinks.ReasonInvalid, it.row.Malformed)
		return &why
	case it.suspected():
		crashes := it.lane.journaled.suspects[it.ref()]
		if it.row.Crashes = max(it.row.Crashes, crashes); crashes < maxCrashes {
			return nil
		}
		delete(it.lane.journaled.suspects, it.ref())
		why := sinks.Fail(sinks.Reject, sinks.ReasonCrash, fmt.Sprintf("%d consecutive relays died while they were sending this message and nothing else", crashes))
		return &why
	default:
		return nil
	}
}

// commitUnknown reports whether this outcome is the first that leaves it unknown whether the handler's transaction was committed.
func (it *item) commitUnknown(outcome *sinks.Outcome) bool {
	return it.queue.tx != nil && outcome.Result == sinks.Retry && outcome.Reason == sinks.ReasonUnknown && !it.maybeCommitted
}

// message returns the message for the sink.
func (it *item) message() sinks.Message {
	return sinks.Message{
		Message:   it.row.Message,
		Sequence:  it.row.ID,
		Attempt:   it.row.Attempts + 1,
		CreatedAt: it.row.CreatedAt,
	}
}

// payloads returns the total size of the rows' payloads in bytes.
func payloads(rows []storage.Row) (bytes int) {
	for i := range rows {
		bytes += len(rows[i].Message.Payload)
	}
	return bytes
}

// heldLanes is the set of lanes that the relay holds.
type heldLanes struct {
	lanes   map[int]*lane // by number
	sorted  []*lane       // the lanes ordered by number; nil if this order must be computed again
	rewound bool          // a cursor was moved back, so its lane must be read again from there
	rotate  int           // counts calls of lanesInTurn
}

// sortedLanes returns the lanes ordered by number. The caller must not change the slice.
func (h *heldLanes) sortedLanes() []*lane {
	if h.sorted == nil {
		h.sorted = slices.SortedFunc(maps.Values(h.lanes), func(a, b *lane) int { return a.Lane - b.Lane })
	}
	return h.sorted
}

// lanesInTurn returns the lanes, beginning with a different lane at each call.
func (h *heldLanes) lanesInTurn() []*lane {
	lanes := h.sortedLanes()
	h.rotate++
	at := h.rotate * 7 % max(1, len(lanes))
	return append(lanes[at:len(lanes):len(lanes)], lanes[:at]...)
}

// anyBehind reports whether the queue is behind in some lane.
func (h *heldLanes) anyBehind(q *sinkQueue) bool {
	return slices.ContainsFunc(h.sortedLanes(), func(l *lane) bool { return l.readers.isBehind(q.index) })
}

// lagging returns the positions that the queue must read separately: in each lane where it is behind, from its cursor up to the
// head (the highest cursor of any sink).
func (h *heldLanes) lagging(q *sinkQueue) (positions []storage.Position) {
	for _, l := range h.lanesInTurn() {
		if l.readers.isBehind(q.index) && !l.draining {
			positions = append(positions, storage.Position{Lane: l.Lane, After: l.readers[q.index].cursor, Until: l.readers.head()})
		}
	}
	return positions
}

// laneOf returns the lane with this number, for the result of a read; nil if the lane has been lost since the read began. It returns
// nil even if the relay has leased the lane again, since another relay may have delivered the rows in between.
func (h *heldLanes) laneOf(read int64, number int) *lane {
	if l := h.lanes[number]; l != nil && read > l.seq {
		return l
	}
	return nil
}

// heads returns the heads (the highest cursors) of the lanes that a read covers; for a lost lane, the largest possible id.
func (h *heldLanes) heads(read int64, positions []storage.Position) (heads []int64) {
	for _, p := range positions {
		head := int64(math.MaxInt64)
		if l := h.laneOf(read, p.Lane); l != nil {
			head = l.readers.head()
		}
		heads = append(heads, head)
	}
	return heads
}

// moved reports whether the head of one of these lanes is higher now than in `heads`, an earlier result of the method heads.
func (h *heldLanes) moved(read int64, positions []storage.Position, heads []int64) bool {
	for i, p := range positions {
		if l := h.laneOf(read, p.Lane); l != nil && l.readers.head() > heads[i] {
			return true
		}
	}
	return false
}

// furthest returns the highest id that was read in any lane.
func (h *heldLanes) furthest() (id int64) {
	for _, l := range h.lanes {
		id = max(id, l.readers.head())
	}
	return id
}

// forget removes an item from memory. If another message with the same id waits, the lane is read again from that id on.
func (h *heldLanes) forget(it *item) {
	l := it.lane
	known := l.readers[it.slot].known
	if known[it.row.ID] != it {
		return
	}
	delete(known, it.row.ID)
	if it.idCollision {
		l.readers[it.slot].rewind(it.row.ID - 1)
		h.rewound = true
	}
}
