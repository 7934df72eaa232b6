package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// IdempotentSink is a [Sink] that writes no record twice, even if a relay dies after the
// broker's answer and before it marks the messages as delivered. A broker recognises a
// repeated record batch by its producer id and the sequences of its first and last
// record. The relay stores these numbers in its journals before it sends the batch.
// README.md describes the cost and the limits.
//
// The relay calls its methods as [sinks.Deduplicating] specifies.
type IdempotentSink struct {
	*Sink
	identity *identity
	searches *searches
}

var _ sinks.Deduplicating = (*IdempotentSink)(nil)

// NewIdempotent returns a sink that writes to a cluster of Kafka 2.8 or newer.
// It makes no connection. The error lists every problem with the options, and
// contains no secret.
func NewIdempotent(options Options) (*IdempotentSink, error) {
	s, err := New(options)
	if err != nil {
		return nil, err
	}
	return &IdempotentSink{s, newIdentity(), newSearches()}, nil
}

// Renew takes over the login and certificates of another IdempotentSink for new connections. It implements
// [sinks.Renewable].
func (s *IdempotentSink) Renew(with sinks.Sink) { s.Sink.Renew(with.(*IdempotentSink).Sink) }

// Plan assigns sequence numbers to the next record batch of each partition. Messages
// that don't fit into these batches wait for the next plan.
func (s *IdempotentSink) Plan(ctx context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	if ctx.Err() != nil {
		return nil, sinks.All(len(batch), sinks.Cancelled())
	}
	r := newRun(s.Sink, batch)
	defer r.apart(ctx)
	if !r.address(ctx) {
		return nil, r.outcomes
	}
	places := make([]topicPartition, len(r.order))
	for i, l := range r.order {
		places[i], l.most = l.topicPartition, s.identity.bound(l.topicPartition)
	}
	began := time.Now()
	for p, err := range s.learnEnds(ctx, places) {
		why := s.troubled(ctx, err)
		s.cluster.fails(p, began, why)
		for _, i := range r.queues[p].waiting {
			r.trouble(i, p, why)
		}
		r.queues[p].waiting = nil
	}
	for _, l := range r.order {
		if t, _ := s.cluster.troubleOf(l.topicPartition); t.tries > 1 && len(l.waiting) > 1 && !s.cluster.others(t) { // one message is enough to test a failing partition
			for _, i := range l.waiting[1:] {
				r.trouble(i, l.topicPartition, t.why)
			}
			l.waiting = l.waiting[:1]
		}
	}
	state, err := s.newState(ctx, places, len(batch))
	if err != nil {
		r.settleRest(s.troubled(ctx, err))
		return nil, r.outcomes
	}
	batchRefs := make([]sinks.BatchRef, len(batch))
	for _, l := range r.ready() {
		s.plan(state, l, batchRefs)
	}
	s.identity.planned(state)
	for i := range batch {
		if batchRefs[i] == (sinks.BatchRef{}) && !r.settled[i] {
			r.settle(i, sinks.Blocked())
		}
	}
	return batchRefs, r.outcomes
}

// plan sets the references of the messages in a partition's next batch.
func (s *IdempotentSink) plan(state *producerState, l *partitionQueue, batchRefs []sinks.BatchRef) {
	n := len(l.chunk)
	base, end := s.identity.reserve(state, l.topicPartition, n)
	name := batchID{cluster: s.cluster.name(), producer: state.producer, base: base, to: l.topicPartition, end: end, at: time.Now()}.String()
	for at, i := range l.chunk {
		batchRefs[i] = sinks.BatchRef{Batch: name, Size: n, Place: at}
	}
}

// Send writes record batches as they were planned. It writes the batches of one
// partition one at a time, and writes to several partitions concurrently.
func (s *IdempotentSink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	outcomes, troubled := make([]sinks.Outcome, len(batch)), make([]troubled, len(batch))
	until := time.Now().Add(s.options.LeaderTimeout)
	var work sync.WaitGroup
	for _, line := range batchesOf(batch) {
		ids := make([]batchID, len(line))
		for n, e := range line {
			ids[n] = e.id
		}
		s.searches.want(ids...)
		work.Go(func() { s.sendLine(ctx, until, line, batch, outcomes, troubled) })
	}
	work.Wait()
	for i, by := range troubled {
		if isPostponed(outcomes[i]) {
			outcomes[i].RetryAfter = waitOf(&batch[i], outcomes[i].RetryAfter)
		}
		if outcomes[i].Result != sinks.Unavailable {
			continue
		}
		switch t, _ := s.cluster.troubleOf(by.at); {
		// Unavailable would pause the whole sink, but other partitions may work. They have not been tried yet, because the relay
		// sends batches with an unknown outcome first.
		case by.kind == unsure:
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, outcomes[i].Detail)
		case by.kind == notTaken && s.cluster.others(t):
			outcomes[i] = sinks.Postpone(outcomes[i].Reason, outcomes[i].Detail, waitOf(&batch[i], max(firstPause, time.Until(t.until))))
		}
	}
	return outcomes
}

// troubled is the scope of a failure that prevented the delivery of a planned batch.
type troubled struct {
	kind int
	at   topicPartition
}

const (
	whole    = iota // the failure affects the whole sink; also the value if nothing failed
	notTaken        // only the partition failed, and it certainly does not have the batch
	unsure          // only the partition failed, and it may have the batch
)

// sendLine sends the planned batches of one partition. It stops after the first batch whose
// outcome is unknown: if the broker doesn't have that batch, it would refuse the next one
// because of the gap in the sequence numbers.
func (s *IdempotentSink) sendLine(ctx context.Context, until time.Time, line []plannedBatch, batch []sinks.Message, outcomes []sinks.Outcome, by []troubled) {
	stopped := false
	for _, e := range line {
		said, kind := sinks.All(len(e.members), sinks.Cancelled()), whole
		if !stopped {
			messages := make([]sinks.Message, len(e.members))
			for n, i := range e.members {
				messages[n] = batch[i]
			}
			said, kind = s.sendPlanned(ctx, until, e, messages)
		}
		for n, i := range e.members {
			outcomes[i], by[i] = said[n], troubled{kind, e.id.to}
			stopped = stopped || sinks.IsOpen(said[n])
		}
	}
}

// sendPlanned sends a complete batch if it has never been sent, or if the broker would recognise
// a repetition. For any other batch, sendPlanned finds out whether an earlier Send has written
// the batch. If the batch fails, it also returns the scope of the failure.
func (s *IdempotentSink) sendPlanned(ctx context.Context, until time.Time, e plannedBatch, messages []sinks.Message) ([]sinks.Outcome, int) {
	n := len(messages)
	if e.err != nil {
		return sinks.All(n, sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, e.err.Error())), whole
	}
	if ctx.Err() != nil || !enter(ctx, s.slots) {
		return sinks.All(n, sinks.Cancelled()), whole
	}
	defer func() { <-s.slots }()
	records, complete := s.recordsOf(ctx, messages, e.id.to.topic)
	first := complete && s.identity.isFirst(e.id, n)
	if !complete || !first && !s.remembered(e.id, messages) {
		return s.lookFor(ctx, e.id, messages)
	}
	v := s.produce(ctx, until, e.id.to, records, producer{id: e.id.producer, sequence: e.id.base})
	o := v.outcome
	switch {
	case !first && (v.again || o.Result == sinks.Reject): // the broker refuses the batch now, but may have written it for an earlier Send, before the topic's limits changed
		return s.lookFor(ctx, e.id, messages)
	case v.again || o.Result == sinks.Delivered || o.Result == sinks.Retry && o.Reason == sinks.ReasonServerError:
		return s.judge(ctx, e.id, messages, v)
	case o.Result == sinks.Retry: // the answer was lost
		s.cluster.fails(e.id.to, until.Add(-s.options.LeaderTimeout), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, o.Detail))
		return sinks.All(n, o), whole
	case first && v.local:
		return sinks.All(n, o), notTaken
	case first || ctx.Err() != nil || !v.local && !v.ofTopic:
		return sinks.All(n, o), whole
	}
	if s.gone(ctx, e.id) {
		return sinks.All(n, o), whole
	}
	return sinks.All(n, sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, o.Detail)), unsure
}

// gone reports whether the partition of a batch no longer exists and so can't have the batch. It
// returns true only after the brokers have reported this for LeaderTimeout, because a broker that has
// just started may not know the partition yet.
func (s *IdempotentSink) gone(ctx context.Context, id batchID) bool {
	for until := time.Now().Add(s.options.LeaderTimeout); ; {
		topics, err := s.cluster.ask(ctx, []string{id.to.topic})
		if err != nil {
			return false
		}
		t := topics[id.to.topic]
		if unknown := errors.Is(t.err, kafkago.UnknownTopicOrPartition); !unknown && (t.err != nil || id.to.partition < len(t.leaders)) {
			return false
		}
		if !pause(ctx, until, 5) {
			return ctx.Err() == nil
		}
	}
}

// recordsOf makes the records of a batch. The result complete is false if a message is missing, or if a record
// can't be made because the sink's settings have changed or a schema can't be looked up.
func (s *IdempotentSink) recordsOf(ctx context.Context, messages []sinks.Message, topic string) (records []record, complete bool) {
	if len(messages) != messages[0].BatchRef.Size {
		return nil, false
	}
	r := newRun(s.Sink, messages)
	now, room := time.Now(), r.roomForHeaders()
	for i := range messages {
		var err error
		if r.records[i], err = r.recordOf(ctx, i, topic, now, room); err != nil || messages[i].BatchRef.Place != i {
			return nil, false
		}
		room = room[min(len(r.records[i].headers), len(room)):]
	}
	return r.records, true
}

// judge returns the outcomes of a batch, and the scope of a failure, according to the broker's answer.
func (s *IdempotentSink) judge(ctx context.Context, id batchID, messages []sinks.Message, v verdict) ([]sinks.Outcome, int) {
	n := len(messages)
	switch {
	case v.again:
		return s.turnedDown(id, n, v), whole
	case v.outcome.Result == sinks.Delivered:
		s.identity.taken(id, n, v.offset+int64(n))
		return delivered(id.to.partition, v.offset, n), whole
	}
	return s.explain(ctx, id, messages, v.outcome)
}

// turnedDown returns the outcomes of a batch that the broker refused because of one
// or more records. The messages that are not rejected are planned again.
func (s *IdempotentSink) turnedDown(id batchID, n int, v verdict) []sinks.Outcome {
	if v.smaller {
		s.identity.smaller(id.to, n)
	}
	outcomes := sinks.All(n, sinks.Blocked())
	for at, rejected := range v.rejected {
		outcomes[at] = rejected
	}
	return outcomes
}

// plannedBatch is a planned record batch, and the messages of this batch that Send has received.
type plannedBatch struct {
	id      batchID
	err     error // the error of parsing the batch's name, if any
	members []int // positions of its messages in Send's batch, in the planned order
}

// batchesOf groups messages by planned batch, and the batches by partition. The
// batches of a partition are sorted by producer and sequence, because a producer's
// batches must be sent in that order.
func batchesOf(batch []sinks.Message) map[topicPartition][]plannedBatch {
	byName := map[string]*plannedBatch{}
	for i := range batch {
		name := batch[i].BatchRef.Batch
		e := byName[name]
		if e == nil {
			e = &plannedBatch{}
			e.id, e.err = parseBatchID(name)
			byName[name] = e
		}
		e.members = append(e.members, i)
	}
	lines := map[topicPartition][]plannedBatch{}
	for _, e := range byName {
		slices.SortFunc(e.members, func(a, b int) int { return batch[a].BatchRef.Place - batch[b].BatchRef.Place })
		lines[e.id.to] = append(lines[e.id.to], *e)
	}
	for _, line := range lines {
		slices.SortFunc(line, func(a, b plannedBatch) int {
			return cmp.Or(cmp.Compare(a.id.producer, b.id.producer), cmp.Compare(a.id.base, b.id.base), a.members[0]-b.members[0])
		})
	}
	return lines
}

// batchID is the parsed name of a planned batch. It has all the data that another relay needs
// to send the batch again, or to find out whether it was written.
type batchID struct {
	cluster  string // cluster id: a producer id is valid only in its cluster
	producer int64
	base     int32 // sequence of the first record
	to       topicPartition
	end      int64     // end offset of the log that was known at the time of the plan: the batch can't have a lower offset
	at       time.Time // time of the plan, on the clock of the relay that made the plan
}

const batchIDFormat = "k1 %s %d %d %d %d %d %s"

func (s batchID) String() string {
	return fmt.Sprintf(batchIDFormat, s.cluster, s.producer, s.base, s.to.partition, s.end, s.at.Unix(), s.to.topic)
}

func parseBatchID(text string) (batchID, error) {
	var s batchID
	var seconds int64
	_, err := fmt.Sscanf(text, batchIDFormat, &s.cluster, &s.producer, &s.base, &s.to.partition, &s.end, &seconds, &s.to.topic)
	if err != nil || strings.Count(text, " ") != strings.Count(batchIDFormat, " ") {
		return batchID{}, fmt.Errorf("parse the name of a planned batch, %.100q (did another version write it?)", text)
	}
	s.at = time.Unix(seconds, 0)
	return s, nil
}
