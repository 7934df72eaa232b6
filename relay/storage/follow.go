package storage

import (
	"context"
	"time"
)

// Follower is implemented by an [Operator] that can list the latest delivered messages. The Store of
// package sqlstore implements it.
type Follower interface {
	// LastDelivered returns messages that were delivered at or after the given time and are still in
	// the table, the latest first, without their payloads and headers. It uses the filter's Topic,
	// Key, Sink and Limit. It reads the index of delivery times backwards and stops at the limit or at
	// the given time. If the filter selects by topic, key or sink, it may have to read all entries
	// back to that time.
	LastDelivered(ctx context.Context, filter Filter, since time.Time) ([]Info, error)
}
