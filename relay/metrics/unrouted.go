package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// A topic that waits is met again each minute; after two without a word
	// it got its route, or its last message is gone.
	unroutedFor = 150 * time.Second

	// maxUnrouted bounds the topics that are remembered for a source.
	maxUnrouted = 1000
)

// unrouted is the gauge of topics that wait without a route. It forgets those
// that weren't met for a while whenever it is collected.
type unrouted struct {
	description *prometheus.Desc

	mu     sync.Mutex
	topics map[string]map[string]time.Time // by source and topic, when it was last met
}

func newUnrouted() *unrouted {
	return &unrouted{
		description: prometheus.NewDesc("rowrelay_unrouted_topics", "Topics whose messages wait because no route matches them.", []string{"source"}, nil),
		topics:      map[string]map[string]time.Time{},
	}
}

func (u *unrouted) source(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.topics[name] == nil {
		u.topics[name] = map[string]time.Time{}
	}
}

func (u *unrouted) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.topics)
}

func (u *unrouted) met(source, topic string) {
	u.source(source)
	u.mu.Lock()
	defer u.mu.Unlock()
	topics := u.topics[source]
	if _, known := topics[topic]; known || len(topics) < maxUnrouted {
		topics[topic] = time.Now()
	}
}

// Describe implements prometheus.Collector.
func (u *unrouted) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- u.description }

// Collect implements prometheus.Collector.
func (u *unrouted) Collect(values chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for source, topics := range u.topics {
		for topic, last := range topics {
			if time.Since(last) > unroutedFor {
				delete(topics, topic)
			}
		}
		values <- prometheus.MustNewConstMetric(u.description, prometheus.GaugeValue, float64(len(topics)), source)
	}
}
