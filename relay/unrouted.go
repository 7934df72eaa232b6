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

// unrouted reports messages that wait because no route matches their topic, or because their rows name a sink that this relay
// doesn't have.
type unrouted struct {
	base   *base
	topics map[string]time.Time // when to log each topic without a route or handler again
	sinks  map[string]time.Time // for each value of Row.Sinks with a sink that this relay does not have: when to log the value again
}

// waits reports a row that waits because its topic has no route, or because it names a sink that this relay doesn't have.
func (u *unrouted) waits(row *storage.Row) {
	now := time.Now()
	if row.Sinks != "" && !now.Before(u.sinks[row.Sinks]) {
		if len(u.sinks) >= maxCachedTopics {
			clear(u.sinks)
		}
		u.sinks[row.Sinks] = now.Add(unroutedInterval)
		u.base.options.Logger.Warn("relay: messages name a sink that this relay does not have, and wait; add it, or send them to another one: "+
			"rowrelay messages requeue --sink NAME --to ANOTHER", "relay", u.base.options.Name, "sinks", row.Sinks, "topic", row.Message.Topic)
	}
	u.report(row.Message.Topic)
}

// report reports a topic without a route or handler.
func (u *unrouted) report(topic string) {
	now := time.Now()
	if now.Before(u.topics[topic]) {
		return
	}
	if len(u.topics) >= maxCachedTopics {
		clear(u.topics)
	}
	u.topics[topic] = now.Add(unroutedInterval)
	u.base.options.Observer.Unrouted(topic)
	u.base.options.Logger.Warn("relay: messages wait because their topic has no route or handler; add one and restart, or reload the configuration (SIGHUP)",
		"relay", u.base.options.Name, "topic", topic)
}

// unroutedLeft returns the error of a drain that left messages of these topics behind.
func unroutedLeft(unrouted map[string]bool) error {
	topics := slices.Sorted(maps.Keys(unrouted))
	if len(topics) > 10 {
		topics = append(topics[:10], "…")
	}
	return fmt.Errorf("drained, but messages without a route are left (topics: %s); add a route, or send the messages that name a missing sink to another one: rowrelay messages requeue --sink MISSING --to ANOTHER", strings.Join(topics, ", "))
}
