package relays

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Drain runs a relay on an existing backlog until no row is pending, and returns the time since its
// start. It replaces the observer in the options.
func Drain(ctx context.Context, d *table.Database, backlog int, options relay.Options) (took time.Duration, err error) {
	seen := &settled{all: make(chan struct{})}
	seen.left.Store(int64(backlog))
	options.Observer = seen
	began := time.Now()
	_, stop, err := Start(ctx, d, options)
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-seen.all:
		err = UntilEmpty(ctx, d)
	}
	return time.Since(began), errors.Join(err, stop())
}

// settled is an observer that counts down as deliveries are settled.
type settled struct {
	relay.NoObserver
	left atomic.Int64
	all  chan struct{} // closed when all deliveries are settled
}

func (s *settled) Settled(_ storage.Settled, states map[storage.State]int) {
	done := int64(states[storage.StateDone])
	if left := s.left.Add(-done); left <= 0 && left+done > 0 {
		close(s.all)
	}
}
