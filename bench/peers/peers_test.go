package peers

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
)

const backlog = 2500

// Each peer delivers every message with its complete payload. The query that Pending returns is
// true before the delivery, and false afterwards.
func TestPeersDrain(t *testing.T) {
	t.Parallel()
	for _, p := range All {
		t.Run(p.Name(), func(t *testing.T) {
			t.Parallel()
			ctx, d := filled(t, p)
			var count, wrong atomic.Int64
			_, err := Drain(ctx, p, d, backlog, func(_ context.Context, payload []byte) error {
				count.Add(1)
				if len(payload) != 64 {
					wrong.Add(1)
				}
				return nil
			})
			if err != nil || count.Load() != backlog || wrong.Load() != 0 {
				t.Errorf("%d of %d messages, %d of a wrong length; %v", count.Load(), backlog, wrong.Load(), err)
			}
			if left, err := Left(ctx, p, d); left || err != nil {
				t.Errorf("the peer reports pending messages: %v, %v", left, err)
			}
		})
	}
}

// A message that the handler refuses stays pending.
func TestPeersShowWhatIsPending(t *testing.T) {
	t.Parallel()
	for _, p := range All {
		t.Run(p.Name(), func(t *testing.T) {
			t.Parallel()
			ctx, d := filled(t, p)
			refused := make(chan struct{}, 100_000)
			stop, err := p.Start(ctx, d, func(context.Context, []byte) error {
				select {
				case refused <- struct{}{}:
				default:
				}
				return errors.New("refused")
			})
			if err != nil {
				t.Fatal(err)
			}
			<-refused
			if err := stop(); err != nil {
				t.Error(err)
			}
			if left, err := Left(ctx, p, d); !left || err != nil {
				t.Errorf("the peer reports no pending message: %v, %v", left, err)
			}
		})
	}
}

func filled(t *testing.T, p Peer) (context.Context, *table.Database) {
	server := table.Servers["postgres15"]
	switch {
	case server.Missing() && os.Getenv("REQUIRE_SERVERS") == "1":
		t.Fatal("no PostgreSQL, though REQUIRE_SERVERS=1: see deploy/servers")
	case server.Missing():
		t.Skip("no PostgreSQL: see deploy/servers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	d, err := server.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if err := Fill(ctx, p, d, backlog, 64); err != nil {
		t.Fatal(err)
	}
	if left, err := Left(ctx, p, d); !left || err != nil {
		t.Fatalf("the peer reports no pending message at first: %v, %v", left, err)
	}
	return ctx, d
}
