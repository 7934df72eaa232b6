package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// outlet is one sink in use: its queue, its workers and its circuit. Outlets
// know nothing of each other, so that the trouble of one is no other's.
type outlet struct {
	name    string
	index   int
	options SinkOptions
	order   sinks.Order
	tx      sinks.TxSink // set if its messages are handled within the mark's transaction
	exact   sinks.Exact  // set if it recognises what comes again
	doubts  []*exactBatch
	picky   bool // refused a part of an exact batch: one at a time

	queue    queue
	buffered int // items in memory, with those that are not settled
	bytes    int
	settling int // items whose outcome is being written back
	again    int // of those in memory, held rows that came back
	freed    int // keys that don't wait any more, and have rows to catch up with

	jobs    chan job
	busy    int // jobs under way
	flights map[*flight]struct{}
	turn    int64 // jobs that were begun
	circuit circuit

	troubles map[string]*trouble // by destination; "" is the sink's own
	refused  []*item             // set aside until they are asked again, in the order of their turns
	asks     int                 // how often they were, since something was delivered
	askAt    time.Time
	refunds  map[int64]int // attempts that were charged for a trouble, by the row's id

	pauseUntil time.Time
}

// circuit says whether a sink may be given messages.
type circuit struct {
	state    circuitState
	failures int // openings in vain, or sends that found it unavailable, in a row
	reopenAt time.Time
	told     bool   // the observer knows that it is down
	detail   string // what the log said last of why
}

type circuitState int

const (
	circuitClosed  circuitState = iota // not open yet, or lost; opened once reopenAt has come
	circuitOpening                     // Open is under way
	circuitUp                          // takes messages
)

func newOutlet(name string, index int, options SinkOptions) *outlet {
	o := &outlet{name: name, index: index, options: options, jobs: make(chan job, options.Workers)}
	o.troubles, o.refunds, o.flights = map[string]*trouble{}, map[int64]int{}, map[*flight]struct{}{}
	if ordered, ok := options.Sink.(sinks.Ordered); ok {
		o.order = ordered.Order()
	}
	o.tx, _ = options.Sink.(sinks.TxSink)
	o.exact, _ = options.Sink.(sinks.Exact)
	return o
}

// unroutedName is what the marks call the messages that no route takes.
const unroutedName = "(unrouted)"

// newUnrouted returns the outlet of messages without a route: it never has room.
func newUnrouted(index int) *outlet {
	return &outlet{name: unroutedName, index: index}
}

// room is how many more messages the outlet can take.
func (o *outlet) room() int {
	if o.bytes >= o.options.BufferBytes || o.allStuck() {
		return 0
	}
	return o.options.Buffer - o.buffered
}

// roomAgain is how many more of them may be held rows that are due: at most half
// of the buffer, so that thousands of retries a second don't take the place of what
// is new; and none while many keys that they have set free are to be caught up with.
func (o *outlet) roomAgain() int {
	if o.freed >= maxFreedKeys {
		return 0
	}
	return min(o.room(), max(1, o.options.Buffer/2)-o.again)
}

// maxFreedKeys bounds the keys of a sink that are to be caught up with.
const maxFreedKeys = 10_000

// roomy says that reading for the outlet is worth while: a read for each place
// that becomes free would be many small ones, and each has its price. As long as
// settlements are about to free more, it waits for half of the buffer.
func (o *outlet) roomy() bool { return o.worthwhile(o.room(), o.options.Buffer) }

func (o *outlet) worthwhile(room, buffer int) bool {
	if o.settling > 0 {
		return room > 0 && room >= min(buffer/2, readLimit)
	}
	return room > 0 && (room >= buffer/4 || room >= o.options.Batch)
}

// owes says that so much was sent that is not marked yet that no more may be: all
// of it would come again if the relay died. With what is under way it is half of
// the buffer, or three batches for each worker; by rows the buffer, which is
// smaller, bounds it.
func (o *outlet) owes(claim Claim) bool {
	all := o.options.Batch * o.options.Workers
	return claim == ByLanes && o.settling >= max(o.options.Buffer/2, 3*all)-all
}

// perKey is how many messages of a key one batch may hold.
func (o *outlet) perKey() int {
	if o.order == sinks.OrderNone {
		return 1
	}
	return o.options.Batch
}

// queue holds what is to be sent: items without a key, and keys that have items.
// What came back goes first; then what is tried again takes turns with all else,
// so that neither waits for the other: first come first served.
type queue struct {
	back  []queued
	line       // what wasn't tried before
	again line // what was
	turn  bool // again's
}

// line is served in its order.
type line struct {
	items []queued
	head  int
}

// queued is one place in a queue.
type queued struct {
	item *item // without a key
	key  *key
}

func (q *queue) push(entry queued, again bool) {
	if again {
		q.again.items = append(q.again.items, entry)
		return
	}
	q.items = append(q.items, entry)
}

// giveBack puts entries, in their order, before all others.
func (q *queue) giveBack(entries ...queued) {
	q.back = append(entries, q.back...)
}

func (q *queue) empty() bool { return len(q.back) == 0 && q.line.empty() && q.again.empty() }

func (l *line) empty() bool { return l.head == len(l.items) }

// pop takes the first entry; ok is false without one.
func (q *queue) pop() (entry queued, ok bool) {
	if q.empty() {
		return queued{}, false
	}
	if len(q.back) > 0 {
		entry, q.back = q.back[0], q.back[1:]
		return entry, true
	}
	if q.turn = !q.turn; q.again.empty() || !q.turn && !q.line.empty() {
		return q.line.pop(), true
	}
	return q.again.pop(), true
}

func (l *line) pop() (entry queued) {
	entry, l.items[l.head] = l.items[l.head], queued{}
	l.head++
	if l.head == len(l.items) {
		l.items, l.head = l.items[:0], 0
	} else if l.head > 1024 && l.head > len(l.items)/2 {
		l.items = append(l.items[:0], l.items[l.head:]...)
		l.head = 0
	}
	return entry
}
