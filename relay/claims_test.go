package relay_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// slowClaims is a store whose claims take time. It counts the claims in progress.
type slowClaims struct {
	*memstore.Store
	atOnce    int
	now, peak atomic.Int64
	most      atomic.Int64 // the most payload bytes that one claim has returned
}

func (s *slowClaims) Parallelism() storage.Parallelism {
	return storage.Parallelism{Claims: s.atOnce, Settles: 1}
}

func (s *slowClaims) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	s.peak.Store(max(s.peak.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	rows, err := s.Store.Claim(ctx, request)
	bytes := 0
	for _, row := range rows {
		bytes += len(row.Message.Payload)
	}
	s.most.Store(max(s.most.Load(), int64(bytes)))
	time.Sleep(20 * time.Millisecond)
	return rows, err
}

// Claims run concurrently if the store's Parallelism allows it and many rows are pending, but together they never claim more
// rows than there is room for.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		atOnce, rows, buffer int
		want                 int64
	}{
		"two":          {2, 9000, 0, 2},
		"one":          {1, 9000, 0, 1},
		"few rows":     {2, 60, 0, 1},
		"room for one": {2, 9000, 900, 1},
		"three":        {3, 9000, 4000, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				write(db, "orders", "k", test.rows)
				store := &slowClaims{Store: db.Store(), atOnce: test.atOnce}
				_, stop := start(t, store, relay.Options{Claim: storage.ByRows, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Buffer: test.buffer}}})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := len(sink.ids()); n != test.rows || store.peak.Load() != test.want {
					t.Errorf("%d deliveries of %d rows, %d concurrent claims, want %d", n, test.rows, store.peak.Load(), test.want)
				}
				if counts := statusOf(t, db); counts[storage.StateClaimed] != 0 {
					t.Errorf("at the end: %v", counts)
				}
			})
		})
	}
}

// asked records which claims were unprompted, and what they returned.
type asked struct {
	*memstore.Store
	mu     sync.Mutex
	claims []string
}

func (a *asked) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	rows, err := a.Store.Claim(ctx, request)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims = append(a.claims, fmt.Sprintf("unprompted %t, %d rows", request.Unprompted, len(rows)))
	return rows, err
}

func (a *asked) taken() (claims []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	claims, a.claims = a.claims, nil
	return claims
}

// A claim is unprompted ([storage.ClaimRequest]) only if the poll interval is the only reason for it.
func TestClaimsReportWhetherTheyAreUnprompted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		store := &asked{Store: db.Store()}
		r, stop := start(t, store, relay.Options{Claim: storage.ByRows, Poll: time.Second, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}}})
		want := func(when string, after time.Duration, claims ...string) {
			t.Helper()
			time.Sleep(after)
			if got := store.taken(); !slices.Equal(got, claims) {
				t.Errorf("%s: %q, want %q", when, got, claims)
			}
		}
		const polled = "unprompted true, 0 rows"
		want("two polls", 1500*time.Millisecond, polled, polled)
		write(db, "orders", "k", 3)
		r.Wake()
		want("woken", 400*time.Millisecond, "unprompted false, 3 rows")
		write(db, "orders", "k", 2)
		want("the next polls", 603*time.Millisecond, "unprompted true, 2 rows") // the next poll follows soon
		want("a poll after one that found something", 7*time.Millisecond, polled)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Claims in progress together return at most 8 MiB, and at most as many bytes as the buffer has room for; only the last row of
// each claim may exceed this. Everything is delivered.
func TestClaimsStayWithinBytes(t *testing.T) {
	onlyComputes(t)
	t.Parallel()
	for name, test := range map[string]struct {
		atOnce, rows, size, buffer int
		want                       int // rows that are claimed before anything is delivered
	}{
		"one":                             {1, 200, 1 << 20, 0, 16},
		"two":                             {2, 200, 1 << 20, 0, 16},
		"small buffer":                    {2, 50, 1 << 20, 2 << 20, 2},
		"rows larger than the buffer":     {2, 20, 4 << 20, 1 << 20, 1},
		"rows that don't fill the buffer": {2, 100, 3 << 20, 8 << 20, 3},
		"small rows":                      {1, 3000, 1 << 10, 0, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				payload := make([]byte, test.size)
				for range test.rows {
					db.Write(outbox.Message{Topic: "orders", Payload: payload})
				}
				sink := &gate{open: make(chan struct{})}
				store := &slowClaims{Store: db.Store(), atOnce: test.atOnce}
				_, stop := start(t, store, relay.Options{Claim: storage.ByRows, Lease: 2 * time.Second,
					Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, BufferBytes: test.buffer, Timeout: time.Hour}}})
				time.Sleep(30 * time.Second)
				if claimed := statusOf(t, db)[storage.StateClaimed]; claimed != int64(test.want) {
					t.Errorf("%d rows of %d bytes are claimed, want %d", claimed, test.size, test.want)
				}
				if most := store.most.Load(); most > int64(8<<20/test.atOnce+test.size) {
					t.Errorf("a claim returned %d bytes, in rows of %d bytes", most, test.size)
				}
				close(sink.open)
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := len(sink.ids()); n != test.rows {
					t.Errorf("%d deliveries of %d rows", n, test.rows)
				}
			})
		})
	}
}

// gate is a sink that delivers nothing until it is opened.
type gate struct {
	recorder
	open chan struct{}
}

func (g *gate) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	<-g.open
	return g.recorder.Send(ctx, batch)
}
