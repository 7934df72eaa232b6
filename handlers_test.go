package rowrelay

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
)

// Messages of a fast topic don't wait for earlier messages of a slow topic. If messages wait because all handlers are busy,
// this is logged.
func TestSlowTopicDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		concurrency int
		slow        int // how many messages of the slow topic precede the fast one
		within      time.Duration
		logs        bool
	}{
		"by default":                     {0, 8, time.Second, false},
		"more than the calls":            {0, 30, 5 * time.Second, false},
		"one at a time, which is logged": {1, 8, 15 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				unused, err := sql.Open("sqlite", "unused")
				if err != nil {
					t.Fatal(err)
				}
				defer unused.Close()
				var log strings.Builder
				app, err := New(unused, SQLite, Options{Concurrency: c.concurrency, Relay: relay.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
				if err != nil {
					t.Fatal(err)
				}
				handled := make(chan time.Time, 1)
				app.Handle("slow", func(context.Context, sinks.Message) error { time.Sleep(time.Second); return nil })
				app.Handle("fast", func(context.Context, sinks.Message) error { handled <- time.Now(); return nil })
				options, err := app.relayOptions(false)
				if err != nil {
					t.Fatal(err)
				}
				db := memstore.New()
				r, err := relay.New(db.Store(), options)
				if err != nil {
					t.Fatal(err)
				}
				for i := range c.slow {
					db.Write(outbox.Message{Topic: "slow", Key: fmt.Sprint("k", i)})
				}
				written := time.Now()
				db.Write(outbox.Message{Topic: "fast", Key: "f"})
				ctx, stop := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				go func() { ran <- r.Run(ctx) }()
				if took := (<-handled).Sub(written); took > c.within {
					t.Errorf("the fast topic's message was handled after %v, want %v at most", took, c.within)
				}
				stop()
				if err := <-ran; err != nil {
					t.Error(err)
				}
				if got := strings.Contains(log.String(), "messages wait for handlers"); got != c.logs {
					t.Errorf("logged that messages wait: %v, want %v:\n%s", got, c.logs, log.String())
				}
			})
		})
	}
}

func TestConcurrencyOfTxHandlers(t *testing.T) {
	t.Parallel()
	unused, err := sql.Open("sqlite", "unused")
	if err != nil {
		t.Fatal(err)
	}
	defer unused.Close()
	for _, c := range []struct {
		kind        Database
		concurrency int
		want        int
	}{{Postgres, 0, 4}, {MySQL, 0, 4}, {SQLite, 0, 1}, {SQLite, 3, 3}, {Postgres, 20, 20}, {Postgres, -1, 1}} {
		app, err := New(unused, c.kind, Options{Concurrency: c.concurrency})
		if err != nil {
			t.Fatal(err)
		}
		app.HandleTx("a", func(context.Context, *sql.Tx, sinks.Message) error { return nil })
		options, err := app.relayOptions(false)
		if got := options.Sinks[txHandlersSink].Workers; err != nil || got != c.want {
			t.Errorf("%s with Concurrency %d: %d workers, %v; want %d", c.kind, c.concurrency, got, err, c.want)
		}
	}
}
