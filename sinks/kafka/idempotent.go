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

// IdempotentSink writes as [Sink] does, and so that no record is in its topic
// twice, even where a relay dies between the broker's answer and the mark. A
// broker recognises a record batch that comes again by its producer's id and the
// sequences of its first and last record; the relay writes these down before it
// sends. README.md has what this costs, and where it ends.
//
// Its methods are called as [sinks.Deduplicating] says.
type IdempotentSink struct {
	*Sink
	identity *identity
	searches *searches
}

var _ sinks.Deduplicating = (*IdempotentSink)(nil)

// NewIdempotent returns a sink that writes to a cluster of Kafka 2.8 or newer.
// It makes no connection. The error has all that is wrong with the options, and
// shows no secret.
func NewIdempotent(options Options) (*IdempotentSink, error) {
	s, err := New(options)
	if err != nil {
		return nil, err
	}
	return &IdempotentSink{s, newIdentity(), newSearches()}, nil
}

// Plan gives the next record batch of each partition its sequences. What has no
// room in it waits for the next plan.
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
		if t, _ := s.cluster.troubleOf(l.topicPartition); t.tries > 1 && len(l.waiting) > 1 && !s.cluster.others(t) { // one is enough to try it
			for _, i := range l.waiting[1:] {
				r.trouble(i, l.topicPartition, t.why)
			}
			l.waiting = l.waiting[:1]
		}
	}
	line, err := s.newState(ctx, places, len(batch))
	if err != nil {
		r.settleRest(s.troubled(ctx, err))
		return nil, r.outcomes
	}
	batchRefs := make([]sinks.BatchRef, len(batch))
	for _, l := range r.ready() {
		s.plan(line, l, batchRefs)
	}
	s.identity.planned(line)
	for i := range batch {
		if batchRefs[i] == (sinks.BatchRef{}) && !r.settled[i] {
			r.settle(i, sinks.Blocked())
		}
	}
	return batchRefs, r.outcomes
}

// plan gives the records of a partition's batch their references.
func (s *IdempotentSink) plan(line *producerState, l *partitionQueue, batchRefs []sinks.BatchRef) {
	n := len(l.chunk)
	base, end := s.identity.reserve(line, l.topicPartition, n)
	name := batchID{cluster: s.cluster.name(), producer: line.producer, base: base, to: l.topicPartition, end: end, at: time.Now()}.String()
	for at, i := range l.chunk {
		batchRefs[i] = sinks.BatchRef{Batch: name, Size: n, Place: at}
	}
}

// Send writes record batches as they were planned, those of one partition one
// after the other.
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
		case by.kind == unsure: // also where nothing else was delivered: these batches go first, so nothing else could be
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, outcomes[i].Detail)
		case by.kind == notTaken && s.cluster.others(t):
			outcomes[i] = sinks.Postpone(outcomes[i].Reason, outcomes[i].Detail, waitOf(&batch[i], max(firstPause, time.Until(t.until))))
		}
	}
	return outcomes
}

// troubled says whose trouble it is that a planned batch is not delivered.
type troubled struct {
	kind int
	at   topicPartition
}

const (
	whole    = iota // the sink's
	notTaken        // the partition's, and it certainly has nothing of the batch
	unsure          // the partition's, and it may have the batch
)

// sendLine stops after the first batch whose delivery status is unknown: the next ones would
// leave a gap.
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

// sendPlanned writes a batch that is whole, and looks for one that is not. It says whose trouble it
// is if that comes to nothing.
func (s *IdempotentSink) sendPlanned(ctx context.Context, until time.Time, e plannedBatch, messages []sinks.Message) ([]sinks.Outcome, int) {
	n := len(messages)
	if e.err != nil {
		return sinks.All(n, sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, e.err.Error())), whole
	}
	if ctx.Err() != nil || !enter(ctx, s.slots) {
		return sinks.All(n, sinks.Cancelled()), whole
	}
	defer func() { <-s.slots }()
	records, complete := s.recordsOf(messages, e.id.to.topic)
	first := complete && s.identity.isFirst(e.id, n)
	if !complete || !first && !s.remembered(e.id, messages) {
		return s.lookFor(ctx, e.id, messages)
	}
	v := s.produce(ctx, until, e.id.to, records, producer{id: e.id.producer, sequence: e.id.base})
	o := v.outcome
	switch {
	case !first && (v.again || o.Result == sinks.Reject): // it may be there from before its topic's settings changed
		return s.lookFor(ctx, e.id, messages)
	case v.again || o.Result == sinks.Delivered || o.Result == sinks.Retry && o.Reason == sinks.ReasonServerError:
		return s.judge(ctx, e.id, messages, v)
	case o.Result == sinks.Retry: // its answer was lost
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

// gone says that the partition of a batch isn't there any more, and so hasn't the batch: for as long as
// LeaderTimeout no broker has named it. One that has just been started may not know of it yet.
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

// recordsOf makes the records of a batch. Where some can't be made, because a
// row is gone or the sink is set up otherwise than it was, it is not complete.
func (s *IdempotentSink) recordsOf(messages []sinks.Message, topic string) (records []record, complete bool) {
	if len(messages) != messages[0].BatchRef.Size {
		return nil, false
	}
	r := newRun(s.Sink, messages)
	now, room := time.Now(), r.roomForHeaders()
	for i := range messages {
		var err error
		if r.records[i], err = r.recordOf(i, topic, now, room); err != nil || messages[i].BatchRef.Place != i {
			return nil, false
		}
		room = room[min(len(r.records[i].headers), len(room)):]
	}
	return r.records, true
}

// judge says what a broker's answer means for each message of a batch.
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

// turnedDown is for a batch that was refused as a whole, because of some of its
// records or of any of them: the others are planned anew.
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

// plannedBatch is a record batch that was planned.
type plannedBatch struct {
	id      batchID
	err     error // the name can't be read
	members []int // its messages, in their order
}

// batchesOf sorts messages into record batches, and these by partition and by
// their sequences: a producer sends one batch after the other.
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

// batchID is what the name of a planned batch says: all by which another relay can
// send it again, or find out whether it is there.
type batchID struct {
	cluster  string // an id: a producer's is worth nothing in another cluster
	producer int64
	base     int32 // sequence of the first record
	to       topicPartition
	end      int64     // of the partition when this was planned: the batch is not before it
	at       time.Time // when this was planned, by the clock of its relay
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
		return batchID{}, fmt.Errorf("read the name of a planned batch, %.100q (was it made by another version?)", text)
	}
	s.at = time.Unix(seconds, 0)
	return s, nil
}
