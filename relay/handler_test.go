package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// The time-out applies to each message, however long the earlier messages of the batch took. So a handler that needs most of
// the time-out for some messages handles all messages at their first attempt.
func TestTimeoutIsPerMessage(t *testing.T) {
	t.Parallel()
	for _, concurrency := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			db, mu, left := memstore.New(), sync.Mutex{}, []time.Duration(nil)
			for i := range 30 {
				write(db, "orders", fmt.Sprint("k", i%4), 1)
			}
			sink := inproc.New(func(ctx context.Context, m sinks.Message) error {
				deadline, _ := ctx.Deadline()
				mu.Lock()
				left = append(left, time.Until(deadline))
				mu.Unlock()
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Duration(2+7*(m.Sequence%2)) * time.Second):
				}
				if m.Attempt != 1 {
					t.Errorf("message %d arrived with attempt %d", m.Sequence, m.Attempt)
				}
				return nil
			}, inproc.Options{Concurrency: concurrency})
			_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Timeout: 10 * time.Second}}})
			time.Sleep(10 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if len(left) != 30 || slices.Min(left) != 10*time.Second || slices.Max(left) != 10*time.Second {
				t.Errorf("%d calls, which had %v to %v, want 30 with 10s", len(left), slices.Min(left), slices.Max(left))
			}
			if counts := statusOf(t, db); counts[storage.StateDone] != 30 {
				t.Errorf("%v, want 30 done", counts)
			}
		})
	}
}

// If a handler exceeds its time-out, only that message is charged an attempt, and the next message of the batch has the whole
// time-out.
func TestTimeoutFailsOneMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		write(db, "slow", "a", 1)
		write(db, "quick", "b", 1)
		sink := inproc.Func(func(ctx context.Context, m sinks.Message) error {
			if m.Topic == "slow" {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: relay.JudgeAtOnce, Timeout: 2 * time.Second, MaxAttempts: -1, Backoff: relay.Backoff{Min: decade, Max: decade}}}})
		time.Sleep(3 * time.Second)
		for _, m := range all(t, db) {
			want := map[string]storage.State{"slow": storage.StateRetry, "quick": storage.StateDone}[m.Message.Topic]
			if m.State != want || m.Attempts != 1 {
				t.Errorf("%s is %s after %d attempts, want %s after 1", m.Message.Topic, m.State, m.Attempts, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The log reports once a minute that messages wait because handlers are busy. It doesn't report handlers that are only slow.
func TestMessagesThatWaitForHandlersAreLogged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		messages int
		takes    time.Duration
		options  inproc.Options
		lines    int
	}{
		"quick handlers":                   {500, 5 * time.Millisecond, inproc.Options{}, 0},
		"one slow handler":                 {1, 25 * time.Second, inproc.Options{}, 0},
		"enough calls":                     {20, 25 * time.Second, inproc.Options{Concurrency: 20}, 0},
		"a batch that isn't completed":     {8, time.Second, inproc.Options{}, 1},
		"workers that are busy":            {8, 25 * time.Second, inproc.Options{Concurrency: 2, Batch: 1}, 2},
		"for three minutes, once a minute": {16, 10 * time.Second, inproc.Options{}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, log := memstore.New(), &strings.Builder{}
				for i := range c.messages {
					write(db, "orders", fmt.Sprint("k", i), 1)
				}
				sink := inproc.New(func(context.Context, sinks.Message) error { time.Sleep(c.takes); return nil }, c.options)
				_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}}, Logger: slog.New(slog.NewTextHandler(log, nil))})
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if lines := strings.Count(log.String(), "messages wait for handlers"); lines != c.lines {
					t.Errorf("%d lines, want %d:\n%s", lines, c.lines, log.String())
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != int64(c.messages) {
					t.Errorf("%v, want %d done", counts, c.messages)
				}
			})
		})
	}
}

// An attempt that a stop cancels is not charged, and the next relay gets the message immediately.
func TestStopChargesNoAttempt(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		synctest.Test(t, func(t *testing.T) {
			db := memstore.New()
			write(db, "orders", "k", 1)
			sink := inproc.Func(func(ctx context.Context, _ sinks.Message) error {
				<-ctx.Done()
				return fmt.Errorf("charge the card: %w", ctx.Err())
			})
			_, stop := start(t, db.Store(), relay.Options{Claim: claim, DrainTimeout: time.Second, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Timeout: time.Hour}}})
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if m := all(t, db)[0]; m.Attempts != 0 || m.State == storage.StateDone || m.State == storage.StateError {
				t.Errorf("after the stop the message is %s with %d attempts, want 0", m.State, m.Attempts)
			}
			next := &recorder{}
			_, stopNext := start(t, db.Store(), relay.Options{Claim: claim, Sinks: to(next)})
			time.Sleep(20 * time.Second)
			if err := stopNext(); err != nil {
				t.Error(err)
			}
			if len(next.received) != 1 || next.received[0].Attempt != 1 {
				t.Errorf("the next relay received %v", next.received)
			}
		})
	}
}

// An observer gets the error value that a handler returned.
func TestObserverGetsTheHandlersError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, told := memstore.New(), &handlerErrors{}
		write(db, "fails", "", 1)
		write(db, "panics", "", 1)
		declined := errors.New("declined")
		sink := inproc.Func(func(_ context.Context, m sinks.Message) error {
			if m.Topic == "panics" {
				panic(declined)
			}
			return inproc.Permanent(fmt.Errorf("charge the card: %w", declined))
		})
		_, stop := start(t, db.Store(), relay.Options{Observer: told, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: relay.JudgeAtOnce, MaxAttempts: 1}}})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(told.attempts) != 2 {
			t.Fatalf("observed %v", told.attempts)
		}
		for _, a := range told.attempts {
			if a.Became != "is parked" || !errors.Is(a.Err, declined) || a.Topic == "" {
				t.Errorf("observed topic %q: %v", a.Topic, a.Err)
			}
		}
	})
}

type handlerErrors struct {
	relay.NoObserver
	mu       sync.Mutex
	attempts []relay.Attempt
}

func (h *handlerErrors) Attempted(a relay.Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts = append(h.attempts, a)
}

func all(t *testing.T, db *memstore.DB) []storage.Info {
	t.Helper()
	all, err := db.Store().List(t.Context(), storage.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// badlyMade is a sink whose methods all panic.
type badlyMade struct{}

func (badlyMade) Open(context.Context) error                            { panic("open") }
func (badlyMade) Send(context.Context, []sinks.Message) []sinks.Outcome { panic("send") }
func (badlyMade) Close(context.Context) error                           { panic("close") }

// A sink that panics, even in Close, does not end the process.
func TestPanickingSinkDoesNotEndTheRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		write(db, "orders", "", 1)
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(badlyMade{})})
		time.Sleep(time.Minute)
		if err := stop(); err == nil || err.Error() != `close sink "main": panic: close` {
			t.Errorf("stop: %v", err)
		}
	})
}
