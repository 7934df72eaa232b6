package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// stuckSettles is a store whose settlements, from a certain moment on, wait until they are released.
type stuckSettles struct {
	*memstore.Store
	stuck atomic.Bool
	free  chan struct{}
}

func (s *stuckSettles) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	if !s.stuck.Load() {
		return s.Store.Settle(ctx, name, keep, settlements)
	}
	select {
	case <-s.free:
		return s.Store.Settle(ctx, name, keep, settlements)
	case <-ctx.Done():
		return storage.Settled{}, ctx.Err()
	}
}

// While settlements hang, the number of messages that were sent but not settled is limited.
func TestUnsettledMessagesAreLimited(t *testing.T) {
	onlyComputes(t)
	t.Parallel()
	for name, test := range map[string]struct {
		claim   storage.Claim
		options relay.SinkOptions
		most    int
	}{
		"by default":             {storage.ByLanes, relay.SinkOptions{}, 4000},
		"by rows":                {storage.ByRows, relay.SinkOptions{}, 4000},
		"with a large buffer":    {storage.ByLanes, relay.SinkOptions{Buffer: 9000}, 4500},
		"with a small one":       {storage.ByLanes, relay.SinkOptions{Buffer: 1200}, 1200},
		"with one small batch":   {storage.ByLanes, relay.SinkOptions{Batch: 10, Workers: 1}, 40},
		"with room for one only": {storage.ByLanes, relay.SinkOptions{Batch: 1, Workers: 1, Buffer: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rows = 10_000
				db, sink := memstore.New(), &recorder{}
				store := &stuckSettles{Store: db.Store(), free: make(chan struct{})}
				write(db, "orders", "", 1)
				test.options.Sink = sink
				_, stop := start(t, store, relay.Options{Claim: test.claim, Lease: time.Minute, Sinks: map[string]relay.SinkOptions{"main": test.options}})
				time.Sleep(20 * time.Second) // the first message is settled, so the relay knows that outcomes can be written
				store.stuck.Store(true)
				write(db, "orders", "", rows-1)
				time.Sleep(20 * time.Second)
				if sent := len(sink.ids()) - 1; sent > test.most || sent < test.most/2 {
					t.Errorf("%d messages were sent, but at most %d may be sent twice after a crash", sent, test.most)
				}
				close(store.free)
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if sent := len(sink.ids()); sent != rows {
					t.Errorf("%d of %d messages were sent at the end", sent, rows)
				}
			})
		})
	}
}
