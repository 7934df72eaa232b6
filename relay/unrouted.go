package relay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// unroutedInterval is how often a topic without a route is told of.
const unroutedInterval = time.Minute

// unrouted tells of what waits without a route, of each topic and of each missing sink once a minute.
type unrouted struct {
	base   *base
	topics map[string]time.Time // without a route, and when to tell of them again
	sinks  map[string]time.Time // as rows name them, those that this relay does not have, and when to tell of them again
}

// waits tells of a row that waits without a route, or as it names a sink that this relay doesn't have.
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
	u.tell(row.Message.Topic)
}

// tell tells of a topic without a route or handler.
func (u *unrouted) tell(topic string) {
	now := time.Now()
	if now.Before(u.topics[topic]) {
		return
	}
	if len(u.topics) >= maxCachedTopics {
		clear(u.topics)
	}
	u.topics[topic] = now.Add(unroutedInterval)
	u.base.options.Observer.Unrouted(topic)
	u.base.options.Logger.Warn("relay: no route or handler takes this topic, its messages wait; add one, and restart or have the configuration read again (SIGHUP)",
		"relay", u.base.options.Name, "topic", topic)
}

// unroutedLeft is the error of a drain that had to leave messages of these topics behind.
func unroutedLeft(unrouted map[string]bool) error {
	topics := slices.Sorted(maps.Keys(unrouted))
	if len(topics) > 10 {
		topics = append(topics[:10], "…")
	}
	return fmt.Errorf("drained, but messages without a route are left (topics: %s); add a route, or send those that name a sink which is gone to another one: rowrelay messages requeue --sink GONE --to ANOTHER", strings.Join(topics, ", "))
}
