package relay

import (
	"context"
	"fmt"
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
	ordered bool         // batches are sorted as they were written: by lanes
	mayOwe  int          // messages that are sent and not marked; 0 for no bound

	queue    queue
	buffered int // items in memory, with those that are not settled
	bytes    int
	settling int // items whose outcome is being written back
	again    int // of those in memory, held rows that came back
	freed    int // keys that don't wait any more, and have rows to catch up with

	jobs    chan *flight
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

func newOutlet(name string, index int, options SinkOptions, claim Claim) *outlet {
	o := &outlet{name: name, index: index, options: options, jobs: make(chan *flight, options.Workers)}
	o.troubles, o.refunds, o.flights = map[string]*trouble{}, map[int64]int{}, map[*flight]struct{}{}
	if ordered, ok := options.Sink.(sinks.Ordered); ok {
		o.order = ordered.Order()
	}
	o.tx, _ = options.Sink.(sinks.TxSink)
	if o.ordered = claim == ByLanes; o.ordered {
		all := options.Batch * options.Workers
		o.mayOwe = max(options.Buffer/2, 3*all) - all
	}
	return o
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
func (o *outlet) owes() bool { return o.mayOwe > 0 && o.settling >= o.mayOwe }

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

// admit counts an item that comes into memory, and puts it where it waits for its turn.
func (o *outlet) admit(it *item) {
	o.buffered++
	o.bytes += it.size()
	if it.row.Held {
		o.again++
	}
	if it.key == nil {
		o.queue.push(queued{item: it}, it.row.Retrying)
		return
	}
	it.key.add(it)
	o.line(it.key)
}

// line puts a key into the queue if something of it may be sent.
func (o *outlet) line(k *key) {
	if k.queued || k.aside != nil || k.flying > 0 || len(k.items) == 0 {
		return
	}
	k.queued = true
	o.queue.push(queued{key: k}, k.held)
}

// release ends the counting of an item that leaves memory.
func (o *outlet) release(it *item) {
	o.buffered--
	o.bytes -= it.size()
	if it.row.Held {
		o.again--
	}
}

// deservesMore says that a key with many messages begins the next batch rather
// than get the little that is left of this one: of a key one batch is under way at
// a time, and a busy key goes no faster than its batches are large.
func (o *outlet) deservesMore(entry queued, left int) bool {
	return entry.key != nil && left < o.options.Batch/2 && left < min(len(entry.key.items), o.perKey())
}

// unroutedName is what the marks call the messages that no route takes.
const unroutedName = "(unrouted)"

// newUnrouted returns the outlet of messages without a route: it never has room.
func newUnrouted(index int) *outlet {
	return &outlet{name: unroutedName, index: index}
}

// opening is the job that opens a sink.
type opening struct{ err error }

func (j *opening) items() []*item { return nil }

// do opens the sink; one that panics is one that is not there.
func (j *opening) do(ctx context.Context, _ *engine, f *flight) {
	defer func() {
		if p := recover(); p != nil {
			j.err = fmt.Errorf("open the sink: panic: %v", p)
		}
	}()
	j.err = f.outlet.options.Sink.Open(ctx)
}

// done lets messages go to a sink that was opened, or waits before the next try.
func (j *opening) done(e *engine, f *flight) {
	o := f.outlet
	o.circuit.state = circuitUp // where it failed: as after a send that found it unavailable
	if j.err != nil {
		e.trip(o, sinks.Unopened(j.err))
		return
	}
	if o.circuit.failures == 0 && !o.circuit.told {
		e.options.Observer.SinkUp(o.name)
	}
}

// judgeCircuit closes a circuit that trouble had opened, or opens it. A batch
// whose context had ended says nothing of its sink; a message that was postponed
// says that the sink works, though not this message's own destination.
func (e *engine) judgeCircuit(o *outlet, outcomes []sinks.Outcome, ended bool) {
	var trouble, failed *sinks.Outcome
	answered := false
	for i, outcome := range outcomes {
		switch {
		case outcome.Result == sinks.Unavailable:
			if trouble == nil || outcome.RetryAfter > trouble.RetryAfter {
				trouble = &outcomes[i]
			}
		case outcome.Result != sinks.Unsent || postponed(outcome):
			answered = true
		}
		if outcome.Destination == "" && (outcome.Result == sinks.Retry || outcome.Result == sinks.Reject) {
			failed = &outcomes[i]
		}
	}
	switch {
	case trouble != nil:
		e.trip(o, *trouble)
	case o.inTrouble() && failed != nil:
		e.trip(o, o.refusesAll(*failed))
	case o.inTrouble() && answered: // postponed: the next one tries it
	case answered:
		e.mend(o)
	case !ended:
		e.trip(o, sinks.Fail(sinks.Unavailable, sinks.ReasonCancelled, "the sink sent nothing of a whole batch"))
	}
}

// trip stops sending until the sink was opened again.
func (e *engine) trip(o *outlet, trouble sinks.Outcome) {
	now := time.Now()
	if o.circuit.state == circuitUp {
		o.circuit.failures++
	}
	o.circuit.state = circuitClosed
	wait := max(o.options.Reopen.draw(o.circuit.failures), trouble.RetryAfter)
	o.circuit.reopenAt = laterOf(o.circuit.reopenAt, now.Add(wait))
	detail := shorten(trouble.Detail, 1000)
	if o.circuit.told {
		e.tellStill(o, trouble.Reason, detail)
		return
	}
	o.circuit.told, o.circuit.detail = true, detail
	e.options.Observer.SinkDown(o.name, trouble.Reason, detail)
	e.options.Logger.Warn("relay: the sink is unavailable, its messages wait", "relay", e.options.Name,
		"sink", o.name, "reason", string(trouble.Reason), "detail", detail)
}

// tellStill tells of trouble that has become another, or has come further, as a
// search through a long log does.
func (e *engine) tellStill(o *outlet, reason sinks.Reason, detail string) {
	if detail == o.circuit.detail {
		return
	}
	if again, _ := e.quieter.again("still down " + o.name); !again {
		return
	}
	o.circuit.detail = detail
	e.options.Logger.Warn("relay: the sink is still unavailable", "relay", e.options.Name, "sink", o.name, "reason", string(reason), "detail", detail)
}

// mend notes that the sink answers. Where other batches found it unavailable
// since, it has to be opened all the same.
func (e *engine) mend(o *outlet) {
	if o.circuit.state != circuitUp {
		return
	}
	o.circuit.failures = 0
	if o.circuit.told {
		o.circuit.told = false
		e.options.Observer.SinkUp(o.name)
		e.options.Logger.Info("relay: the sink is available again", "relay", e.options.Name, "sink", o.name)
	}
}
