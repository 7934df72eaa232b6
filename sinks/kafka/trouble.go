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

// Trouble of one topic or of one partition holds up that topic's or partition's messages only:
// they are postponed. The sink is unavailable where all messages go to one topic, or where
// nothing was delivered to any partition between two failures of this one.

// trouble is that of a partition: it has no leader, or its leader takes nothing.
type trouble struct {
	since time.Time // when the Send before the last one that it failed in began; the last one, if it is the first
	began time.Time // when the last one did
	at    time.Time // of its last failure
	until time.Time // nothing is sent to the partition before
	tries int
	why   sinks.Outcome
}

const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	longestWait  = time.Minute // of a message
)

// pauseAfter is how long a topic or partition is left alone after failures in a row.
func pauseAfter(tries int) time.Duration {
	return min(longestPause, firstPause<<min(tries-1, 10))
}

// fails notes that a partition's leader took nothing from a Send that began then.
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

// works notes that a partition's leader took a record batch.
func (c *cluster) works(p topicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delivered = time.Now()
	delete(c.troubles, p)
}

// troubleOf returns a partition's trouble; resting says that nothing is to be sent to it now.
func (c *cluster) troubleOf(p topicPartition) (t trouble, resting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.troubles[p]; known != nil {
		t = *known
	}
	return t, time.Now().Before(t.until)
}

// others says that another partition has taken something meanwhile.
func (c *cluster) others(t trouble) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered.After(t.since)
}

// suspend remembers for a while that these topics can't be written to, so that they aren't asked
// for with each Send. It returns the topics with the time until when.
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

// topicTrouble is the outcome of messages whose topic can't be written to.
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

// ofTopic is the outcome of messages whose topic is in trouble. It is the sink's trouble where
// all messages go to the one topic.
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

// waitOf is how long a message is postponed, this long at least: the longer, the older it is, and
// not as long as the others that are postponed with it.
func waitOf(m *sinks.Message, least time.Duration) time.Duration {
	wait := max(least, min(time.Since(m.CreatedAt)/4, longestWait))
	return wait + rand.N(wait/4+1)
}

// apart decides what the trouble of partitions is to their messages, once all that can be
// delivered was. A sink that has delivered nothing else is unavailable, with the partition as
// the destination. If it was so before, and not all of the cluster is in trouble, the messages
// make room for those of other partitions, all but one.
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

// anySound says that some partition is not in trouble, as far as brokers can tell: of the topics
// of these names, or of any. In an outage of the cluster none is.
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
