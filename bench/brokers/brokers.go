// Package brokers creates topics and queues for measurements. It also has bare producers, which
// write messages from memory to these topics and queues.
package brokers

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
)

// Target is an empty topic or a set of empty queues.
type Target interface {
	// Kind and URL define the sink that writes to the target. The URL ends with a query, which
	// may be empty.
	Kind() sinks.Kind
	URL() string

	// Topic returns the topic of message n.
	Topic(n int) string

	// Produce writes the messages with the bare producer. It returns when the broker has
	// confirmed all messages.
	Produce(ctx context.Context, messages []sinks.Message) error

	// Count returns the number of messages in the target.
	Count(ctx context.Context) (int, error)

	// Close deletes the target.
	Close() error
}
