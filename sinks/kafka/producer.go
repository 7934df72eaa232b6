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

// identity is who this process is to the brokers: some producers, each with its state. A producer has one plan at a time, so that what becomes of
// one plan is nothing to another; only when the brokers have all of it is the
// producer used again. A sequence belongs to one planned batch for ever.
type identity struct {
	mu   sync.Mutex
	free []*producerState         // the brokers have all that was planned for them
	busy map[int64]*producerState // by producer: planned, and not known to be there
	ends map[topicPartition]logEnd
	most map[topicPartition]int // records that a batch may have, after one was refused
}

// logEnd is where a partition's log ended at some time.
type logEnd struct {
	offset int64
	at     time.Time
}

// endAge is how old that may be: others may write, and a search for a batch begins
// where the log ended when the batch was planned.
const endAge = time.Minute

// producerState is how far a producer has come with each partition.
type producerState struct {
	producer int64
	next     map[topicPartition]int32 // the sequence of the next record
	open     map[topicPartition]bool  // its last batch is not known to be there
	unsent   map[topicPartition]bool  // its last batch was not sent yet
}

func newIdentity() *identity {
	return &identity{busy: map[int64]*producerState{}, ends: map[topicPartition]logEnd{}, most: map[topicPartition]int{}}
}

func newState(producer int64) *producerState {
	return &producerState{producer: producer, next: map[topicPartition]int32{}, open: map[topicPartition]bool{}, unsent: map[topicPartition]bool{}}
}

// forgotten is how many producers may be busy: of most of those nobody will ever
// know better, and to forget one costs another id.
const forgotten = 64

// begin takes a state that has room for so many more records, for a plan of its
// own; nil if there is none.
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

// reserve gives n records of a partition their sequences, for good.
func (i *identity) reserve(l *producerState, p topicPartition, n int) (base int32, end int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	base = l.next[p]
	l.next[p], l.open[p], l.unsent[p] = base+int32(n), true, true
	return base, i.ends[p].offset
}

// planned ends a plan. Where nothing came of it, its state is free at once.
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

// taken notes that the broker has a batch.
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

// isFirst says that a batch of n is sent for the first time: no broker can have it.
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

// smaller has the next batches of a partition be smaller than this one.
func (i *identity) smaller(p topicPartition, n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.most[p] = max(1, n/2)
}

func (i *identity) bound(p topicPartition) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.most[p]
}

// unknownEnds are the partitions of which no end is known that is new enough.
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

// learnEnds asks where the logs of these partitions end, where nothing new enough is known, and returns
// the errors of those that don't say. Once a leader can't be reached it asks for no others.
func (s *IdempotentSink) learnEnds(ctx context.Context, places []topicPartition) map[topicPartition]error {
	failed, unreachable := map[topicPartition]error{}, error(nil)
	for _, p := range s.identity.unknownEnds(places) {
		end, err := int64(0), unreachable
		if err == nil {
			end, err = s.endOf(ctx, p)
		}
		if code := kafkago.Unknown; errors.As(err, &code) && meant(code).moved { // once more, as the leader may have moved
			end, err = s.endOf(ctx, p)
		}
		if err == nil {
			s.identity.learnEnd(p, end)
			continue
		}
		if isConnection(err) {
			unreachable = err
		}
		failed[p] = fmt.Errorf("ask for the end of %s/%d: %w", p.topic, p.partition, err)
	}
	return failed
}

// newState returns the state of a producer that can write up to most records to each partition.
func (s *IdempotentSink) newState(ctx context.Context, places []topicPartition, most int) (*producerState, error) {
	if l := s.identity.begin(places, most); l != nil {
		return l, nil
	}
	id, err := s.newID(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for a producer's id: %w", err)
	}
	return newState(id), nil
}

// newID asks for an id that nobody has, again while a broker that has just
// started has none to give.
func (s *IdempotentSink) newID(ctx context.Context) (id int64, err error) {
	until := time.Now().Add(s.options.LeaderTimeout)
	for tries := 0; ; tries++ {
		id, err = s.askForID(ctx)
		if !errors.Is(err, kafkago.GroupLoadInProgress) && !errors.Is(err, kafkago.RequestTimedOut) || !pause(ctx, until, tries) {
			return id, err
		}
	}
}

// askForID asks one broker after the other.
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
