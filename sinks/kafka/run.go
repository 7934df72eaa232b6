package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// run is the state of one Send.
//
//   - [run.address] makes a record of each message and puts the message into the queue of its
//     partition.
//   - [run.work] sends record batches with [run.carry]. Each queue has one record batch in flight
//     at a time; several queues send concurrently.
//   - [run.take] settles messages according to the broker's answer, or puts them back into their
//     queue.
//
// Invariant: a record is sent only if the previous message of its key has been delivered, or is in
// the same record batch. Only the goroutine that called Send changes the state of messages; the
// other goroutines run [run.carry], which only sends.
type run struct {
	sink     *Sink
	batch    []sinks.Message
	outcomes []sinks.Outcome
	settled  []bool
	before   []int // by message: the previous message of its key, or -1
	records  []record
	chunks   int   // the number of record batches that run.next has made
	inChunk  []int // by message: the number of the last record batch that contained the message
	queues   map[topicPartition]*partitionQueue
	order    []*partitionQueue
	troubled map[int]topicPartition // by message: the failing partition, if [run.apart] decides the message's outcome
	until    time.Time              // when to stop waiting for leaders
	slowest  time.Duration          // the duration of the slowest record batch
}

// topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int
}

// partitionQueue holds the messages for one partition.
type partitionQueue struct {
	topicPartition
	waiting []int // messages, in order
	chunk   []int // the messages in flight
	busy    bool  // a record batch is in flight
	most    int   // maximum number of records in a batch; 0 means no limit
}

func newRun(s *Sink, batch []sinks.Message) *run {
	r := &run{
		sink: s, batch: batch, queues: map[topicPartition]*partitionQueue{}, troubled: map[int]topicPartition{},
		outcomes: make([]sinks.Outcome, len(batch)), settled: make([]bool, len(batch)),
		before: make([]int, len(batch)), inChunk: make([]int, len(batch)), records: make([]record, len(batch)),
	}
	last := make(map[string]int, len(batch))
	for i := range batch {
		r.before[i] = -1
		if key := batch[i].Key; key != "" {
			if at, known := last[key]; known {
				r.before[i] = at
			}
			last[key] = i
		}
	}
	return r
}

// address makes the records and puts each into the queue of its partition. It
// returns false if it has settled all messages because no metadata is available.
func (r *run) address(ctx context.Context) bool {
	names, wanted := make([]string, len(r.batch)), map[string]bool{}
	now, room := time.Now(), r.roomForHeaders()
	for i := range r.batch {
		var err error
		if m := &r.batch[i]; i > 0 && m.Topic == names[i-1] && m.Topic != "" && r.sink.options.Topic == DefaultTopic {
			names[i] = m.Topic // the common case: topicOf has checked this name for the previous message
		} else {
			names[i], err = r.sink.topicOf(m)
		}
		if err == nil {
			r.records[i], err = r.recordOf(ctx, i, names[i], now, room)
			room = room[min(len(r.records[i].headers), len(room)):]
		}
		if err != nil {
			r.settle(i, unrecorded(err))
			continue
		}
		wanted[names[i]] = true
	}
	topics, err := r.sink.topics(ctx, slices.Sorted(maps.Keys(wanted)))
	if err != nil {
		r.settleRest(r.sink.troubled(ctx, err))
		return false
	}
	sticky := map[string]int{} // by topic: the partition of messages without a key
	for i := range r.batch {
		if r.settled[i] {
			continue
		}
		t := topics[names[i]]
		if t.err != nil {
			r.settle(i, r.sink.topicTrouble(t))
			continue
		}
		partition, err := r.sink.partitionOf(&r.batch[i], t, sticky)
		if err != nil {
			r.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, err.Error()))
			continue
		}
		at := topicPartition{t.name, partition}
		if known, resting := r.sink.cluster.troubleOf(at); resting {
			r.trouble(i, at, known.why)
			continue
		}
		l := r.queues[at]
		if l == nil {
			l = &partitionQueue{topicPartition: at}
			r.queues[at] = l
			r.order = append(r.order, l)
		}
		l.waiting = append(l.waiting, i)
	}
	return true
}

// recordOf makes the record of the message or, if the sink sends CloudEvents, of
// the message's CloudEvent. If the options have a schema, it adds the schema's frame to the value.
func (r *run) recordOf(ctx context.Context, i int, topic string, now time.Time, room []header) (made record, err error) {
	if r.sink.events == nil {
		made, err = r.sink.record(&r.batch[i], topic, now, room)
	} else {
		event, wrong := r.sink.events.Message(r.batch[i])
		if wrong != nil {
			return record{}, wrong
		}
		made, err = r.sink.record(&event, topic, now, make([]header, len(event.Headers)+ownHeaders))
	}
	if err == nil && r.sink.schemas != nil {
		made.value, err = r.sink.schemas.frame(ctx, &r.batch[i], topic, made.value)
	}
	return made, err
}

// unrecorded returns the outcome of a message for which recordOf or topicOf returned an error.
func unrecorded(err error) sinks.Outcome {
	if failed := (*schemaError)(nil); errors.As(err, &failed) {
		return failed.outcome
	}
	return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
}

// roomForHeaders allocates the headers of all records of the batch in one slice.
func (r *run) roomForHeaders() []header {
	n := 0
	for i := range r.batch {
		n += len(r.batch[i].Headers) + ownHeaders
	}
	return make([]header, n)
}

// work sends record batches until all queues are empty.
func (r *run) work(ctx context.Context) {
	answers, under := make(chan answer), 0
	for {
		ready := r.ready()
		if under == 0 && len(ready) == 0 {
			if !slices.ContainsFunc(r.order, func(l *partitionQueue) bool { return len(l.waiting) > 0 }) {
				return
			}
			continue // run.ready may have settled a message, so that a later message of its key in another queue can be settled, too
		}
		if under == 0 && len(ready) == 1 { // the common case needs no goroutine
			r.take(r.carry(ctx, ready[0], r.slowest))
			continue
		}
		for _, l := range ready {
			slowest := r.slowest
			go func() { answers <- r.carry(ctx, l, slowest) }()
		}
		under += len(ready)
		r.take(<-answers)
		under--
	}
}

// ready makes the next record batch of each queue that has none in flight, and
// returns the queues that have something to send.
func (r *run) ready() []*partitionQueue {
	var ready []*partitionQueue
	for _, l := range r.order {
		if l.busy {
			continue
		}
		if l.chunk = r.next(l); len(l.chunk) > 0 {
			l.busy = true
			ready = append(ready, l)
		}
	}
	return ready
}

// next removes the messages of one record batch from a queue. It leaves a message in the
// queue if the previous message of its key is neither settled nor in this record batch.
func (r *run) next(l *partitionQueue) []int {
	chunk, left := make([]int, 0, len(l.waiting)), []int(nil)
	r.chunks++
	room := r.sink.options.MaxMessageBytes - batchBytes
	for n, i := range l.waiting {
		size := r.records[i].mostBytes()
		switch {
		case r.heldBack(i):
			r.settle(i, sinks.Blocked())
		case r.mustWait(i):
			left = append(left, i)
		case len(chunk) > 0 && (size > room || len(chunk) == l.most):
			l.waiting = append(left, l.waiting[n:]...)
			return chunk
		default:
			room -= size
			chunk = append(chunk, i)
			r.inChunk[i] = r.chunks
		}
	}
	l.waiting = left
	return chunk
}

// mustWait reports whether the previous message of the same key is neither settled
// nor in the record batch that [run.next] is making.
func (r *run) mustWait(i int) bool {
	at := r.before[i]
	return at >= 0 && !r.settled[at] && r.inChunk[at] != r.chunks
}

// carry waits for the partition's semaphore and for a slot, then sends the queue's
// record batch.
func (r *run) carry(ctx context.Context, l *partitionQueue, slowest time.Duration) answer {
	gate := r.sink.gate(l.topicPartition)
	if !enter(ctx, gate) {
		return answer{queue: l, verdict: verdict{outcome: sinks.Cancelled()}}
	}
	defer func() { <-gate }()
	if !enter(ctx, r.sink.slots) {
		return answer{queue: l, verdict: verdict{outcome: sinks.Cancelled()}}
	}
	defer func() { <-r.sink.slots }()
	start := time.Now()
	if deadline, bounded := ctx.Deadline(); ctx.Err() != nil || bounded && deadline.Sub(start) < slowest {
		return answer{queue: l, verdict: verdict{outcome: sinks.Cancelled()}} // the context would probably end before the answer
	}
	v := r.sink.produce(ctx, r.until, l.topicPartition, r.recordsOf(l.chunk), noProducer)
	return answer{queue: l, verdict: v, took: time.Since(start)}
}

// answer is the result of a queue's record batch.
type answer struct {
	queue *partitionQueue
	verdict
	took time.Duration
}

func (r *run) recordsOf(chunk []int) []record {
	if len(chunk) == len(r.records) { // all records, in order
		return r.records
	}
	records := make([]record, len(chunk))
	for n, i := range chunk {
		records[n] = r.records[i]
	}
	return records
}

// take settles the messages of a record batch according to its result. Messages that have
// to be sent again go back into their queue.
func (r *run) take(a answer) {
	l := a.queue
	l.busy = false
	r.slowest = max(r.slowest, a.took)
	if a.outcome.Result == sinks.Delivered && !a.again {
		for n, o := range delivered(l.partition, a.offset, len(l.chunk)) {
			r.settle(l.chunk[n], o)
		}
		return
	}
	var again []int
	for n, i := range l.chunk {
		if rejected, isRejected := a.rejected[n]; isRejected {
			r.settle(i, rejected)
		} else if a.again {
			again = append(again, i)
		} else if a.local {
			r.trouble(i, l.topicPartition, a.outcome)
		} else {
			r.settle(i, a.outcome)
		}
	}
	l.waiting = append(again, l.waiting...)
	if a.smaller {
		l.most = max(1, len(l.chunk)/2)
	}
	if a.outcome.Result == sinks.Unavailable || isPostponed(a.outcome) { // send nothing more to this partition
		for _, i := range l.waiting {
			r.settle(i, sinks.Blocked())
		}
		l.waiting = nil
	}
}

// settle records a message's outcome. If the previous message of its key was not
// delivered, the outcome becomes [sinks.Blocked].
func (r *run) settle(i int, o sinks.Outcome) {
	if r.heldBack(i) {
		o = sinks.Blocked()
	}
	if isPostponed(o) {
		o.RetryAfter = waitOf(&r.batch[i], o.RetryAfter)
	}
	r.outcomes[i], r.settled[i] = o, true
}

// trouble settles a message whose partition failed. Later, [run.apart] decides the final outcome.
func (r *run) trouble(i int, at topicPartition, why sinks.Outcome) {
	r.settle(i, why)
	if r.outcomes[i].Result == sinks.Unavailable {
		r.troubled[i] = at
	}
}

// settleRest settles all remaining messages with the given outcome.
func (r *run) settleRest(o sinks.Outcome) {
	for i := range r.batch {
		if !r.settled[i] {
			r.settle(i, o)
		}
	}
}

// heldBack reports whether the previous message of the same key was settled but not delivered.
func (r *run) heldBack(i int) bool {
	at := r.before[i]
	return at >= 0 && r.settled[at] && r.outcomes[at].Result != sinks.Delivered
}

// delivered returns the outcomes of a delivered record batch. Each receipt is the
// record's partition and offset. The receipts share the memory of one string.
func delivered(partition int, offset int64, n int) []sinks.Outcome {
	const longest = 24
	text, ends := make([]byte, 0, longest*n), make([]int, n)
	for i := range n {
		text = append(strconv.AppendInt(text, int64(partition), 10), '/')
		text = strconv.AppendInt(text, offset+int64(i), 10)
		ends[i] = len(text)
	}
	receipts, start, outcomes := string(text), 0, make([]sinks.Outcome, n)
	for i, end := range ends {
		outcomes[i], start = sinks.Ok(receipts[start:end]), end
	}
	return outcomes
}

// gate returns the semaphore of a partition. All Sends share it, so that the
// partition has one record batch in flight and its log preserves the order of
// sending.
func (s *Sink) gate(at topicPartition) chan struct{} {
	gate, _ := s.gates.LoadOrStore(at, make(chan struct{}, 1))
	return gate.(chan struct{})
}

// enter acquires a semaphore. It returns false if the context ends first.
func enter(ctx context.Context, gate chan struct{}) bool {
	select {
	case gate <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
