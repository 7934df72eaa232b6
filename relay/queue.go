package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// A sink in use: what waits for it, how much of it is in memory, whether it is there (the
// circuit: closed while it takes messages, open while it doesn't), and the jobs under way.
// Queues know nothing of each other, so that the trouble of one is no other's.

// sinkQueue is one sink in use.
type sinkQueue struct {
	*base
	name    string
	index   int
	options SinkOptions
	order   sinks.Order
	tx      sinks.TxSink // set if its handler runs in the transaction that settles the message
	ordered bool         // batches are sorted as they were written: by lanes

	// mayOwe bounds the messages that were sent and aren't settled: all of them would come
	// again if the relay died. Together with what is in flight it is half of the buffer, or
	// three batches for each worker if that is more. By rows it is 0: the buffer, which is
	// smaller, is bound enough.
	mayOwe int

	waiting  waitingLine
	buffered int // items in memory, with those that are not settled
	bytes    int
	settling int // items whose outcome is being written back
	deferred int // of those in memory, deferred rows whose time has come
	freed    int // keys that don't wait any more, and have rows to catch up with

	jobs     chan *flight
	longest  time.Duration        // that a call of the sink may take
	flights  map[*flight]struct{} // the jobs under way
	turn     int64                // jobs that were begun
	allStuck bool                 // no worker is left
	circuit  circuit

	troubles map[string]*trouble // by destination; "" is the sink's own
	refused  []*item             // set aside until they are asked again, in the order of their turns
	asks     int                 // rounds of asking, since something was delivered
	askAt    time.Time
	refunds  map[int64]int // attempts that were charged for a trouble, by the row's id

	pauseUntil time.Time
	paused     bool // by an operator, or its fuse
	fuse       fuse

	relays   int       // that have the sink and take part, with this one
	capacity int       // how many messages may be in memory
	rate     int       // messages a second of all relays together; 0: no limit
	share    float64   // of these, this relay's part
	credit   float64   // messages that may be sent of it
	credited time.Time // when that was so
	limitAt  time.Time // when the next one may be sent
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
	circuitOpen     circuitState = iota // nothing is sent; Open is called once reopenAt has come
	circuitHalfOpen                     // Open is under way
	circuitClosed                       // takes messages
)

func newSinkQueue(b *base, name string, index int) *sinkQueue {
	options := b.options.Sinks[name]
	q := &sinkQueue{base: b, name: name, index: index, options: options, capacity: options.Buffer, longest: options.Timeout, jobs: make(chan *flight, options.Workers)}
	q.troubles, q.refunds, q.flights = map[string]*trouble{}, map[int64]int{}, map[*flight]struct{}{}
	if ordered, ok := options.Sink.(sinks.Ordered); ok {
		q.order = ordered.Order()
	}
	q.tx, _ = options.Sink.(sinks.TxSink)
	if _, each := options.Sink.(sinks.OneByOne); each || q.tx != nil { // whose time-out is each message's
		q.longest += min(options.Timeout, beginFor)
	}
	if q.ordered = b.options.Claim == storage.ByLanes; q.ordered {
		all := options.Batch * options.Workers
		q.mayOwe = max(options.Buffer/2, 3*all) - all
	}
	return q
}

// room is how many more messages the queue can take.
func (q *sinkQueue) room() int {
	if q.bytes >= q.options.BufferBytes || q.allStuck {
		return 0
	}
	return q.capacity - q.buffered
}

// roomForDeferred is how many more of them may be deferred rows that are due: at most half
// of the buffer, so that thousands of retries a second don't take the place of what
// is new; and none while many keys that they have set free are to be caught up with.
func (q *sinkQueue) roomForDeferred() int {
	if q.freed >= maxFreedKeys {
		return 0
	}
	return min(q.room(), max(1, q.options.Buffer/2)-q.deferred)
}

// maxFreedKeys bounds the keys of a sink that are to be caught up with.
const maxFreedKeys = 10_000

// roomy says that reading for the queue is worth while: a read for each place
// that becomes free would be many small ones, and each has its price. As long as
// settlements are about to free more, it waits for half of the buffer.
func (q *sinkQueue) roomy() bool { return q.worthwhile(q.room(), q.capacity) }

// worthwhile says the same of a part of the buffer, in which there is so much room.
func (q *sinkQueue) worthwhile(room, buffer int) bool {
	if q.settling > 0 {
		return room > 0 && room >= min(buffer/2, readLimit)
	}
	return room > 0 && (room >= buffer/4 || room >= q.options.Batch)
}

// up says that the sink may be given messages.
func (q *sinkQueue) up() bool { return q.circuit.state == circuitClosed && !q.paused }

// anyUp says that some sink takes messages.
func (e *engine) anyUp() bool {
	return slices.ContainsFunc(e.queues, (*sinkQueue).up)
}

// waitingLine holds what is to be sent: items without a key, and keys that have items.
// What came back goes first; then what is tried again takes turns with all else,
// so that neither waits for the other: first come first served. takeBatch (send.go) takes
// from it.
type waitingLine struct {
	back        []queued
	untried     []queued // what wasn't tried before
	retries     []queued // what was
	retriesNext bool     // it is the turn of retries
}

// queued is one place in a queue.
type queued struct {
	item *item // without a key
	key  *key
}

// putFirst puts entries, in their order, before all others.
func (w *waitingLine) putFirst(entries ...queued) {
	w.back = append(entries, w.back...)
}

func (w *waitingLine) empty() bool { return len(w.back)+len(w.untried)+len(w.retries) == 0 }

// add counts an item that comes into memory, and puts it where it waits for its turn.
func (q *sinkQueue) add(it *item) {
	m := &it.row.Message
	it.bytes = len(m.Payload) + len(m.Topic) + len(m.Key)
	for name, value := range m.Headers {
		it.bytes += len(name) + len(value)
	}
	q.buffered++
	q.bytes += it.bytes
	if it.row.Deferred {
		q.deferred++
	}
	switch {
	case it.key != nil:
		it.key.add(it)
		q.enqueue(it.key)
	case it.row.Retrying:
		q.waiting.retries = append(q.waiting.retries, queued{item: it})
	default:
		q.waiting.untried = append(q.waiting.untried, queued{item: it})
	}
}

// enqueue puts a key into the queue if something of it may be sent.
func (q *sinkQueue) enqueue(k *key) {
	if k.queued || k.aside != nil || k.inFlight > 0 || len(k.items) == 0 {
		return
	}
	if k.queued = true; k.blocked {
		q.waiting.retries = append(q.waiting.retries, queued{key: k})
	} else {
		q.waiting.untried = append(q.waiting.untried, queued{key: k})
	}
}

// release ends the counting of an item that leaves memory.
func (q *sinkQueue) release(it *item) {
	q.buffered--
	q.bytes -= it.bytes
	if it.row.Deferred {
		q.deferred--
	}
}

// unroutedName is what the marks call the messages that no route takes. Their queue has
// no sink, and never room.
const unroutedName = "(unrouted)"

// opening is the job that opens a sink.
type opening struct{ err error }

// do opens the sink; one that panics is one that is not there.
func (j *opening) do(ctx context.Context, _ *engine, f *flight) {
	defer func() {
		if p := recover(); p != nil {
			j.err = fmt.Errorf("open the sink: panic: %v", p)
		}
	}()
	j.err = f.queue.options.Sink.Open(ctx)
}

// done lets messages go to a sink that was opened, or waits before the next try.
func (j *opening) done(e *engine, f *flight) {
	q := f.queue
	q.circuit.state = circuitClosed // closed first: trip counts a failed Open as it counts a failed send
	if j.err != nil {
		q.trip(sinks.Unopened(j.err))
		return
	}
	if q.circuit.failures == 0 && !q.circuit.told {
		e.options.Observer.SinkUp(q.name)
	}
}

// trip stops sending until the sink was opened again.
func (q *sinkQueue) trip(trouble sinks.Outcome) {
	now := time.Now()
	if q.circuit.state == circuitClosed {
		q.circuit.failures++
	}
	q.circuit.state = circuitOpen
	wait := max(q.options.Reopen.draw(q.circuit.failures), trouble.RetryAfter)
	q.circuit.reopenAt = laterOf(q.circuit.reopenAt, now.Add(wait))
	detail := shorten(trouble.Detail, 1000)
	if q.circuit.told { // tell if it has become another trouble, or has come further, as a search through a long log does
		if detail != q.circuit.detail {
			if allowed, _ := q.logLimiter.allow("still down " + q.name); allowed {
				q.circuit.detail = detail
				q.base.options.Logger.Warn("relay: the sink is still unavailable", "relay", q.base.options.Name, "sink", q.name, "reason", string(trouble.Reason), "detail", detail)
			}
		}
		return
	}
	q.circuit.told, q.circuit.detail = true, detail
	q.base.options.Observer.SinkDown(q.name, trouble.Reason, detail)
	q.base.options.Logger.Warn("relay: the sink is unavailable, its messages wait", "relay", q.base.options.Name,
		"sink", q.name, "reason", string(trouble.Reason), "detail", detail)
}

// postponed says that the message's own destination can't take it now.
func postponed(outcome sinks.Outcome) bool {
	return outcome.Result == sinks.Unsent && outcome.RetryAfter > 0
}

// Limits: a sink that all relays together may send so many messages a second gets its part from
// each of those that have it. A relay that has come is counted by the others within two seconds.

// limitBurst is what may be sent at once after a rest: a tenth of a second's messages.
const limitBurst = 100 * time.Millisecond

// sendersTo returns how many of the relays have the sink. Consumers have no sinks.
func sendersTo(sink string, relays []storage.Member) (n int) {
	for i := range relays {
		if slices.ContainsFunc(relays[i].Setup.Sinks, func(text string) bool {
			return text == "…" || strings.HasPrefix(text, sink+": ") // "…": there are more than a sign of life has room for
		}) {
			n++
		}
	}
	return n
}

// limit gives the sink its part of a rate, which the relays that have it share; a rate of 0 is no limit. By rows
// no more is in memory than may be sent in two seconds: what one relay has claimed no other sends.
func (q *sinkQueue) limit(rate int) {
	q.rate, q.share, q.limitAt = rate, float64(rate)/float64(max(1, q.relays)), time.Time{}
	if q.capacity = q.options.Buffer; rate > 0 && !q.ordered {
		q.capacity = min(q.capacity, max(1, int(2*q.share)))
	}
}

// allowed is how many messages a sink with a limit may be sent now, most at most; where that is
// none it says when the next one may.
func (q *sinkQueue) allowed(now time.Time, most int) int {
	q.credit = min(q.credit+q.share*now.Sub(q.credited).Seconds(), max(1, q.share*limitBurst.Seconds()))
	q.credited = now
	if q.credit < 1 {
		q.limitAt = now.Add(time.Duration((1-q.credit)/q.share*float64(time.Second)) + time.Millisecond) // no moment too early
	}
	return min(most, int(q.credit))
}
