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

// A lane, its keys and its items: what the relay remembers of rows that it has read. Here
// is no clock, no channel and no database; the loop owns all of it.
//
// Its places on the axis of ids are drawn in reader.go.

// lane is a lane that the relay holds. When the lease is lost the lane is forgotten as a
// whole, and a new lease of the same lane begins with nothing.
type lane struct {
	storage.Lease
	epoch string // of the server that it was leased from

	readers readers // by queue
	floor   int64   // its mark when it was leased: nothing can appear at or below it
	passed  *keySet // keys with a row that was passed over while topics are paused: their later rows are, too; nil: none

	keysUnknown bool // not all blocked keys are in memory: the database is asked about others
	alarmed     bool // a row of it without a route was told of

	unswept  bool  // nobody has looked yet whether its mark is true: it isn't read before
	placed   bool  // a page has told that its ids go on from its cursor, or it was read from its beginning
	void     bool  // another server answers: nothing in memory of it counts
	draining bool  // being given up: the relay has more than its share
	lost     bool  // its lease is another's: outcomes of its rows are not written
	seq      int64 // reads that began before the lease, or before ids began anew, don't count for it

	journaled journaled // what is written down of its rows
	crashes   int       // holders in a row that died with it
	since     time.Time // when it was leased
}

// newLane is a lane as its last holder left it: it goes on from the marks. Those of sinks hold
// only for the same routes; with others it begins at the lowest.
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

// marks says from where a successor would have to read: for sinks that are behind one
// by one, and for the others together. Nothing can appear any more at or below safeID, which the last merged page has told.
// Unless lateAfter is none, rows may have appeared above it which aren't merged yet.
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

// items are the rows in memory, once for each sink that they are there for.
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

// item is a row in memory, as it is there for a queue; nil if it isn't.
func (l *lane) item(queue int, id int64) *item { return l.readers[queue].known[id] }

// size is how many items there are.
func (l *lane) size() (n int) {
	for i := range l.readers {
		n += len(l.readers[i].known)
	}
	return n
}

// add takes an item into memory.
func (l *lane) add(it *item) {
	l.readers[it.slot].known[it.row.ID] = it
}

// key returns the key's state, made where there was none.
func (l *lane) key(ref keyRef) *key {
	keys := l.readers[ref.queue].keys
	k := keys[ref.key]
	if k == nil {
		k = &key{ref: ref, lane: l}
		keys[ref.key] = k
	}
	return k
}

// forget drops the key's state once there is nothing to remember.
func (l *lane) forget(k *key) {
	if k != nil && l.readers[k.ref.queue].keys[k.ref.key] == k && k.inFlight == 0 && len(k.items) == 0 && !k.blocked && !k.dropped {
		delete(l.readers[k.ref.queue].keys, k.ref.key)
	}
}

// key is the order of one key within one sink. It exists while the relay has
// something to remember of it.
//
// Of a key, one batch at most is under way; the rest waits here, lowest id
// first, while the key stands once in its queue. While a retry or a
// park of one of its messages is not over, the key is blocked: its followers are
// dropped from memory, and only the place to read them from again is kept, so
// that any number of them costs nothing.
type key struct {
	ref  keyRef
	lane *lane

	items     []*item // that wait, by id
	inFlight  int     // items in the batch that is under way, and those that have expired and aren't written
	queued    bool    // stands in the queue
	suspended *item   // an item that is suspended, or that its sink may have (dedup.go): nothing of the key is sent until this item is tried again, or that is known

	blocked      bool  // no item but blockedBy may be sent
	blockedBy    int64 // while blocked, the id of the message that blocks; else of the last one that did
	fromDatabase bool  // the database said so. Others of the key may wait, too: it is asked again before the key goes on

	dropped    bool  // rows of the key above resumeFrom were dropped: they are to be read again
	resumeFrom int64 // the place to read from
	after      *item // another message, with the id of a row that was dropped: while it is in memory that row isn't read
}

// keyRef names a key: the same key in two sinks is two keys.
type keyRef struct {
	queue int
	key   string
}

// reader is the one that the key's rows are met by.
func (k *key) reader() *reader { return &k.lane.readers[k.ref.queue] }

// add puts an item among those that wait.
func (k *key) add(it *item) {
	at := len(k.items)
	for at > 0 && k.items[at-1].row.ID > it.row.ID {
		at--
	}
	k.items = slices.Insert(k.items, at, it)
}

// addAll puts items among those that wait. The key may be nil if there are none.
func (k *key) addAll(items []*item) {
	for _, it := range items {
		k.add(it)
	}
}

// remove takes an item out of those that wait.
func (k *key) remove(it *item) {
	if k.suspended == it {
		k.suspended = nil
	}
	if at := slices.Index(k.items, it); at >= 0 {
		k.items = slices.Delete(k.items, at, at+1)
	}
}

// take takes what may be sent now: up to n items, and no more than make up so many bytes, but
// one at least. Of a key that is blocked that is the message it waits for. One that failed before stands first or in no batch:
// a sink that takes batches as a whole would fail on the messages before it as well.
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

// mustWait says that it is too early to read the rows that were dropped: another message with the id of one is still in
// memory; or the outcome of the message that blocked the key isn't written, and the database would name it once more.
func (k *key) mustWait() bool {
	sameID := k.after != nil && k.lane.readers[k.after.slot].known[k.after.row.ID] == k.after
	unwritten := k.fromDatabase && !k.blocked && k.reader().known[k.blockedBy] != nil
	return sameID || unwritten
}

// item is a row in the relay's memory. By rows it stays there until its outcome is written; by lanes also until the
// reads that began before that have ended, as they could bring the row back. All of it belongs to the engine's loop;
// a batch in flight is lent to a worker.
type item struct {
	row   storage.Row
	lane  *lane      // nil by rows
	token string     // by rows: what it was claimed with
	queue *sinkQueue // nil for a row that is only put away
	slot  int        // by lanes: the queue under which its lane knows it
	joint *joint     // nil unless several sinks needed the row when it came into memory
	key   *key       // nil without order
	stage stage
	bytes int // what it counts for in its queue's buffer

	toWrite result // what is written back, from inSettle on

	idGeneration   int  // of ids (see lateRows): within it no other pending row has its id
	unwritable     bool // the database refuses its outcome
	idCollision    bool // a pending row has the same id and another message: it is looked for once this one has left
	maybeCommitted bool // its handler's transaction may have been committed
	expired        bool // it is too old, and being parked or discarded

	lostAnswer string      // the last answer that was lost, or came too late: it may have been delivered then
	suspension *suspension // what is known of earlier failures; nil: there were none since it came into memory
}

// suspension is what is remembered of a message that failed and wasn't charged.
type suspension struct {
	destination string
	turn        int64     // sends up to this one had begun when it failed last
	period      int       // of the breaker, then
	rounds      int       // repetitions of a rejection that are left until it is parked
	rejected    bool      // its last failure was a rejection
	repeats     bool      // something was delivered between its last failure and the beginning of the send that it is in now
	tries       int       // failures in a row with nothing delivered between, for the back-off
	since       time.Time // when it first failed; zero if it was charged before: then since its destination fails
	soonest     time.Time // not before this time it is sent again after another delivery,
	retryAt     time.Time // and at this time without one
}

// joint is what the items of a row that several sinks need have in common (joiner.go).
type joint struct {
	sinks string    // that the row names in the table; empty if it names none
	left  []string  // the sinks whose outcomes aren't written
	ready []*item   // whose outcomes may be written next: each is the first of its key that wasn't returned
	since time.Time // when the earliest of these outcomes came
	waits bool      // it stands in joiner.waiting with this time

	writing  []*item // whose outcomes are being written, with one settlement: that of the first of them
	of, rest string  // the sinks that this settlement is for, and those that are left after it; both empty: it is for all that were left
}

// result is what becomes of an item's row: what its settlement says beside what the row says.
type result struct {
	state   storage.State
	holds   bool
	charged int // attempts that this has cost: 1 or none
	delay   time.Duration
	problem string
	receipt string

	deadLetter    *storage.Copy
	refusedLetter *storage.Copy // the dead letter that the database has refused with this outcome, which is written without it
}

// stage is how far an item has come.
type stage int

const (
	inQueue  stage = iota // in a queue, or waiting behind its key
	inFlight              // lent to a worker
	inSettle              // its outcome is being written back
	written               // it is; a read that is under way may bring the row back
	dropped               // out of memory; queues pass it over
)

// ref names the item's row, as it goes to its sink.
func (it *item) ref() rowRef { return refOf(&it.row, it.slot) }

// batchRef returns the item's reference, or nil. An item with a reference was sent before: whether its sink has it is
// unknown, or its outcome isn't written.
func (it *item) batchRef() *batchRef {
	if it.lane == nil || len(it.lane.journaled.batchRefs) == 0 {
		return nil
	}
	return it.lane.journaled.batchRefs[it.ref()]
}

// endBatchRef ends the item's reference, if it has one.
func (it *item) endBatchRef() {
	if it.batchRef() != nil {
		delete(it.lane.journaled.batchRefs, it.ref())
	}
}

// suspected says that the item was being sent when a relay died.
func (it *item) suspected() bool {
	if it.lane == nil || len(it.lane.journaled.suspects) == 0 {
		return false
	}
	_, is := it.lane.journaled.suspects[it.ref()]
	return is
}

// unsendable returns why the item must be parked rather than sent; nil if it can be sent.
func (it *item) unsendable() *sinks.Outcome {
	var why sinks.Outcome
	switch {
	case it.row.Malformed != "":
		why = sinks.Fail(sinks.Reject, sinks.ReasonInvalid, it.row.Malformed)
	case it.suspected():
		crashes := it.lane.journaled.suspects[it.ref()]
		if it.row.Crashes = max(it.row.Crashes, crashes); crashes < maxCrashes {
			return nil
		}
		delete(it.lane.journaled.suspects, it.ref())
		why = sinks.Fail(sinks.Reject, sinks.ReasonCrash, fmt.Sprintf("%d relays in a row died while they were sending this message and nothing else", crashes))
	default:
		return nil
	}
	return &why
}

// commitUnknown says that a handler's transaction may have been committed, for the first time.
func (it *item) commitUnknown(outcome *sinks.Outcome) bool {
	return it.queue.tx != nil && outcome.Result == sinks.Retry && outcome.Reason == sinks.ReasonUnknown && !it.maybeCommitted
}

// message is what the sink gets.
func (i *item) message() sinks.Message {
	return sinks.Message{
		Message:   i.row.Message,
		Sequence:  i.row.ID,
		Attempt:   i.row.Attempts + 1,
		CreatedAt: i.row.CreatedAt,
	}
}

// payloads is how many bytes of payload some rows have.
func payloads(rows []storage.Row) (bytes int) {
	for i := range rows {
		bytes += len(rows[i].Message.Payload)
	}
	return bytes
}

// heldLanes are the lanes that a relay holds, by their numbers.
type heldLanes struct {
	lanes   map[int]*lane
	sorted  []*lane // the same by their numbers; nil since one has come or gone
	rewound bool    // the head of a lane was lowered: it is read again from there
	rotate  int     // how often lanesInTurn was called: the first lane follows from it
}

// sortedLanes returns the lanes by their numbers. It is the same slice until one
// comes or goes: nobody changes it.
func (h *heldLanes) sortedLanes() []*lane {
	if h.sorted == nil {
		h.sorted = slices.SortedFunc(maps.Values(h.lanes), func(a, b *lane) int { return a.Lane - b.Lane })
	}
	return h.sorted
}

// lanesInTurn returns the lanes, each time beginning with another.
func (h *heldLanes) lanesInTurn() []*lane {
	lanes := h.sortedLanes()
	h.rotate++
	at := h.rotate * 7 % max(1, len(lanes))
	return append(lanes[at:len(lanes):len(lanes)], lanes[:at]...)
}

// anyBehind says that the queue is behind in some lane.
func (h *heldLanes) anyBehind(q *sinkQueue) bool {
	return slices.ContainsFunc(h.sortedLanes(), func(l *lane) bool { return l.readers.isBehind(q.index) })
}

// lagging returns the positions at which the queue must read for itself: in each lane from its cursor up to the head.
func (h *heldLanes) lagging(q *sinkQueue) (positions []storage.Position) {
	for _, l := range h.lanesInTurn() {
		if l.readers.isBehind(q.index) && !l.draining {
			positions = append(positions, storage.Position{Lane: l.Lane, After: l.readers[q.index].cursor, Until: l.readers.head()})
		}
	}
	return positions
}

// laneOf returns the lane that a row belongs to which a read has brought; nil if it was lost
// meanwhile, also where it was leased again: what was read before may have been
// delivered by another since.
func (h *heldLanes) laneOf(read int64, number int) *lane {
	if l := h.lanes[number]; l != nil && read > l.seq {
		return l
	}
	return nil
}

// heads are where what is new is read from in the lanes of a read; moved says whether any has moved on since.
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

func (h *heldLanes) moved(read int64, positions []storage.Position, heads []int64) bool {
	for i, p := range positions {
		if l := h.laneOf(read, p.Lane); l != nil && l.readers.head() > heads[i] {
			return true
		}
	}
	return false
}

// furthest is the highest id that was read.
func (h *heldLanes) furthest() (id int64) {
	for _, l := range h.lanes {
		id = max(id, l.readers.head())
	}
	return id
}

// forget takes an item out of memory for good.
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
