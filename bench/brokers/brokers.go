// Package brokers makes topics and queues to measure with, and has bare
// producers for them: what a program writes that has its messages in memory.
package brokers

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
)

// Target is an empty topic, or some queues.
type Target interface {
	// Kind and URL make the sink that writes to it; the URL has a query.
	Kind() sinks.Kind
	URL() string

	// Topic is that of message n.
	Topic(n int) string

	// Produce is the bare producer. It returns when the broker has confirmed
	// all messages.
	Produce(ctx context.Context, messages []sinks.Message) error

	// Count is how many messages are there.
	Count(ctx context.Context) (int, error)

	// Close removes it.
	Close() error
}
