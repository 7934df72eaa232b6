package kafka

import (
	"fmt"
	"strconv"

	"github.com/rowrelay/rowrelay/sinks"
)

// murmur2 is the hash by which Java's producer, and all that agree with it,
// choose the partition of a key.
func murmur2(key string) uint32 {
	const seed, m, r = 0x9747b28c, 0x5bd1e995, 24
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := (uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24) * m
		h = h*m ^ (k^k>>r)*m
	}
	for i := len(key) - 1; i >= 0; i-- {
		h ^= uint32(key[i]) << (8 * i)
	}
	if len(key) > 0 {
		h *= m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// partitionOf chooses a message's partition. The sticky one is that of the
// batch's messages without a key; it is chosen when the first of them is met.
func (s *Sink) partitionOf(m *sinks.Message, t *topic, sticky map[string]int) (int, error) {
	if text, explicit := m.Headers[s.options.PartitionHeader]; explicit && s.options.PartitionHeader != "" {
		return explicitPartition(s.options.PartitionHeader, text, t)
	}
	if m.Key != "" {
		return int(murmur2(m.Key)&0x7fffffff) % len(t.leaders), nil
	}
	partition, chosen := sticky[t.name]
	if !chosen {
		partition = t.next()
		sticky[t.name] = partition
	}
	return partition, nil
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
