package kafka

import (
	"maps"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// topic is what is known of a topic. It doesn't change.
type topic struct {
	name    string
	leaders []string // the address of each partition's leader; empty where it has none
	err     error    // why the topic can't be written to
	at      time.Time

	partitions []int // all numbers, as the choice by a key wants them

	turns *atomic.Uint32 // for messages without a key
}

// next returns a partition for messages without a key: each in turn that has a
// leader.
func (t *topic) next() int {
	first := int(t.turns.Add(1) % uint32(len(t.leaders)))
	for i := range t.leaders {
		if partition := (first + i) % len(t.leaders); t.leaders[partition] != "" {
			return partition
		}
	}
	return first
}

// learn remembers an answer about topics of these names, and returns them.
func (c *cluster) learn(names []string, answer *kafkago.MetadataResponse) map[string]*topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.id = c.known[:0], answer.ClusterID
	for _, broker := range answer.Brokers {
		c.known = append(c.known, addressOf(broker))
	}
	maps.DeleteFunc(c.topics, func(_ string, t *topic) bool { return time.Since(t.at) > metadataAge })
	learned := make(map[string]*topic, len(names))
	for _, name := range names {
		learned[name] = &topic{name: name, err: kafkago.UnknownTopicOrPartition, at: time.Now(), turns: &c.turns}
	}
	for i := range answer.Topics {
		if t := learned[answer.Topics[i].Name]; t != nil {
			t.leaders, t.err = leadersOf(answer.Topics[i])
			for n := range t.leaders {
				t.partitions = append(t.partitions, n)
			}
		}
	}
	maps.Copy(c.topics, learned)
	return learned
}

func leadersOf(t kafkago.Topic) ([]string, error) {
	if t.Error != nil {
		return nil, t.Error
	}
	if len(t.Partitions) == 0 {
		return nil, kafkago.LeaderNotAvailable
	}
	leaders := make([]string, len(t.Partitions))
	for _, partition := range t.Partitions {
		if partition.ID < len(leaders) && partition.Leader.Host != "" {
			leaders[partition.ID] = addressOf(partition.Leader)
		}
	}
	return leaders, nil
}

func addressOf(broker kafkago.Broker) string {
	return net.JoinHostPort(broker.Host, strconv.Itoa(broker.Port))
}
