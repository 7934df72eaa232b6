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

// identity is who this process is to the brokers, and how far it has come with
// each partition. A sequence belongs to one exact batch for ever: where the fate
// of one is not known, all goes on under another id.
type identity struct {
	mu        sync.Mutex
	id        int64 // -1: none yet
	sequences map[place]*sequence
	most      map[place]int // records that a batch may have, after one was refused
}

type sequence struct {
	next  int32 // of the next record
	open  bool  // the last batch that was planned is not known to be there
	end   int64 // of the partition, as far as is known
	known bool  // whether it is
}

func newIdentity() *identity {
	return &identity{id: -1, sequences: map[place]*sequence{}, most: map[place]int{}}
}

func (i *identity) at(p place) *sequence {
	if i.sequences[p] == nil {
		i.sequences[p] = &sequence{}
	}
	return i.sequences[p]
}

// spent says that another id is needed to write so many records to each place.
func (i *identity) spent(places []place, most int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range places {
		if s := i.at(p); s.open || int(s.next) > math.MaxInt32-most {
			return true
		}
	}
	return i.id < 0
}

// renew begins anew under another id.
func (i *identity) renew(id int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id = id
	for _, s := range i.sequences {
		s.next, s.open = 0, false
	}
}

// reserve gives n records of a place their sequences, for good.
func (i *identity) reserve(p place, n int) (id int64, base int32, end int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.at(p)
	base = s.next
	s.next, s.open = s.next+int32(n), true
	return i.id, base, s.end
}

// taken notes that the broker has a batch.
func (i *identity) taken(st stamp, n int, end int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.most, st.to)
	s := i.at(st.to)
	s.end = max(s.end, end)
	if st.producer == i.id && s.next == st.base+int32(n) {
		s.open = false
	}
}

// smaller has the next batches of a place be smaller than this one.
func (i *identity) smaller(p place, n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.most[p] = max(1, n/2)
}

func (i *identity) bound(p place) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.most[p]
}

// unknownEnds are the places of which no end is known.
func (i *identity) unknownEnds(places []place) (unknown []place) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range places {
		if !i.at(p).known {
			unknown = append(unknown, p)
		}
	}
	return unknown
}

func (i *identity) learnEnd(p place, end int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.at(p)
	s.end, s.known = max(s.end, end), true
}

// prepare makes the producer ready to write up to most records to each place.
func (s *IdempotentSink) prepare(ctx context.Context, places []place, most int) error {
	if s.identity.spent(places, most) {
		id, err := s.newID(ctx)
		if err != nil {
			return fmt.Errorf("ask for a producer's id: %w", err)
		}
		s.identity.renew(id)
	}
	for _, p := range s.identity.unknownEnds(places) {
		end, err := s.endOf(ctx, p)
		if err != nil {
			return fmt.Errorf("ask for the end of %s/%d: %w", p.topic, p.partition, err)
		}
		s.identity.learnEnd(p, end)
	}
	return nil
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

func (s *IdempotentSink) endOf(ctx context.Context, p place) (int64, error) {
	leader, err := s.leader(ctx, p)
	if err != nil {
		return 0, err
	}
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
