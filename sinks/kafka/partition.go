package kafka

import (
	"fmt"
	"strconv"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// partitionOf chooses a message's partition. The sticky one is that of the
// batch's messages without a key; it is chosen when the first of them is met.
func (s *Sink) partitionOf(m *sinks.Message, t *topic, sticky map[string]int) (int, error) {
	if text, explicit := m.Headers[s.options.PartitionHeader]; explicit && s.options.PartitionHeader != "" {
		return explicitPartition(s.options.PartitionHeader, text, t)
	}
	if m.Key != "" {
		return partitionOfKey(m.Key, t.partitions), nil
	}
	partition, chosen := sticky[t.name]
	if !chosen {
		partition = t.next()
		sticky[t.name] = partition
	}
	return partition, nil
}

// partitionOfKey is what Java's producer, and all that agree with it, choose.
func partitionOfKey(key string, partitions []int) int {
	return kafkago.Murmur2Balancer{}.Balance(kafkago.Message{Key: []byte(key)}, partitions...)
}

func explicitPartition(name, text string, t *topic) (int, error) {
	partition, err := strconv.Atoi(text)
	if err != nil || partition < 0 {
		return 0, fmt.Errorf("the header %q is no partition's number", name)
	}
	if partition >= len(t.leaders) {
		return 0, fmt.Errorf("the header %q asks for partition %d: the topic %s has %d partitions", name, partition, t.name, len(t.leaders))
	}
	return partition, nil
}
