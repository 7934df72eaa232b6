package kafka

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// run is one Send: a batch of messages comes in, an outcome of each goes out. Each
// message becomes a record in the queue of its partition (address). The queues send record
// batches, each one at a time and several queues at once (work, carry), and what the
// brokers answer settles messages, or puts them back (take). What must hold: of a
// key, no record goes out before what became of the one ahead of it is known, unless
// both go in one record batch, and none after one that was not delivered. One
// goroutine knows what has become of each message; others only carry.
type run struct {
	sink     *Sink
	batch    []sinks.Message
	outcomes []sinks.Outcome
	settled  []bool
	before   []int // the message of the same key before this one, or -1
	records  []record
	chunks   int   // that were made
	inChunk  []int // which one each message was in last
	queues   map[topicPartition]*partitionQueue
	order    []*partitionQueue
	troubled map[int]topicPartition // messages whose outcome is the trouble of their partition
	until    time.Time              // when to give up on leaders
	slowest  time.Duration
}

// topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int
}

// partitionQueue is what goes to one partition.
type partitionQueue struct {
	topicPartition
	waiting []int // messages, in order
	chunk   []int // those under way
	busy    bool  // a record batch is under way
	most    int   // records that a batch may have; 0 any number
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

// address makes the records and puts each into the queue of its partition. It says
// whether there is anything to carry.
func (r *run) address(ctx context.Context) bool {
	names, wanted := make([]string, len(r.batch)), map[string]bool{}
	now, room := time.Now(), r.roomForHeaders()
	for i := range r.batch {
		var err error
		if m := &r.batch[i]; i > 0 && m.Topic == names[i-1] && m.Topic != "" && r.sink.options.Topic == DefaultTopic {
			names[i] = m.Topic // as is common: it was checked with the message before
		} else {
			names[i], err = r.sink.topicOf(m)
		}
		if err == nil {
			r.records[i], err = r.recordOf(i, names[i], now, room)
			room = room[min(len(r.records[i].headers), len(room)):]
		}
		if err != nil {
			r.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
			continue
		}
		wanted[names[i]] = true
	}
	topics, err := r.sink.topics(ctx, slices.Sorted(maps.Keys(wanted)))
	if err != nil {
		r.settleRest(r.sink.troubled(ctx, err))
		return false
	}
	sticky := map[string]int{} // by topic: the partition of the batch's messages without a key
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

// recordOf makes the message's record, or that of the CloudEvent which it
// becomes.
func (r *run) recordOf(i int, topic string, now time.Time, room []header) (record, error) {
	if r.sink.events == nil {
		return r.sink.record(&r.batch[i], topic, now, room)
	}
	event, err := r.sink.events.Message(r.batch[i])
	if err != nil {
		return record{}, err
	}
	return r.sink.record(&event, topic, now, make([]header, len(event.Headers)+ownHeaders))
}

// roomForHeaders is enough for all records of the batch.
func (r *run) roomForHeaders() []header {
	n := 0
	for i := range r.batch {
		n += len(r.batch[i].Headers) + ownHeaders
	}
	return make([]header, n)
}

// work carries record batches as long as there are some.
func (r *run) work(ctx context.Context) {
	answers, under := make(chan answer), 0
	for {
		ready := r.ready()
		if under == 0 && len(ready) == 0 {
			if !slices.ContainsFunc(r.order, func(l *partitionQueue) bool { return len(l.waiting) > 0 }) {
				return
			}
			continue // one that was held back holds back others, of queues that were looked at before
		}
		if under == 0 && len(ready) == 1 { // as is common: it needs nobody else
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

// ready returns the queues that have a record batch to carry and are free.
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

// next takes messages for one record batch out of a queue: those whose key has
// nothing before them that is still on its way elsewhere.
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

// mustWait says that the message before, of the same key, is not settled, and
// doesn't go in the record batch that is being made.
func (r *run) mustWait(i int) bool {
	at := r.before[i]
	return at >= 0 && !r.settled[at] && r.inChunk[at] != r.chunks
}

// carry sends a queue's record batch when its partition is free and there is a
// slot.
func (r *run) carry(ctx context.Context, l *partitionQueue, slowest time.Duration) answer {
	gate := r.sink.gate(l.topicPartition)
	if !enter(ctx, gate) {
		return answer{lane: l, verdict: verdict{outcome: sinks.Cancelled()}}
	}
	defer func() { <-gate }()
	if !enter(ctx, r.sink.slots) {
		return answer{lane: l, verdict: verdict{outcome: sinks.Cancelled()}}
	}
	defer func() { <-r.sink.slots }()
	start := time.Now()
	if deadline, bounded := ctx.Deadline(); ctx.Err() != nil || bounded && deadline.Sub(start) < slowest {
		return answer{lane: l, verdict: verdict{outcome: sinks.Cancelled()}} // it would probably be cut off
	}
	v := r.sink.produce(ctx, r.until, l.topicPartition, r.recordsOf(l.chunk), noProducer)
	return answer{lane: l, verdict: v, took: time.Since(start)}
}

// answer is what became of a queue's record batch.
type answer struct {
	lane *partitionQueue
	verdict
	took time.Duration
}

func (r *run) recordsOf(chunk []int) []record {
	if len(chunk) == len(r.records) { // all, in their order
		return r.records
	}
	records := make([]record, len(chunk))
	for n, i := range chunk {
		records[n] = r.records[i]
	}
	return records
}

// take notes an answer, and puts back what is to go again.
func (r *run) take(a answer) {
	l := a.lane
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
	if a.outcome.Result == sinks.Unavailable || isPostponed(a.outcome) { // what waits for the partition is left alone
		for _, i := range l.waiting {
			r.settle(i, sinks.Blocked())
		}
		l.waiting = nil
	}
}

// settle writes down what became of a message. After one that was not delivered,
// none of its key may be.
func (r *run) settle(i int, o sinks.Outcome) {
	if r.heldBack(i) {
		o = sinks.Blocked()
	}
	if isPostponed(o) {
		o.RetryAfter = waitOf(&r.batch[i], o.RetryAfter)
	}
	r.outcomes[i], r.settled[i] = o, true
}

// trouble settles a message with the trouble of its partition, for apart to decide on.
func (r *run) trouble(i int, at topicPartition, why sinks.Outcome) {
	r.settle(i, why)
	if r.outcomes[i].Result == sinks.Unavailable {
		r.troubled[i] = at
	}
}

// settleRest settles what is not settled yet.
func (r *run) settleRest(o sinks.Outcome) {
	for i := range r.batch {
		if !r.settled[i] {
			r.settle(i, o)
		}
	}
}

func (r *run) heldBack(i int) bool {
	at := r.before[i]
	return at >= 0 && r.settled[at] && r.outcomes[at].Result != sinks.Delivered
}

// delivered are the outcomes of a record batch. The receipts, partition and
// offset of each, are parts of one text.
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

// gate is that to a partition, over all Sends: one record batch at a time, so that
// what comes first is first in the log.
func (s *Sink) gate(at topicPartition) chan struct{} {
	gate, _ := s.gates.LoadOrStore(at, make(chan struct{}, 1))
	return gate.(chan struct{})
}

func enter(ctx context.Context, gate chan struct{}) bool {
	select {
	case gate <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
