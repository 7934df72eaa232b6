package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// lines is an io.Writer for a log. A test can count its lines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) with(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			n++
		}
	}
	return n
}

// If a handler is stuck, its relay reports this, and another relay delivers the handler's messages in order.
func TestStuckHandlerLeavesItsMessagesToOthers(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprint(claim, workers), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { testStuck(t, claim, workers) })
			})
		}
	}
}

func testStuck(t *testing.T, claim storage.Claim, workers int) {
	db, log, stuck, good := memstore.New(), &lines{}, &stubborn{release: make(chan struct{})}, &recorder{}
	for i := range 200 {
		write(db, "orders", fmt.Sprint("k", i%40), 1)
	}
	options := func(sink sinks.Sink) relay.Options {
		return relay.Options{Claim: claim, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Timeout: 2 * time.Second, Workers: workers, Batch: 10}}}
	}
	of := options(stuck)
	of.Name, of.Logger = "stuck", slog.New(slog.NewTextHandler(log, nil))
	r, stop := start(t, db.Store(), of)
	time.Sleep(10 * time.Second)
	err := r.Healthy()
	if err == nil || !strings.Contains(err.Error(), `sink "main" appears to be stuck`) || !strings.Contains(err.Error(), `topic "orders"`) {
		t.Errorf("healthy: %v", err)
	}
	if n := log.with("appears to be stuck", "sink=main"); n != workers {
		t.Errorf("%d lines in the log, want %d", n, workers)
	}
	time.Sleep(300 * time.Millisecond) // so that the two relays don't renew their leases at the same moment
	other := options(good)
	other.Name, other.Join = "other", true // Join, because its sink differs
	_, stopOther := start(t, db.Store(), other)
	time.Sleep(40 * time.Second)
	if n := len(good.ids()); n != 200 {
		t.Errorf("the other relay delivered %d messages, want 200", n)
	}
	if claim == storage.ByLanes {
		inOrder(t, good.received)
	}
	began := time.Now()
	if err := stop(); err == nil || !strings.Contains(err.Error(), `sink "main" appears to be stuck`) {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > 17*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if err := stopOther(); err != nil {
		t.Error(err)
	}
	close(stuck.release)
	synctest.Wait()
}

// When the stuck handler returns, the relay is healthy and gets its share again.
func TestStuckHandlerReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, stuck := memstore.New(), &stubborn{release: make(chan struct{})}
		write(db, "orders", "k", 5)
		r, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: stuck, Timeout: 2 * time.Second, Workers: 1}}})
		time.Sleep(time.Minute)
		close(stuck.release)
		time.Sleep(30 * time.Second)
		if err := r.Healthy(); err != nil {
			t.Error(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 5 {
			t.Errorf("%v, want 5 done", counts)
		}
	})
}

// An abort ends Run soon, even if a handler is stuck. A stop ends Run soon, even if the sink doesn't return from Close.
func TestAbortWithAStuckHandlerReturnsSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, stuck := memstore.New(), &stubborn{release: make(chan struct{})}
		write(db, "orders", "k", 1)
		r, stop := start(t, db.Store(), relay.Options{DrainTimeout: time.Hour, Sinks: to(stuck)})
		time.Sleep(time.Second)
		began := time.Now()
		r.Abort()
		if err := stop(); err == nil || !strings.Contains(err.Error(), `sink "main" appears to be stuck`) {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("the abort took %v", took)
		}
		close(stuck.release)
		synctest.Wait()
	})
}

// Handlers' errors are logged with their cause, and panics with the file and line. Similar errors are logged only at
// intervals.
func TestHandlersErrorsAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, log := memstore.New(), &lines{}
		write(db, "orders", "", 50)
		db.Write(messageTo("panics"))
		db.Write(messageTo("bad"))
		sink := inproc.Func(func(_ context.Context, m sinks.Message) error {
			switch m.Topic {
			case "panics":
				var nothing []int
				_ = nothing[len(m.Topic)]
			case "bad":
				return inproc.Permanent(errors.New("customer 7 is not known"))
			}
			if m.Attempt < 3 {
				return fmt.Errorf("reserve stock: %w", errors.New("deadlock"))
			}
			return nil
		})
		_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, BreakerThreshold: 1000, JudgeAloneAfter: relay.JudgeAtOnce, MaxAttempts: 4}}, Logger: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := log.with("a message failed", "reserve stock: deadlock", "sink=main", "topic=orders", "id="); n == 0 || n > 7 {
			t.Errorf("%d lines report the handler's error", n)
		}
		if n := log.with("a message failed", "index out of range", "stuck_test.go:"); n == 0 {
			t.Error("no line has the file of the panic")
		}
		if n := log.with("parked a message", "customer 7 is not known"); n != 1 {
			t.Errorf("%d lines report why a message was parked", n)
		}
	})
}

func messageTo(topic string) outbox.Message { return outbox.Message{Topic: topic} }
