package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
)

// slowPurge is a store with much to delete, whose purges take time.
type slowPurge struct {
	*memstore.Store
	took  time.Duration
	spent atomic.Int64
}

func (s *slowPurge) Purge(_ context.Context, _ time.Duration, limit int) (int, error) {
	time.Sleep(s.took)
	s.spent.Add(int64(s.took))
	return limit, nil
}

// While many rows are to be deleted, the janitor pauses between its purges.
func TestPurgeRests(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		4 * time.Millisecond:   time.Minute / 4,
		400 * time.Millisecond: time.Minute * 400 / 650, // the pause after a purge is limited to longestRest
	} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &slowPurge{Store: memstore.New().Store(), took: took}
				_, stop := start(t, store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: &recorder{}}}})
				time.Sleep(time.Minute)
				if spent := time.Duration(store.spent.Load()); (spent - want).Abs() > time.Second {
					t.Errorf("in a minute, deletions took %v, want %v", spent, want)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
