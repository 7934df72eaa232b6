// Package brokers creates topics and queues for measurements, and has bare producers for them,
// which have their messages in memory.
package brokers

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
)

// Target is an empty topic, or some queues.
type Target interface {
	// Kind and URL define the sink that writes to the target. The URL has a query.
	Kind() sinks.Kind
	URL() string

	// Topic returns the topic of message n.
	Topic(n int) string

	// Produce sends the messages with the bare producer. It returns when the broker has confirmed
	// all of them.
	Produce(ctx context.Context, messages []sinks.Message) error

	// Count returns the number of messages in the target.
	Count(ctx context.Context) (int, error)

	// Close deletes the target.
	Close() error
}
