package kafka

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

var (
	cancelled = sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, "")
	neighbour = sinks.Fail(sinks.Unsent, sinks.ReasonNeighbour, "")
)

// run is one Send. One goroutine knows what has become of each message; others
// carry record batches, one for each partition at a time.
type run struct {
	sink     *Sink
	batch    []sinks.Message
	outcomes []sinks.Outcome
	settled  []bool
	before   []int // the message of the same key before this one, or -1
	records  []record
	chunks   int   // that were made
	inChunk  []int // which one each message was in last
	lanes    map[place]*lane
	order    []*lane
	until    time.Time // when to give up on leaders
	slowest  time.Duration
}

// place is a partition of a topic.
type place struct {
	topic     string
	partition int
}

// lane is what goes to one partition.
type lane struct {
	place
	waiting []int // messages, in order
	chunk   []int // those under way
	busy    bool  // a record batch is under way
	most    int   // records that a batch may have; 0 any number
}

func newRun(s *Sink, batch []sinks.Message) *run {
	r := &run{
		sink: s, batch: batch, lanes: map[place]*lane{},
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

// settle writes down what became of a message. After one that was not delivered,
// none of its key may be.
func (r *run) settle(i int, o sinks.Outcome) {
	if r.heldBack(i) {
		o = neighbour
	}
	r.outcomes[i], r.settled[i] = o, true
}

func (r *run) heldBack(i int) bool {
	at := r.before[i]
	return at >= 0 && r.settled[at] && r.outcomes[at].Result != sinks.Delivered
}

// work carries record batches as long as there are some.
func (r *run) work(ctx context.Context) {
	answers, under := make(chan answer), 0
	for {
		ready := r.ready()
		if under == 0 && len(ready) == 0 {
			if r.isWorkedOff() {
				return
			}
			continue // one that was held back holds back others, of lanes that were looked at before
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

func (r *run) isWorkedOff() bool {
	return !slices.ContainsFunc(r.order, func(l *lane) bool { return len(l.waiting) > 0 })
}

// answer is what became of a lane's record batch.
type answer struct {
	lane *lane
	verdict
	took time.Duration
}

// ready returns the lanes that have a record batch to carry and are free.
func (r *run) ready() []*lane {
	var ready []*lane
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

// next takes messages for one record batch out of a lane: those whose key has
// nothing before them that is still on its way elsewhere.
func (r *run) next(l *lane) []int {
	chunk, left := make([]int, 0, len(l.waiting)), []int(nil)
	r.chunks++
	room := r.sink.options.MaxMessageBytes - batchBytes
	for n, i := range l.waiting {
		size := r.records[i].mostBytes()
		switch {
		case r.heldBack(i):
			r.settle(i, neighbour)
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
