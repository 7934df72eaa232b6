package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// identity manages the producers of this process. A producer has one plan at a time,
// so that the outcome of a plan doesn't affect another plan. It gets another plan only
// when the brokers have written all batches of its current plan. No two batches of a
// producer have the same sequence numbers in a partition.
type identity struct {
	mu   sync.Mutex
	free []*producerState         // producers whose planned batches are all written
	busy map[int64]*producerState // by producer id: producers with batches that may not have been written yet
	ends map[topicPartition]logEnd
	most map[topicPartition]int // maximum number of records in a batch, after the broker refused a larger one
}

// logEnd is the end offset of a partition's log at a point in time.
type logEnd struct {
	offset int64
	at     time.Time
}

// endAge is the maximum age of a logEnd. A search for a batch starts at the end
// offset that was known when the batch was planned. The older that offset is, the
// more records of other producers the search has to read.
const endAge = time.Minute

// producerState is the state of a producer in each partition.
type producerState struct {
	producer int64
	next     map[topicPartition]int32 // the sequence of the next record
	open     map[topicPartition]bool  // the last batch may not have been written yet
	unsent   map[topicPartition]bool  // the last batch has not been sent yet
}

func newIdentity() *identity {
	return &identity{busy: map[int64]*producerState{}, ends: map[topicPartition]logEnd{}, most: map[topicPartition]int{}}
}

func newState(producer int64) *producerState {
	return &producerState{producer: producer, next: map[topicPartition]int32{}, open: map[topicPartition]bool{}, unsent: map[topicPartition]bool{}}
}

// forgotten is the maximum number of busy producers. The next plan after that drops
// all of them: this process will probably never learn the outcomes of most of their
// plans, and the only cost of dropping a producer is a new id.
const forgotten = 64

// begin takes a free producer for a new plan. It returns nil if no producer is
// free, or if the producer has too few sequences left in a partition to write the
// given number of records.
func (i *identity) begin(places []topicPartition, most int) *producerState {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.free) == 0 {
		return nil
	}
	l := i.free[len(i.free)-1]
	i.free = i.free[:len(i.free)-1]
	for _, p := range places {
		if int(l.next[p]) > math.MaxInt32-most {
			return nil
		}
	}
	return l
}

// reserve assigns sequences to n records of a partition, and returns the first
// sequence and the known end offset of the log. It never assigns a sequence twice.
func (i *identity) reserve(l *producerState, p topicPartition, n int) (base int32, end int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	base = l.next[p]
	l.next[p], l.open[p], l.unsent[p] = base+int32(n), true, true
	return base, i.ends[p].offset
}

// planned records the end of a Plan. The producer becomes busy, or free again if the plan has no batch.
func (i *identity) planned(l *producerState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(l.open) == 0 {
		i.free = append(i.free, l)
		return
	}
	if len(i.busy) >= forgotten {
		clear(i.busy)
	}
	i.busy[l.producer] = l
}

// taken records that the broker has written a batch of n records. The argument end is
// the offset after the last record, or 0 if the offset is unknown.
func (i *identity) taken(id batchID, n int, end int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.most, id.to)
	if known, there := i.ends[id.to]; there && end > known.offset {
		i.ends[id.to] = logEnd{end, time.Now()}
	}
	l := i.busy[id.producer]
	if l == nil || l.next[id.to] != id.base+int32(n) {
		return
	}
	if delete(l.open, id.to); len(l.open) == 0 {
		delete(i.busy, id.producer)
		i.free = append(i.free, l)
	}
}

// isFirst reports whether a batch of n records has never been sent, and marks it as sent.
// No broker can have a batch that was never sent.
func (i *identity) isFirst(id batchID, n int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := i.busy[id.producer]
	if l == nil || l.next[id.to] != id.base+int32(n) || !l.unsent[id.to] {
		return false
	}
	delete(l.unsent, id.to)
	return true
}

// smaller limits the next batches of a partition to half of n records.
func (i *identity) smaller(p topicPartition, n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.most[p] = max(1, n/2)
}

// bound returns the maximum number of records in a batch for a partition; 0 means no limit.
func (i *identity) bound(p topicPartition) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.most[p]
}

// unknownEnds returns the partitions whose end offset is unknown or older than endAge.
func (i *identity) unknownEnds(places []topicPartition) (unknown []topicPartition) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range places {
		if end, known := i.ends[p]; !known || time.Since(end.at) > endAge {
			unknown = append(unknown, p)
		}
	}
	return unknown
}

func (i *identity) learnEnd(p topicPartition, end int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ends[p] = logEnd{max(i.ends[p].offset, end), time.Now()}
}

// learnEnds requests the end offsets of the partitions whose end offset is unknown or older than endAge. It
// returns the errors by partition. If a leader can't be reached, it requests no further offsets.
func (s *IdempotentSink) learnEnds(ctx context.Context, places []topicPartition) map[topicPartition]error {
	failed, unreachable := map[topicPartition]error{}, error(nil)
	for _, p := range s.identity.unknownEnds(places) {
		end, err := int64(0), unreachable
		if err == nil {
			end, err = s.endOf(ctx, p)
		}
		if code := kafkago.Unknown; errors.As(err, &code) && meant(code).moved { // once more: the leader may have moved
			end, err = s.endOf(ctx, p)
		}
		if err == nil {
			s.identity.learnEnd(p, end)
			continue
		}
		if isConnection(err) {
			unreachable = err
		}
		failed[p] = fmt.Errorf("get the end offset of %s/%d: %w", p.topic, p.partition, err)
	}
	return failed
}

// newState returns the state of a free or a new producer that can write the given number of records to each partition.
func (s *IdempotentSink) newState(ctx context.Context, places []topicPartition, most int) (*producerState, error) {
	if l := s.identity.begin(places, most); l != nil {
		return l, nil
	}
	id, err := s.newID(ctx)
	if err != nil {
		return nil, fmt.Errorf("get a producer id: %w", err)
	}
	return newState(id), nil
}

// newID requests a new producer id. It tries again if the broker can't assign one yet
// because it has just started.
func (s *IdempotentSink) newID(ctx context.Context) (id int64, err error) {
	until := time.Now().Add(s.options.LeaderTimeout)
	for tries := 0; ; tries++ {
		id, err = s.askForID(ctx)
		if !errors.Is(err, kafkago.GroupLoadInProgress) && !errors.Is(err, kafkago.RequestTimedOut) || !pause(ctx, until, tries) {
			return id, err
		}
	}
}

// askForID requests a producer id from one broker after another, until one of them answers.
func (s *IdempotentSink) askForID(ctx context.Context) (int64, error) {
	var problems []error
	for _, address := range s.cluster.candidates() {
		answer, err := s.client.InitProducerID(ctx, &kafkago.InitProducerIDRequest{Addr: kafkago.TCP(address)})
		if err == nil && answer.Error == nil {
			return int64(answer.Producer.ProducerID), nil
		}
		if err == nil {
			err = answer.Error
		}
		if problems = append(problems, err); ctx.Err() != nil || !isConnection(err) {
			break
		}
	}
	return 0, errors.Join(problems...)
}

// endOf requests the end offset of a partition's log.
func (s *IdempotentSink) endOf(ctx context.Context, p topicPartition) (end int64, err error) {
	leader, t, err := s.leader(ctx, p)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			s.cluster.outdated(t)
		}
	}()
	answer, err := s.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{
		Addr: kafkago.TCP(leader), Topics: map[string][]kafkago.OffsetRequest{p.topic: {kafkago.LastOffsetOf(p.partition)}},
	})
	if err != nil {
		return 0, err
	}
	for _, partition := range answer.Topics[p.topic] {
		if partition.Partition == p.partition {
			return partition.LastOffset, partition.Error
		}
	}
	return 0, kafkago.UnknownTopicOrPartition
}
