package kafka

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// If a topic or partition fails, its messages are postponed, and all other messages are sent. But
// the sink is unavailable if the failing topic is the only one, or if no message was delivered to
// another partition between two failures of a partition.

// trouble is the state of a failing partition. For example, the partition has no leader, or
// its leader can't be reached.
type trouble struct {
	since time.Time // start of the Send with the second to last failure; equal to began after a single failure
	began time.Time // start of the Send with the last failure
	at    time.Time // time of the last failure
	until time.Time // nothing is sent to the partition before this time
	tries int       // consecutive failures
	why   sinks.Outcome
}

const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	longestWait  = time.Minute // the longest wait of a postponed message
)

// pauseAfter returns the pause of a topic or partition after the given number of consecutive
// failures.
func pauseAfter(tries int) time.Duration {
	return min(longestPause, firstPause<<min(tries-1, 10))
}

// fails records that a Send could not write to a partition. The argument began is the
// start of the Send.
func (c *cluster) fails(p topicPartition, began time.Time, why sinks.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, t := time.Now(), c.troubles[p]
	if t == nil {
		t = &trouble{began: began}
		c.troubles[p] = t
	}
	t.since, t.began = t.began, began
	t.tries++
	t.at, t.until, t.why = now, now.Add(pauseAfter(t.tries)), why
}

// works records that a record batch was written to a partition.
func (c *cluster) works(p topicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delivered = time.Now()
	delete(c.troubles, p)
}

// troubleOf returns the trouble of a partition. The result resting is true until the partition's
// pause ends.
func (c *cluster) troubleOf(p topicPartition) (t trouble, resting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.troubles[p]; known != nil {
		t = *known
	}
	return t, time.Now().Before(t.until)
}

// others reports whether a message was delivered to another partition after t.since.
func (c *cluster) others(t trouble) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered.After(t.since)
}

// suspend starts a pause for each topic that can't be written to, so that not every Send fetches
// the topic again. It returns all the given topics. For a topic in a pause, [topic.again] is the
// end of the pause.
func (c *cluster) suspend(topics map[string]*topic) map[string]*topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range topics {
		if t.err == nil || !t.again.IsZero() {
			continue
		}
		suspended := *t
		suspended.tries++
		suspended.again = time.Now().Add(pauseAfter(suspended.tries))
		topics[name] = &suspended
		if now := c.topics[name]; now == nil || now.err != nil {
			c.topics[name] = &suspended
		}
	}
	return topics
}

// topicTrouble returns the outcome of messages whose topic can't be written to.
func (s *Sink) topicTrouble(t *topic) sinks.Outcome {
	m := meant(t.err)
	detail := "the topic " + t.name + ": " + s.sanitize(t.err)
	switch unknown := errors.Is(t.err, kafkago.UnknownTopicOrPartition); {
	case unknown && s.options.ParkUnknownTopics:
		return sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, detail)
	case unknown:
		return s.ofTopic(sinks.ReasonConfig, detail)
	case m.result == sinks.Unavailable:
		return s.ofTopic(m.reason, detail)
	}
	return sinks.Fail(m.result, m.reason, detail)
}

// ofTopic returns the outcome of messages whose topic fails. If all messages go to one topic,
// the sink is unavailable; otherwise the messages are postponed.
func (s *Sink) ofTopic(reason sinks.Reason, detail string) sinks.Outcome {
	if s.topic.Places() == 0 {
		return sinks.Fail(sinks.Unavailable, reason, detail)
	}
	if reason == sinks.ReasonConfig {
		reason = sinks.ReasonUnroutable
	}
	return sinks.Postpone(reason, detail, firstPause)
}

func isPostponed(o sinks.Outcome) bool { return o.Result == sinks.Unsent && o.RetryAfter > 0 }

// waitOf returns how long to postpone a message: a quarter of its age, but at most longestWait, and
// at least the given time. It adds up to 25 % at random, so that messages don't return simultaneously.
func waitOf(m *sinks.Message, least time.Duration) time.Duration {
	wait := max(least, min(time.Since(m.CreatedAt)/4, longestWait))
	return wait + rand.N(wait/4+1)
}

// apart decides the outcomes of messages whose partition failed, after all other messages are
// settled. If a message was delivered to another partition since the partition's previous failure,
// the messages are postponed. Otherwise their outcome is Unavailable, with the partition as its
// Destination. There is one exception: if the partition has failed before and another partition is
// healthy, only the first of these messages is Unavailable. The other messages are postponed, so
// that the next batches have messages for other partitions.
func (r *run) apart(ctx context.Context) {
	tripped, sound := false, sync.OnceValue(func() bool { return r.sink.cluster.anySound(ctx, r.sink.fixed()) })
	for _, i := range slices.Sorted(maps.Keys(r.troubled)) {
		at := r.troubled[i]
		t, _ := r.sink.cluster.troubleOf(at)
		o := &r.outcomes[i]
		if o.Result != sinks.Unavailable {
			continue
		}
		if r.sink.cluster.others(t) || tripped && t.tries > 1 && sound() {
			*o = sinks.Postpone(o.Reason, o.Detail, waitOf(&r.batch[i], max(firstPause, time.Until(t.until))))
		} else {
			o.Destination, tripped = at.topic+"/"+strconv.Itoa(at.partition), true
		}
	}
}

// anySound reports whether any partition of the given topics is healthy: it has a leader, all its
// replicas are in sync, and the sink has not failed to write to it. If names is nil, anySound checks
// the partitions of all topics. In an outage of the whole cluster no partition is healthy.
func (c *cluster) anySound(ctx context.Context, names []string) bool {
	answer, err := c.client.Metadata(ctx, &kafkago.MetadataRequest{Addr: kafkago.TCP(c.candidates()[0]), Topics: names})
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(answer.Topics, func(t kafkago.Topic) bool {
		return !t.Internal && slices.ContainsFunc(t.Partitions, func(p kafkago.Partition) bool {
			return c.troubles[topicPartition{t.Name, p.ID}] == nil && p.Leader.Host != "" && len(p.Isr) == len(p.Replicas)
		})
	})
}
