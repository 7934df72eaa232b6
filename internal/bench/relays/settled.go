package relays

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/internal/bench/table"
	"github.com/rowrelay/rowrelay/relay"
)

// settled counts the messages whose delivery was written back.
type settled struct {
	relay.NoObserver
	done atomic.Int64
}

func (s *settled) Settled(_ relay.Settled, states map[relay.State]int) {
	s.done.Add(int64(states[relay.StateDone]))
}

// DrainTo is [Drain] to a sink that knows nothing of a benchmark.
func DrainTo(ctx context.Context, d *table.Database, backlog int, options relay.Options) (took time.Duration, err error) {
	seen := &settled{}
	options.Observer = seen
	began := time.Now()
	_, stop, err := Start(ctx, d, options)
	if err != nil {
		return 0, err
	}
	for seen.done.Load() < int64(backlog) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err = ctx.Err(); err == nil {
		err = UntilEmpty(ctx, d)
	}
	return time.Since(began), errors.Join(err, stop())
}
