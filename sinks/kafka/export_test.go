package kafka

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"github.com/rowrelay/rowrelay/sinks"
)

// StickTo makes the next batch without keys go to a partition, if the partition has
// a leader.
func StickTo(s *Sink, partition int) { s.cluster.turns.Store(uint32(partition) - 1) }

// Age makes the sink's idle connections older.
func Age(s *Sink, by time.Duration) {
	for _, connections := range s.brokers.idle {
		for _, c := range connections {
			c.usedAt = c.usedAt.Add(-by)
		}
	}
}

// AgeTopics makes the sink's cached topics older.
func AgeTopics(s *Sink, by time.Duration) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	for name, t := range s.cluster.topics {
		aged := *t
		aged.at = t.at.Add(-by)
		s.cluster.topics[name] = &aged
	}
}

// PartitionOf returns the partition of a key in a topic with this number of partitions.
func PartitionOf(key string, partitions int) int {
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	return partitionOfKey(key, all)
}

// Plain encodes records without a producer. Times are in milliseconds, and each
// record has one header.
func Plain(how compress.Compression, times []int64, keys []string, values [][]byte, name, value string) ([]byte, error) {
	records := make([]record, len(times))
	for i := range times {
		records[i] = record{time: times[i], key: keys[i], value: values[i], headers: []header{{name, value}}}
	}
	return encode(nil, records, how, noProducer)
}

// Encoded returns the record batch of a single message.
func Encoded(s *Sink, m sinks.Message) ([]byte, error) {
	r, err := s.record(&m, m.Topic, time.Now(), make([]header, len(m.Headers)+ownHeaders))
	if err != nil {
		return nil, err
	}
	batch, err := encode(nil, []record{r}, compressions[s.options.Compression], noProducer)
	return batch[prefixBytes:], err
}

// Idempotent returns an idempotent sink that uses a plain sink.
func Idempotent(s *Sink) *IdempotentSink { return &IdempotentSink{s, newIdentity(), newSearches()} }

// Restamp changes the age in the name of a planned batch, the cluster unless the
// new one is empty, and the producer unless the new one is negative.
func Restamp(name, cluster string, producer int64, age time.Duration) (string, error) {
	s, err := parseBatchID(name)
	if cluster != "" {
		s.cluster = cluster
	}
	if producer >= 0 {
		s.producer = producer
	}
	s.at = s.at.Add(-age)
	return s.String(), err
}

// AgeEnds makes the sink's cached end offsets older.
func AgeEnds(s *IdempotentSink, by time.Duration) {
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	for p, end := range s.identity.ends {
		s.identity.ends[p] = logEnd{end.offset, end.at.Add(-by)}
	}
}

// Rest ends the pauses of failing topics and partitions.
func Rest(s *Sink) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	for name, t := range s.cluster.topics {
		rested := *t
		rested.again = time.Time{}
		s.cluster.topics[name] = &rested
	}
	for _, t := range s.cluster.troubles {
		t.until = time.Time{}
	}
}

// LookUp looks up the schema of a subject.
func LookUp(ctx context.Context, s *Sink, subject string) error {
	_, err := s.schemas.registry.get(ctx, subject)
	return err
}

// AgeSchemas makes the sink's cached schemas, and the last failure of the registry, older.
func AgeSchemas(s *Sink, by time.Duration) {
	r := s.schemas.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, l := range r.subjects {
		aged := *l
		aged.until = l.until.Add(-by)
		r.subjects[name] = &aged
	}
	if r.failure != nil {
		aged := *r.failure
		aged.until = aged.until.Add(-by)
		r.failure = &aged
	}
}
