package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// topics returns the topics of these names. What is missing is created, or looked
// for once more before its messages are parked: a broker that has just been
// started may not know of it yet.
func (s *Sink) topics(ctx context.Context, names []string) (map[string]*topic, error) {
	topics, err := s.cluster.look(ctx, names)
	if err != nil {
		return nil, err
	}
	missing := unknown(topics)
	switch {
	case len(missing) == 0:
		return topics, nil
	case s.options.CreateTopics:
		if err := s.create(ctx, missing); err != nil {
			return nil, err
		}
		return s.untilThere(ctx, names)
	case s.options.ParkUnknownTopics:
		pause(ctx, time.Now().Add(s.options.LeaderTimeout), 3)
		return s.cluster.look(ctx, names)
	}
	return topics, nil
}

func unknown(topics map[string]*topic) []string {
	var names []string
	for name, t := range topics {
		if errors.Is(t.err, kafkago.UnknownTopicOrPartition) {
			names = append(names, name)
		}
	}
	return names
}

func (s *Sink) create(ctx context.Context, names []string) error {
	request := &kafkago.CreateTopicsRequest{Addr: kafkago.TCP(s.cluster.candidates()[0])}
	for _, name := range names {
		request.Topics = append(request.Topics, kafkago.TopicConfig{
			Topic: name, NumPartitions: orBrokers(s.options.CreatePartitions), ReplicationFactor: orBrokers(s.options.CreateReplicas),
		})
	}
	answer, err := s.client.CreateTopics(ctx, request)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for name, err := range answer.Errors {
		if err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) {
			return fmt.Errorf("create the topic %s: %w", name, err)
		}
	}
	return nil
}

// orBrokers leaves a number to the broker.
func orBrokers(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// untilThere waits until all brokers know of new topics, or as good as all.
func (s *Sink) untilThere(ctx context.Context, names []string) (map[string]*topic, error) {
	for until := time.Now().Add(s.options.LeaderTimeout); ; {
		topics, err := s.cluster.look(ctx, names)
		if err != nil || !starting(topics) || !pause(ctx, until, 2) {
			return topics, err
		}
	}
}

func starting(topics map[string]*topic) bool {
	for _, t := range topics {
		if errors.Is(t.err, kafkago.UnknownTopicOrPartition) || errors.Is(t.err, kafkago.LeaderNotAvailable) {
			return true
		}
	}
	return false
}

// pause waits before another try, longer each time, and not at all before the
// first. It says whether there is time for one.
func pause(ctx context.Context, until time.Time, tries int) bool {
	const longest = 250 * time.Millisecond
	wait := min(longest, 10*time.Millisecond<<min(tries, 5))
	if tries == 0 {
		wait = 0
	}
	return sleep(ctx, until, wait)
}

func sleep(ctx context.Context, until time.Time, wait time.Duration) bool {
	if time.Until(until) < wait {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
