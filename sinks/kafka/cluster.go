package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// metadataAge is how old the knowledge of a topic may grow: partitions that were
// added are found by then. A leader that moved is asked for at once.
const metadataAge = time.Minute

// cluster knows topics, as far as they are used, and asks brokers for them.
type cluster struct {
	client *kafkago.Client
	seeds  []string
	turn   chan struct{} // to ask: one at a time, the others learn from it

	mu      sync.Mutex
	topics  map[string]*topic
	known   []string             // the brokers of the latest answer
	id      string               // the cluster's own
	resting map[string]time.Time // brokers that want to be left alone, and until when
	turns   atomic.Uint32
}

func newCluster(client *kafkago.Client, seeds []string) *cluster {
	c := &cluster{client: client, seeds: seeds, turn: make(chan struct{}, 1), topics: map[string]*topic{}, resting: map[string]time.Time{}}
	c.turns.Store(rand.Uint32() / 2) // relays should not all begin with the same partition
	return c
}

// forget makes the next look at a topic ask for it.
func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.topics)
}

// rest notes that a broker asked for a pause; resting is how much of it is left.
func (c *cluster) rest(address string, pause time.Duration) {
	if pause > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resting[address] = time.Now().Add(pause)
	}
}

func (c *cluster) restLeft(address string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.resting[address])
}

// look returns topics by name, asked for if they are not known, too old or in
// trouble. With no names it asks a broker for nothing, to see whether one is there.
func (c *cluster) look(ctx context.Context, names []string) (map[string]*topic, error) {
	found, missing := c.remembered(names)
	if len(missing) == 0 && len(names) > 0 {
		return found, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if found, missing = c.remembered(names); len(missing) == 0 && len(names) > 0 {
		return found, nil
	}
	learned, err := c.ask(ctx, missing)
	maps.Copy(found, learned) // what was known grows old meanwhile, and does for this time
	return found, err
}

// outdated says that a topic turned out to be otherwise than remembered: the
// next look asks for it, unless somebody has asked meanwhile.
func (c *cluster) outdated(t *topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics[t.name] == t {
		delete(c.topics, t.name)
	}
}

func (c *cluster) remembered(names []string) (found map[string]*topic, missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, missing = make(map[string]*topic, len(names)), []string{}
	for _, name := range names {
		if t := c.topics[name]; t != nil && t.err == nil && time.Since(t.at) < metadataAge {
			found[name] = t
		} else {
			missing = append(missing, name)
		}
	}
	return found, missing
}

// ask asks one broker after the other. An answer of any kind is better than none.
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

// name is the cluster's id, without blanks.
func (c *cluster) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(strings.Join(strings.Fields(c.id), ""), "-")
}

// candidates are the brokers that are known, in any order, then the first ones.
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
