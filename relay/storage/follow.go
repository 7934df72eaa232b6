package storage

import (
	"context"
	"time"
)

// Follower is implemented by an [Operator] that knows what was delivered last. sqlstore's does.
type Follower interface {
	// LastDelivered returns messages that were delivered at that time or later, the last one first,
	// without their payloads and headers: those that the filter selects by topic, key and sink, and as
	// far as they are kept. It walks back along the index of these times, no farther than its limit or
	// the time, whichever is nearer; with a filter as far as the time.
	LastDelivered(ctx context.Context, filter Filter, since time.Time) ([]Info, error)
}
