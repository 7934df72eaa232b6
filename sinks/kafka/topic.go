package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func notInTopics(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}

// parseTopic parses the topic setting. Its errors complete the sentence "the topic …".
func parseTopic(text string) (settings.Template, error) {
	t, err := settings.ParseTemplate(text)
	switch {
	case err != nil:
		return t, err
	case strings.ContainsFunc(strings.Join(t.Texts(), ""), notInTopics):
		return t, errors.New("may contain only letters, digits, dots, underscores and hyphens")
	case t.Places() == 0:
		return t, checkTopic(text)
	}
	return t, nil
}

// checkTopic checks a topic's name. Its errors complete the sentence "the topic …".
func checkTopic(name string) error {
	const longest = 249
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > longest:
		return fmt.Errorf("is longer than the %d characters that Kafka allows", longest)
	case name == "." || name == "..":
		return errors.New("must not be \".\" or \"..\"")
	case strings.ContainsFunc(name, notInTopics):
		return errors.New("has a character that Kafka doesn't allow in topic names: use letters, digits, dots, underscores and hyphens")
	}
	return nil
}

// topicOf returns the topic of a message.
func (s *Sink) topicOf(m *sinks.Message) (string, error) {
	name, err := s.topic.Fill(&m.Message, settings.NotEmpty)
	if err != nil {
		return "", fmt.Errorf("the topic %w", err)
	}
	if s.topic.Places() > 0 {
		if err := checkTopic(name); err != nil {
			return "", fmt.Errorf("the topic %q %w", name, err)
		}
	}
	return name, nil
}

// partitionOf chooses a message's partition. In a batch, all messages without a key that go
// to the same topic share one partition. partitionOf chooses it for the first of these
// messages, and stores it in sticky, by topic.
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

// partitionOfKey returns the partition that Kafka's Java producer chooses for the key.
func partitionOfKey(key string, partitions []int) int {
	return kafkago.Murmur2Balancer{}.Balance(kafkago.Message{Key: []byte(key)}, partitions...)
}

func explicitPartition(name, text string, t *topic) (int, error) {
	partition, err := strconv.Atoi(text)
	if err != nil || partition < 0 {
		return 0, fmt.Errorf("the header %q is not a partition number", name)
	}
	if partition >= len(t.leaders) {
		return 0, fmt.Errorf("the header %q asks for partition %d: the topic %s has %d partitions", name, partition, t.name, len(t.leaders))
	}
	return partition, nil
}
