package relay

import (
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// A sink's queue contains the sink's breaker, its jobs in flight, and the messages in memory that wait for the sink. Queues are
// independent of each other, so a sink that is down does not delay another.

// sinkQueue is the queue of one sink. The engine's loop owns it.
type sinkQueue struct {
	base     *base
	name     string
	index    int
	options  SinkOptions
	order    sinks.Order
	tx       sinks.TxSink // set if the sink's handler runs in the transaction that settles the message
	oneByOne bool         // the sink's handler is called for each message, and the time-out applies to each message
	ordered  bool         // batches are sorted by id; true when claiming by lanes

	// maxUnsettled limits the messages that were sent but are not settled yet, all of which would be sent again if the relay
	// died. With this limit, these messages and the messages in flight together fill at most half of the buffer, or three batches
	// for each worker if that is more. When claiming by rows, it is 0, which means no limit, since the buffer is then small
	// enough.
	maxUnsettled int

	waiting  waitingLine
	buffered int // how many items are in memory, including those that were sent but are not settled
	bytes    int
	settling int  // how many items have an outcome that is not written yet
	deferred int  // how many due deferred rows are in memory
	freed    int  // how many unblocked keys have rows that are not read yet
	stopped  bool // the queue had no room for a new row; the lanes are read again once it has room
	passed   int  // how many rows of the sink were ignored in pages that several sinks share, because the sink was behind
	apart    bool // the sink is set apart: until it has caught up, the pages that all sinks share exclude the topics that only this sink takes (apart.go)

	jobs       chan *flight
	longest    time.Duration        // the longest time that a call to the sink may take
	flights    map[*flight]struct{} // the jobs that were given to workers and have not returned
	allStuck   bool                 // every worker hangs in a call
	unstarted  int                  // how many messages the sink returned unsent within the last second, because their handlers stayed busy
	waitLogged time.Time            // the time of the last log line about messages that wait for handlers
	breaker    breaker

	suspended []*item   // items that failed and wait in memory for their next attempt, in the order in which they failed
	retryAt   time.Time // when the next suspended item is due; zero means unknown, and makes retrySuspended compute it

	pauseUntil time.Time
	paused     bool      // an operator has paused the sink, or the breaker has tripped
	wasUp      bool      // SinkUp was called at least once
	isDown     bool      // SinkDown was called, and SinkUp was not called since
	downDetail string    // the detail in the last log line that reported the sink as unavailable
	downSince  time.Time // when the sink was last reported as unavailable
	downLogged time.Time // the time of the last log line that reported the sink as unavailable

	relays   int     // how many active relays have the sink, including this one
	capacity int     // the maximum number of messages in memory
	rate     int     // the limit in messages a second for all relays together; 0 means no limit
	share    float64 // this relay's share of the rate
	credit   float64 // how many messages this relay was allowed to send at the time in `credited`
	credited time.Time
	limitAt  time.Time // when the next message may be sent
}

func newSinkQueue(b *base, name string, index int) *sinkQueue {
	options := b.options.Sinks[name]
	q := &sinkQueue{base: b, name: name, index: index, options: options, capacity: options.Buffer, longest: options.Timeout, jobs: make(chan *flight, options.Workers)}
	q.flights, q.breaker = map[*flight]struct{}{}, newBreaker(&q.options)
	if ordered, ok := options.Sink.(sinks.Ordered); ok {
		q.order = ordered.Order()
	}
	q.tx, _ = options.Sink.(sinks.TxSink)
	_, each := options.Sink.(sinks.OneByOne)
	if q.oneByOne = each || q.tx != nil; q.oneByOne {
		q.longest += min(options.Timeout, beginFor)
	}
	if q.ordered = b.options.Claim == storage.ByLanes; q.ordered {
		all := options.Batch * options.Workers
		q.maxUnsettled = max(options.Buffer/2, 3*all) - all
	}
	return q
}

func (q *sinkQueue) is(index int) bool { return q.index == index }

// room returns how many more messages the queue may hold.
func (q *sinkQueue) room() int {
	if q.bytes >= q.options.BufferBytes || q.allStuck {
		return 0
	}
	return q.capacity - q.buffered
}

// roomForDeferred returns how many due deferred rows the queue may take. Such rows fill at most half of the buffer, so that
// thousands of retries a second leave room for new messages. While maxFreedKeys unblocked keys have rows to read, roomForDeferred
// returns 0.
func (q *sinkQueue) roomForDeferred() int {
	if q.freed >= maxFreedKeys {
		return 0
	}
	return min(q.room(), max(1, q.options.Buffer/2)-q.deferred)
}

// maxFreedKeys limits the number of a sink's unblocked keys that have rows to read. Once the limit is reached, no more
// deferred rows are read for the sink.
const maxFreedKeys = 10_000

// hasReadRoom reports whether the queue has enough room to make a read worthwhile: a quarter of the buffer or one batch. Reading
// whenever there is room for one message would cost many small queries. While settlements are in progress, which will free more
// room, the required room is half of the buffer, or readLimit if that is less.
func (q *sinkQueue) hasReadRoom() bool { return q.shouldRead(q.room(), q.capacity) }

// shouldRead makes the same decision as hasReadRoom for a part of the buffer, given that part's free room and its size.
func (q *sinkQueue) shouldRead(room, buffer int) bool {
	if q.settling > 0 {
		return room > 0 && room >= min(buffer/2, readLimit)
	}
	return room > 0 && (room >= buffer/4 || room >= q.options.Batch)
}

// up reports whether messages may be sent to the sink.
func (q *sinkQueue) up() bool { return q.breaker.sending() && !q.paused }

// isFailing reports whether the sink is paused or has become unavailable. A sink that is being opened for the first time is
// neither up nor failing.
func (q *sinkQueue) isFailing() bool { return !q.up() && (q.paused || q.breaker.openings > 0) }

// anyUp reports whether messages may be sent to some sink.
func anyUp(queues []*sinkQueue) bool { return slices.ContainsFunc(queues, (*sinkQueue).up) }

// waitingLine orders the entries that wait to be sent: items without a key, and keys that have items. Entries that were removed
// from the line but not sent, and suspended messages that are due, come first. After them retries and untried entries alternate,
// each kind in its order of arrival, so that neither kind delays the other.
type waitingLine struct {
	back        []queued // entries that were removed but not sent, and suspended messages that are due
	untried     []queued
	retries     []queued
	retriesLast bool // `untried` and `retries` take turns, and the last turn was that of `retries`
}

// queued is an entry of a waitingLine: an item without a key, or a key.
type queued struct {
	item *item
	key  *key
}

// putFirst puts entries before all others and keeps their order.
func (w *waitingLine) putFirst(entries ...queued) {
	w.back = append(entries, w.back...)
}

// preferOther puts the first entry whose topic is not in the set `probed` before all others, since the sink may be unavailable
// for some topics only. If every topic was probed, it clears the set and keeps the order, because requeue() has put probed
// entries last.
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

// next removes and returns the next entry. The line must not be empty.
func (w *waitingLine) next() queued {
	line := &w.back
	if len(*line) == 0 {
		line, w.retriesLast = &w.untried, !w.retriesLast
		if len(w.retries) > 0 && (w.retriesLast || len(*line) == 0) {
			line = &w.retries
		}
	}
	entry := (*line)[0]
	(*line)[0] = queued{}
	*line = (*line)[1:]
	return entry
}

func (w *waitingLine) empty() bool { return len(w.back)+len(w.untried)+len(w.retries) == 0 }

// add counts an item that was read, and queues it.
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

// putLast queues a retry behind the other retries, and any other item behind the other untried items.
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

// enqueue queues a key if one of its items may be sent.
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

// release subtracts an item from the queue's counts.
func (q *sinkQueue) release(it *item) {
	q.buffered--
	q.bytes -= it.bytes
	if it.row.Deferred {
		q.deferred--
	}
}

// retrySuspended queues the suspended messages that are due, before all other messages. While the breaker probes with one message
// at a time, it queues only the first suspended message, and only when no other message is waiting or in flight.
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

// fails reports whether all messages that could be sent have been failing for suspectFor and are suspended, although the breaker
// is neither open nor tripped.
func (q *sinkQueue) fails(now time.Time) bool {
	return len(q.suspended) > 0 && q.waiting.empty() && q.breaker.sending() && !slices.ContainsFunc(q.suspended, func(it *item) bool {
		d := q.breaker.destinations[it.suspension.destination]
		return d == nil || d.failsAlone(it.suspension, now) < suspectFor
	})
}

// resume queues suspended messages before all others.
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

// Rate limits. A sink's limit in messages a second applies to all relays together. Each relay that has the sink may send an
// equal share. When a relay starts, the others recompute their shares within two seconds.

// limitBurst limits a burst after a pause to the number of messages that the rate allows in this time.
const limitBurst = 100 * time.Millisecond

// sendersTo returns how many of the members have the sink. Consumers don't count, because their heartbeats list no sinks.
func sendersTo(sink string, relays []storage.Member) (n int) {
	for i := range relays {
		if slices.ContainsFunc(relays[i].Config.Sinks, func(text string) bool {
			return text == "…" || strings.HasPrefix(text, sink+": ") // "…" ends a list of sinks that was too long for the heartbeat
		}) {
			n++
		}
	}
	return n
}

// limit sets the rate that the relays share; 0 means no limit. A relay that claims by rows holds at most as many rows as it may
// send in two seconds, since no other relay can send rows that this one has claimed.
func (q *sinkQueue) limit(rate int) {
	q.rate, q.share, q.limitAt = rate, float64(rate)/float64(max(1, q.relays)), time.Time{}
	if q.capacity = q.options.Buffer; rate > 0 && !q.ordered {
		q.capacity = min(q.capacity, max(1, int(2*q.share)))
	}
}

// allowed returns how many messages the rate allows now, but at most `most`. If the rate allows none, the method sets q.limitAt.
func (q *sinkQueue) allowed(now time.Time, most int) int {
	q.credit = min(q.credit+q.share*now.Sub(q.credited).Seconds(), max(1, q.share*limitBurst.Seconds()))
	q.credited = now
	if q.credit < 1 {
		q.limitAt = now.Add(time.Duration((1-q.credit)/q.share*float64(time.Second)) + time.Millisecond) // rounded up
	}
	return min(most, int(q.credit))
}

// inFlight returns how many messages are being sent.
func (q *sinkQueue) inFlight() (n int) {
	for f := range q.flights {
		n += len(f.items)
	}
	return n
}
