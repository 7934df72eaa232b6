package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// unroutedFor is how long a topic is counted after a report. Once a minute, a relay reports each topic whose messages
	// wait. So a topic that has not been reported for two and a half minutes has a route now, or no messages.
	unroutedFor = 150 * time.Second

	// maxUnrouted is the maximum number of topics that are counted for a source.
	maxUnrouted = 1000
)

// unrouted is the gauge of topics whose messages wait without a route. Collect removes the topics whose last
// report is older than unroutedFor.
type unrouted struct {
	description *prometheus.Desc

	mu     sync.Mutex
	topics map[string]map[string]time.Time // the time of the last report, by source and topic
}

func newUnrouted() *unrouted {
	return &unrouted{
		description: prometheus.NewDesc("rowrelay_unrouted_topics", "Topics whose messages wait because no route matches them, or their sink has no handler or destination for them.", []string{"source"}, nil),
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
