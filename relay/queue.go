package relay

import (
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// A sink in use: what waits for it, how much of it is in memory, whether it is there (its breaker), and the jobs under way.
// Queues know nothing of each other, so that the trouble of one is no other's.

// sinkQueue is one sink in use.
type sinkQueue struct {
	base    *base
	name    string
	index   int
	options SinkOptions
	order   sinks.Order
	tx      sinks.TxSink // set if its handler runs in the transaction that settles the message
	ordered bool         // batches are sorted as they were written: by lanes

	// maxUnsettled bounds the messages that were sent and aren't settled: all of them would come
	// again if the relay died. Together with what is in flight it is half of the buffer, or
	// three batches for each worker if that is more. By rows it is 0: the buffer, which is
	// smaller, is bound enough.
	maxUnsettled int

	waiting  waitingLine
	buffered int // items in memory, with those that are not settled
	bytes    int
	settling int  // items whose outcome is being written back
	deferred int  // of those in memory, deferred rows whose time has come
	freed    int  // keys that don't wait any more, and have rows to catch up with
	stopped  bool // it has left a row of what is new, and reads on once it has room
	passed   int  // rows that shared pages have brought for it in vain, while it was behind
	apart    bool // shared pages leave it out until it has caught up (apart.go)

	jobs     chan *flight
	longest  time.Duration        // that a call of the sink may take
	flights  map[*flight]struct{} // the jobs under way
	allStuck bool                 // no worker is left
	breaker  breaker

	suspended []*item   // that failed, and wait until they are tried again, the first that failed first
	retryAt   time.Time // when to look for one that is to be tried again; zero: now

	pauseUntil time.Time
	paused     bool   // by an operator, or its breaker has tripped
	wasUp      bool   // the observer was told so once
	isDown     bool   // the observer was told so
	downDetail string // what the log said last of why

	relays   int       // that have the sink and take part, with this one
	capacity int       // how many messages may be in memory
	rate     int       // messages a second of all relays together; 0: no limit
	share    float64   // of these, this relay's part
	credit   float64   // messages that may be sent of it
	credited time.Time // when that was so
	limitAt  time.Time // when the next one may be sent
}

func newSinkQueue(b *base, name string, index int) *sinkQueue {
	options := b.options.Sinks[name]
	q := &sinkQueue{base: b, name: name, index: index, options: options, capacity: options.Buffer, longest: options.Timeout, jobs: make(chan *flight, options.Workers)}
	q.flights, q.breaker = map[*flight]struct{}{}, newBreaker(&q.options)
	if ordered, ok := options.Sink.(sinks.Ordered); ok {
		q.order = ordered.Order()
	}
	q.tx, _ = options.Sink.(sinks.TxSink)
	if _, each := options.Sink.(sinks.OneByOne); each || q.tx != nil { // whose time-out is each message's
		q.longest += min(options.Timeout, beginFor)
	}
	if q.ordered = b.options.Claim == storage.ByLanes; q.ordered {
		all := options.Batch * options.Workers
		q.maxUnsettled = max(options.Buffer/2, 3*all) - all
	}
	return q
}

// is says whether it is the queue with this index.
func (q *sinkQueue) is(index int) bool { return q.index == index }

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

// hasReadRoom says that reading for the queue is worth while: a read for each place
// that becomes free would be many small ones, and each has its price. As long as
// settlements are about to free more, it waits for half of the buffer.
func (q *sinkQueue) hasReadRoom() bool { return q.shouldRead(q.room(), q.capacity) }

// shouldRead says the same of a part of the buffer, in which there is so much room.
func (q *sinkQueue) shouldRead(room, buffer int) bool {
	if q.settling > 0 {
		return room > 0 && room >= min(buffer/2, readLimit)
	}
	return room > 0 && (room >= buffer/4 || room >= q.options.Batch)
}

// up says that the sink may be given messages.
func (q *sinkQueue) up() bool { return q.breaker.sending() && !q.paused }

// anyUp says that some sink takes messages.
func anyUp(queues []*sinkQueue) bool { return slices.ContainsFunc(queues, (*sinkQueue).up) }

// waitingLine holds what is to be sent: items without a key, and keys that have items.
// What came back goes first; then what is tried again takes turns with all else,
// so that neither waits for the other: first come first served.
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

// preferOther puts the first entry whose topic wasn't probed before all others: the trouble may be that of some topics only. With all of
// them probed it is the first entry's turn, as requeue puts what was probed behind all others.
func (w *waitingLine) preferOther(probed map[string]struct{}) {
	for _, line := range []*[]queued{&w.back, &w.untried, &w.retries} {
		for at, entry := range *line {
			it := entry.item
			if entry.key != nil && len(entry.key.items) > 0 {
				it = entry.key.items[0]
			}
			if it == nil {
				continue
			}
			if _, was := probed[it.row.Message.Topic]; !was {
				*line = slices.Delete(*line, at, at+1)
				w.putFirst(entry)
				return
			}
		}
	}
	clear(probed)
}

// next takes the entry whose turn it is. There must be one.
func (w *waitingLine) next() queued {
	line := &w.back
	if len(*line) == 0 {
		line, w.retriesNext = &w.untried, !w.retriesNext
		if len(w.retries) > 0 && (w.retriesNext || len(*line) == 0) {
			line = &w.retries
		}
	}
	entry := (*line)[0]
	(*line)[0] = queued{}
	*line = (*line)[1:]
	return entry
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
	q.putLast(it)
}

// putLast puts an item behind all others that wait for their turn.
func (q *sinkQueue) putLast(it *item) {
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
	if k.queued || k.suspended != nil || k.inFlight > 0 || len(k.items) == 0 {
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

// retrySuspended puts suspended messages before all else in the queue whose time has come. While one message at a time is
// sent, that is one, once everything else was tried.
func (q *sinkQueue) retrySuspended(now time.Time) {
	if len(q.suspended) == 0 || !q.breaker.sending() || now.Before(q.retryAt) {
		return
	}
	if q.breaker.state == breakerProbing {
		if len(q.flights) == 0 && q.waiting.empty() {
			q.resume(q.suspended[:1])
			q.suspended = slices.Delete(q.suspended, 0, 1)
		}
		return
	}
	var ready, rest []*item
	q.retryAt = time.Time{}
	for _, it := range q.suspended {
		if at := q.breaker.retryAt(it.suspension); now.Before(at) {
			rest, q.retryAt = append(rest, it), earliest(q.retryAt, at)
		} else {
			ready = append(ready, it)
		}
	}
	q.suspended = rest
	q.resume(ready)
}

// fails says that all that could be sent has failed for some time, and that the breaker hasn't opened.
func (q *sinkQueue) fails(now time.Time) bool {
	return len(q.suspended) > 0 && q.waiting.empty() && q.breaker.sending() && !slices.ContainsFunc(q.suspended, func(it *item) bool {
		d := q.breaker.destinations[it.suspension.destination]
		return d == nil || d.failsAlone(it.suspension, now) < suspectFor
	})
}

// resume puts messages that were suspended before all else in the queue.
func (q *sinkQueue) resume(items []*item) {
	var again []queued
	for _, it := range items {
		k := it.key
		switch {
		case k == nil && it.stage == inQueue:
			again = append(again, queued{item: it})
		case k != nil && k.suspended == it:
			k.suspended = nil
			if !k.queued && k.inFlight == 0 && len(k.items) > 0 {
				k.queued = true
				again = append(again, queued{key: k})
			}
		}
	}
	q.waiting.putFirst(again...)
}

// Limits: a sink that all relays together may send so many messages a second gets its part from
// each of those that have it. A relay that has come is counted by the others within two seconds.

// limitBurst is what may be sent at once after a rest: a tenth of a second's messages.
const limitBurst = 100 * time.Millisecond

// sendersTo returns how many of the relays have the sink. Consumers have no sinks.
func sendersTo(sink string, relays []storage.Member) (n int) {
	for i := range relays {
		if slices.ContainsFunc(relays[i].Config.Sinks, func(text string) bool {
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

// inFlight is how many messages are being sent.
func (q *sinkQueue) inFlight() (n int) {
	for f := range q.flights {
		n += len(f.items)
	}
	return n
}
