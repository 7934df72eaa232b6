package sqlstore_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

var besideHeld = flag.Bool("beside-held", false, "measure the throughput of other keys while one is held; needs an idle machine")

// taking is a sink that counts deliveries. Until mended is set, it rejects messages of the key "held" with the payload "bad".
type taking struct {
	mended     atomic.Bool
	held, rest atomic.Int64
	last       atomic.Int64 // the last sequence of the held key
	disorder   atomic.Int64
}

func (s *taking) Open(context.Context) error  { return nil }
func (s *taking) Close(context.Context) error { return nil }
func (s *taking) Order() sinks.Order          { return sinks.OrderPrefix }

func (s *taking) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	outcomes := make([]sinks.Outcome, len(batch))
	rejected := false
	for i, m := range batch {
		switch {
		case m.Key != "held":
			s.rest.Add(1)
		case rejected:
			outcomes[i] = sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, "")
			continue
		case string(m.Payload) == "bad" && !s.mended.Load():
			outcomes[i], rejected = sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "bad"), true
			continue
		default:
			s.held.Add(1)
			if m.Sequence < s.last.Swap(m.Sequence) {
				s.disorder.Add(1)
			}
		}
		outcomes[i] = sinks.Ok("")
	}
	return outcomes
}

// While a parked message holds its key and 2,000 later messages of the key wait, messages of 1,000 other keys
// are delivered. After an operator's requeue, skip or discard the key's messages are delivered in order. With
// -beside-held 100,000 messages of the key wait, and the test logs the throughput of the other keys with and
// without a held key.
func TestHeldKeyDelaysNoOtherKeys(t *testing.T) {
	t.Parallel()
	behind, others, rounds := 2_000, 2_000, 1
	if *besideHeld {
		behind, others, rounds = 100_000, 200_000, 3
	}
	for _, target := range testdb.Each() {
		if target.Kind == testdb.Oracle || target.Kind == testdb.SQLServer {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			if *besideHeld && target.Driver != "pgx" && target.Driver != "modernc" {
				t.Skip("the throughput is measured with one driver for each database")
			}
			table := open(t, target)
			sink := &taking{}
			r, err := relay.New(table.Store(t), relay.Options{
				Logger: slog.New(slog.DiscardHandler), Retention: relay.KeepNothing,
				Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, OnPark: relay.HoldKey, BreakerThreshold: -1}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			wait := func(what string, count *atomic.Int64, n int) time.Duration {
				began := time.Now()
				eventually(t, fmt.Sprintf("%d %s are delivered", n, what), func() bool { return count.Load() >= int64(n) })
				return time.Since(began)
			}
			total := 0
			drain := func() float64 {
				fillKeys(t, table, others, "other", 1000)
				total += others
				r.Wake()
				took := wait("messages of other keys", &sink.rest, total)
				return float64(others) / took.Seconds()
			}
			var without, with []float64
			for range rounds {
				without = append(without, drain())
			}
			for round := range rounds {
				if round == 0 {
					exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload_text) VALUES ('t', 'held', 'bad')")
					fillKeys(t, table, behind, "held", 0)
					drain() // then the relay has read past the held key's messages
				}
				with = append(with, drain())
			}
			t.Logf("other messages per second without a held key %.0f, with one %.0f", without, with)
			store := table.Store(t)
			isHeld := func() {
				t.Helper()
				eventually(t, "a key is held", func() bool {
					status, err := store.Status(t.Context())
					return err == nil && status.HeldKeys == 1
				})
			}
			isHeld()
			if n := sink.held.Load(); n != 0 {
				t.Fatalf("%d messages of the held key were delivered", n)
			}
			sink.mended.Store(true)
			decide, want := store.Requeue, behind+1
			if n, err := decide(t.Context(), storage.Filter{Key: "held"}); n != 1 || err != nil {
				t.Fatalf("%d messages were requeued, %v; want 1", n, err)
			}
			t.Logf("the key's %d messages were delivered in %v", want, wait("messages of the held key", &sink.held, want))

			for _, decide := range []func(context.Context, storage.Filter) (int, error){store.Skip, store.Discard} {
				sink.mended.Store(false)
				exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload_text) VALUES ('t', 'held', 'bad')")
				exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload_text) VALUES ('t', 'held', 'good')")
				r.Wake()
				isHeld()
				if n, err := decide(t.Context(), storage.Filter{Key: "held"}); n == 0 || err != nil {
					t.Fatalf("%d parked messages were skipped or discarded, %v", n, err)
				}
				want++
				t.Logf("after a skip or a discard the key's next message was delivered in %v", wait("messages of the held key", &sink.held, want))
			}
			if sink.held.Load() != int64(want) || sink.disorder.Load() != 0 {
				t.Errorf("%d messages of the key were delivered, want %d; %d out of order", sink.held.Load(), want, sink.disorder.Load())
			}
		})
	}
}

// fillKeys writes messages of one key, or of several keys in turn if several isn't 0.
func fillKeys(t *testing.T, table table, count int, key string, several int) {
	t.Helper()
	tx, err := table.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	statement, n := "", 0
	for i := range count {
		name := key
		if several > 0 {
			name = fmt.Sprint(key, i%several)
		}
		if statement == "" {
			statement = "INSERT INTO outbox (topic, message_key, payload_text) VALUES "
		} else {
			statement += ", "
		}
		statement += "('t', '" + name + "', 'good')"
		if n++; n == 500 || i == count-1 {
			if _, err := tx.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			statement, n = "", 0
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}
