package relay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// unroutedInterval is the time between two log lines about the same topic or sink.
const unroutedInterval = time.Minute

// unrouted reports messages that wait because no route matches their topic, because their rows name a sink that this relay
// doesn't have, or because their sink has no handler or destination for their topic.
type unrouted struct {
	base   *base
	topics map[string]*unroutedTopic
	sinks  map[string]time.Time // for each value of Row.Sinks that names a sink that this relay does not have: when to log this value again
}

// unroutedTopic is a topic that is reported while its messages wait.
type unroutedTopic struct {
	text string // the message of the log line
	more []any  // the line's attributes besides the relay and the topic
	next time.Time
}

// waits reports a row that waits because its topic has no route, or because it names a sink that this relay doesn't have.
func (u *unrouted) waits(row *storage.Row) {
	now := time.Now()
	if row.Sinks != "" && !now.Before(u.sinks[row.Sinks]) {
		if len(u.sinks) >= maxCachedTopics {
			clear(u.sinks)
		}
		u.sinks[row.Sinks] = now.Add(unroutedInterval)
		u.base.options.Logger.Warn("relay: messages wait because they name a sink that this relay does not have; add the sink, or send the messages to another one: "+
			"rowrelay messages requeue --sink NAME --to ANOTHER", "relay", u.base.options.Name, "sinks", row.Sinks, "topic", row.Message.Topic)
	}
	u.noRoute(row.Message.Topic)
}

// noRoute reports a topic without a route.
func (u *unrouted) noRoute(topic string) {
	u.report(topic, "relay: messages wait because their topic has no route; add one and restart, or reload the configuration (SIGHUP)")
}

// postponed reports a topic for which a sink has no handler or destination, such as a topic that does not exist in Kafka.
func (u *unrouted) postponed(topic, sink, detail string) {
	u.report(topic, "relay: messages wait because their sink has no handler or destination for their topic", "sink", sink, "detail", detail)
}

// report sets the log line of a topic, and writes it unless the topic was reported within the last unroutedInterval.
func (u *unrouted) report(topic, text string, more ...any) {
	of := u.topics[topic]
	if of == nil {
		if len(u.topics) >= maxCachedTopics {
			clear(u.topics)
		}
		of = &unroutedTopic{}
		u.topics[topic] = of
	}
	of.text, of.more = text, more
	u.repeat(topic, of, time.Now())
}

// repeatAll reports each topic again that was not reported within the last unroutedInterval.
func (u *unrouted) repeatAll() {
	now := time.Now()
	for topic, of := range u.topics {
		u.repeat(topic, of, now)
	}
}

func (u *unrouted) repeat(topic string, of *unroutedTopic, now time.Time) {
	if now.Before(of.next) {
		return
	}
	of.next = now.Add(unroutedInterval)
	u.base.options.Observer.Unrouted(topic)
	u.base.options.Logger.Warn(of.text, append([]any{"relay", u.base.options.Name, "topic", topic}, of.more...)...)
}

// unroutedLeft returns the error of a drain that left messages of these topics behind.
func unroutedLeft(unrouted map[string]bool) error {
	topics := slices.Sorted(maps.Keys(unrouted))
	if len(topics) > 10 {
		topics = append(topics[:10], "…")
	}
	return fmt.Errorf("drained, but messages without a route or destination are left (topics: %s); add what is missing, or send the messages that name a missing sink to another one: rowrelay messages requeue --sink MISSING --to ANOTHER", strings.Join(topics, ", "))
}
