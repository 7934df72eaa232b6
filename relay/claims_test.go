package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/memstore"
)

// slowClaims has claims that take their time, and counts those under way.
type slowClaims struct {
	*memstore.Store
	atOnce    int
	now, peak atomic.Int64
}

func (s *slowClaims) AtOnce() relay.AtOnce { return relay.AtOnce{Claims: s.atOnce, Settles: 1} }

func (s *slowClaims) Claim(ctx context.Context, request relay.ClaimRequest) ([]relay.Row, error) {
	s.peak.Store(max(s.peak.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	rows, err := s.Store.Claim(ctx, request)
	time.Sleep(20 * time.Millisecond)
	return rows, err
}

// Several claims are under way where the store gains by it and there is plenty,
// and never more than find room.
func TestClaimsAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		atOnce, rows, buffer int
		want                 int64
	}{
		"two":          {2, 9000, 0, 2},
		"one":          {1, 9000, 0, 1},
		"few rows":     {2, 900, 0, 1},
		"room for one": {2, 9000, 900, 1},
		"three":        {3, 9000, 4000, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				write(db, "orders", "k", test.rows)
				store := &slowClaims{Store: db.Store(), atOnce: test.atOnce}
				_, stop := start(t, store, relay.Options{Claim: relay.ByRows, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Buffer: test.buffer}}})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := len(sink.ids()); n != test.rows || store.peak.Load() != test.want {
					t.Errorf("%d deliveries of %d rows, %d claims at once, want %d", n, test.rows, store.peak.Load(), test.want)
				}
				if counts := statusOf(t, db); counts[relay.StateClaimed] != 0 {
					t.Errorf("at the end: %v", counts)
				}
			})
		})
	}
}
