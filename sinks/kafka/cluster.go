package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// metadataAge is how long the metadata of a topic is used. The sink finds an added
// partition after at most this time. If a partition has a new leader, the sink
// refreshes the metadata immediately.
const metadataAge = time.Minute

// cluster requests metadata from brokers and caches it for the topics in use.
type cluster struct {
	client *kafkago.Client
	seeds  []string
	turn   chan struct{} // semaphore: one fetch at a time; callers that waited for a fetch use its result

	mu      sync.Mutex
	topics  map[string]*topic
	known   []string             // the brokers in the latest metadata
	id      string               // the cluster id
	resting map[string]time.Time // by broker: the end of the pause that the broker asked for

	troubles  map[topicPartition]*trouble
	delivered time.Time // the last delivery to any partition
	turns     atomic.Uint32
}

func newCluster(client *kafkago.Client, seeds []string) *cluster {
	c := &cluster{client: client, seeds: seeds, turn: make(chan struct{}, 1), topics: map[string]*topic{}, resting: map[string]time.Time{}, troubles: map[topicPartition]*trouble{}}
	c.turns.Store(rand.Uint32() / 2) // so that relays don't all start with the same partition
	return c
}

// topic is the metadata of a topic. It is immutable.
type topic struct {
	name    string
	leaders []string // the address of each partition's leader; "" if the partition has none
	err     error    // why the topic can't be written to; nil if it can
	at      time.Time
	again   time.Time // with an error: when to fetch the topic again
	tries   int       // consecutive fetches that returned an error

	partitions []int // all partition numbers, for partitionOfKey

	turns *atomic.Uint32 // the cluster's counter, with which topic.next rotates through the partitions
}

// next returns a partition for messages without a key. It rotates through the
// partitions that have a leader.
func (t *topic) next() int {
	first := int(t.turns.Add(1) % uint32(len(t.leaders)))
	for i := range t.leaders {
		if partition := (first + i) % len(t.leaders); t.leaders[partition] != "" {
			return partition
		}
	}
	return first
}

// topics returns the topics with the given names. With CreateTopics it creates missing
// topics. With ParkUnknownTopics it fetches a missing topic once more before its messages
// are parked, because a broker that has just started may not know the topic yet. If messages
// choose their topics, a topic that can't be written to is fetched again only after a pause.
func (s *Sink) topics(ctx context.Context, names []string) (map[string]*topic, error) {
	topics, err := s.cluster.fetch(ctx, names)
	if err != nil {
		return nil, err
	}
	var missing []string
	for name, t := range topics {
		if errors.Is(t.err, kafkago.UnknownTopicOrPartition) && t.again.IsZero() {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 0:
	case s.options.CreateTopics:
		topics, err = s.createTopics(ctx, names, missing)
	case s.options.ParkUnknownTopics:
		pause(ctx, time.Now().Add(s.options.LeaderTimeout), 3)
		topics, err = s.cluster.fetch(ctx, names)
	}
	if err != nil {
		return nil, err
	}
	if s.topic.Places() > 0 {
		topics = s.cluster.suspend(topics)
	}
	return topics, nil
}

// createTopics creates the missing topics, waits until they can be written to, and returns all
// topics with the given names. If a topic can't be created, its field err has the reason.
func (s *Sink) createTopics(ctx context.Context, names, missing []string) (map[string]*topic, error) {
	refused := s.create(ctx, missing)
	for until := time.Now().Add(s.options.LeaderTimeout); ; { // brokers learn of new topics with a delay
		topics, err := s.cluster.fetch(ctx, names)
		if err != nil {
			return nil, err
		}
		for name, err := range refused {
			if t := topics[name]; errors.Is(t.err, kafkago.UnknownTopicOrPartition) {
				failed := *t
				if failed.err = fmt.Errorf("%w; create it: %w", t.err, err); errors.Is(err, kafkago.InvalidTopic) { // the name collides with another topic's
					failed.err = fmt.Errorf("create it: %w", err)
				}
				topics[name] = &failed
			}
		}
		if !starting(topics, refused) || !pause(ctx, until, 2) {
			return topics, nil
		}
	}
}

// create asks a broker to create topics, and returns an error for each topic that it can't create.
func (s *Sink) create(ctx context.Context, names []string) map[string]error {
	request := &kafkago.CreateTopicsRequest{Addr: kafkago.TCP(s.cluster.candidates()[0])}
	for _, name := range names {
		request.Topics = append(request.Topics, kafkago.TopicConfig{
			Topic: name, NumPartitions: cmp.Or(s.options.CreatePartitions, -1), ReplicationFactor: cmp.Or(s.options.CreateReplicas, -1), // -1: the broker's default
		})
	}
	answer, err := s.client.CreateTopics(ctx, request)
	refused := map[string]error{}
	if err != nil {
		for _, name := range names {
			refused[name] = err
		}
		return refused
	}
	for name, err := range answer.Errors {
		// With TopicAlreadyExists, another process has created the topic. With RequestTimedOut, the broker may still be creating
		// it. In both cases the caller waits until the topic exists.
		if err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) && !errors.Is(err, kafkago.RequestTimedOut) {
			refused[name] = err
		}
	}
	return refused
}

// starting reports whether any of the topics does not exist or has no leader yet. It ignores topics
// that can't be created.
func starting(topics map[string]*topic, refused map[string]error) bool {
	for name, t := range topics {
		if refused[name] == nil && t.again.IsZero() && (errors.Is(t.err, kafkago.UnknownTopicOrPartition) || errors.Is(t.err, kafkago.LeaderNotAvailable)) {
			return true
		}
	}
	return false
}

// fetch returns topics by name. It requests the metadata of each topic that is not
// cached, that was fetched too long ago, or whose last fetch returned an error, unless
// the topic is in a pause. If names is empty, fetch sends a request without topics, to
// find out whether a broker can be reached.
func (c *cluster) fetch(ctx context.Context, names []string) (map[string]*topic, error) {
	found, missing := c.remembered(names)
	if len(missing) == 0 && len(names) > 0 {
		return found, nil
	}
	if !enter(ctx, c.turn) {
		return nil, ctx.Err()
	}
	defer func() { <-c.turn }()
	if found, missing = c.remembered(names); len(missing) == 0 && len(names) > 0 {
		return found, nil
	}
	learned, err := c.ask(ctx, missing)
	maps.Copy(found, learned) // some cached topics may be too old by now, but this fetch still returns them
	return found, err
}

func (c *cluster) remembered(names []string) (found map[string]*topic, missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, missing = make(map[string]*topic, len(names)), []string{}
	for _, name := range names {
		t := c.topics[name]
		known := t != nil && t.err == nil && time.Since(t.at) < metadataAge
		if known || t != nil && t.err != nil && time.Now().Before(t.again) {
			found[name] = t
		} else {
			missing = append(missing, name)
		}
	}
	return found, missing
}

// ask requests metadata from one broker after another, until one of them answers.
func (c *cluster) ask(ctx context.Context, names []string) (map[string]*topic, error) {
	var problems []error
	for _, address := range c.candidates() {
		answer, err := c.client.Metadata(ctx, &kafkago.MetadataRequest{Addr: kafkago.TCP(address), Topics: names})
		if err == nil {
			return c.learn(names, answer), nil
		}
		if problems = append(problems, err); ctx.Err() != nil || !isConnection(err) {
			break
		}
	}
	return nil, fmt.Errorf("ask the brokers for metadata: %w", errors.Join(problems...))
}

// candidates returns the known brokers in random order, then the bootstrap brokers.
func (c *cluster) candidates() []string {
	c.mu.Lock()
	known := slices.Clone(c.known)
	c.mu.Unlock()
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	for _, seed := range c.seeds {
		if !slices.Contains(known, seed) {
			known = append(known, seed)
		}
	}
	return known
}

// learn caches the metadata of the topics with the given names, and returns the topics.
func (c *cluster) learn(names []string, answer *kafkago.MetadataResponse) map[string]*topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.id = c.known[:0], answer.ClusterID
	for _, broker := range answer.Brokers {
		c.known = append(c.known, addressOf(broker))
	}
	maps.DeleteFunc(c.topics, func(_ string, t *topic) bool { return time.Since(t.at) > metadataAge })
	maps.DeleteFunc(c.troubles, func(_ topicPartition, t *trouble) bool { return time.Since(t.at) > metadataAge })
	learned := make(map[string]*topic, len(names))
	for _, name := range names {
		learned[name] = &topic{name: name, err: kafkago.UnknownTopicOrPartition, at: time.Now(), turns: &c.turns}
		if before := c.topics[name]; before != nil && before.err != nil {
			learned[name].tries = before.tries
		}
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

// outdated drops a topic whose metadata turned out to be wrong. The next fetch then requests it
// again. outdated keeps a topic that has been fetched again meanwhile, or that has an error.
func (c *cluster) outdated(t *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics[t.name] == t && t.err == nil {
		delete(c.topics, t.name)
	}
}

// forget drops all topics from the cache, and ends the pauses of failing partitions.
func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.topics)
	for _, t := range c.troubles {
		t.until = time.Time{}
	}
}

// rest stores the pause that a broker asked for.
func (c *cluster) rest(address string, pause time.Duration) {
	if pause > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resting[address] = time.Now().Add(pause)
	}
}

// restLeft returns how much is left of the pause that a broker asked for.
func (c *cluster) restLeft(address string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.resting[address])
}

// name returns the cluster id without blanks, or "-" if the cluster has no id.
func (c *cluster) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(strings.Join(strings.Fields(c.id), ""), "-")
}

// pause waits before another try and reports whether that try can begin before the
// deadline (until). The wait grows with the number of previous tries, from 0 to 250 ms.
func pause(ctx context.Context, until time.Time, tries int) bool {
	const longest = 250 * time.Millisecond
	wait := min(longest, 10*time.Millisecond<<min(tries, 5))
	if tries == 0 {
		wait = 0
	}
	return sleep(ctx, until, wait)
}

// sleep waits for the given duration and returns true. If the wait would end after the
// deadline (until), sleep returns false immediately. If the context ends first, it
// returns false as well.
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
