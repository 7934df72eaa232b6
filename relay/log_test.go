package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// A message fails until it is parked. The first and the tenth attempt are logged at the level warn, with the time of the next
// attempt, and the other attempts at debug. The parking is logged at error, with its reason. No line has the text of the
// destination's response.
func TestLogOfAFailingMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, log := memstore.New(), &lines{}
		sink := &recorder{answer: func(sinks.Message) sinks.Outcome {
			return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500 Internal Server Error: a payload")
		}}
		write(db, "orders", "k", 1)
		_, stop := start(t, db.Store(), relay.Options{
			Sinks:  map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: 12, BreakerThreshold: -1}},
			Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		time.Sleep(2 * time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, want := range []struct {
			n    int
			with []string
		}{
			{2, []string{"level=WARN", "will be tried again", "reason=server_error", `detail="500 Internal Server Error"`, "next="}},
			{9, []string{"level=DEBUG", "will be tried again", "next="}},
			{1, []string{"level=ERROR", "parked a message", "attempt=12", "reason=exhausted", `detail="server_error: 500 Internal Server Error"`}},
			{0, []string{"a payload"}},
		} {
			if n := log.with(want.with...); n != want.n {
				t.Errorf("%d lines with %q, want %d", n, want.with, want.n)
			}
		}
		if t.Failed() {
			t.Log(log.text.String())
		}
	})
}

// When a relay starts, its sinks and routes are logged. The start of a drain is not logged.
func TestLogOfAStart(t *testing.T) {
	t.Parallel()
	for _, drain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log := &lines{}
			_, stop := start(t, memstore.New().Store(), relay.Options{
				Name: "one", Sinks: to(&recorder{}), Routes: []relay.Route{{Topic: "orders.paid", Sink: "main"}, {Prefix: "log.", Sink: "main"}},
				Drain: drain, Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			synctest.Wait()
			if err := stop(); err != nil {
				t.Error(err)
			}
			lines := log.with("level=INFO", "relay: started", "relay=one", "claim=lanes", `sinks="[main: `, `routes="[prefix log. to main topic orders.paid to main]"`)
			if want := map[bool]int{false: 1}[drain]; lines != want {
				t.Errorf("drain %v: %d lines, want %d:\n%s", drain, lines, want, log.text.String())
			}
		})
	}
}

// If many messages fail for the same reason, one line is logged in ten seconds, with the number of suppressed lines.
func TestLogOfManyFailuresIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, log := memstore.New(), &lines{}
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if m.Attempt == 1 && m.Sequence%2 == 0 {
				return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "no answer")
			}
			return sinks.Ok("")
		}}
		_, stop := start(t, db.Store(), relay.Options{Sinks: judging(sink), Logger: slog.New(slog.NewTextHandler(log, nil))})
		for range 30 {
			write(db, "orders", "", 20)
			time.Sleep(time.Second)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := log.with("level=WARN", "will be tried again"); n < 2 || n > 3 {
			t.Errorf("%d lines in 30 s, want one in ten:\n%s", n, log.text.String())
		}
		if n := log.with("level=WARN", "will be tried again", "suppressed=99"); n == 0 {
			t.Errorf("no line has the number of suppressed lines:\n%s", log.text.String())
		}
	})
}

// If a handler panics, or its error has a stack trace, the log has the file and line.
func TestLogHasTheStackOfAHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler inproc.Handler
		want    []string
	}{
		"error": {func(context.Context, sinks.Message) error { return errors.New("out of stock") }, []string{"reason=handler_error", `detail="out of stock"`}},
		"error with a stack": {func(context.Context, sinks.Message) error { return inproc.RetryAfter(stacked{}, time.Second) },
			[]string{"reason=handler_error", `detail="no price\nno price\nshop.price\n\tprice.go:7"`}},
		"panic": {func(context.Context, sinks.Message) error { panic("no stock") }, []string{"reason=panic", "panic: no stock", "log_test.go:"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, log := memstore.New(), &lines{}
				write(db, "orders", "", 1)
				_, stop := start(t, db.Store(), relay.Options{Sinks: to(inproc.Func(c.handler)), Logger: slog.New(slog.NewTextHandler(log, nil))})
				time.Sleep(100 * time.Millisecond)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := log.with(append(c.want, "level=WARN")...); n != 1 {
					t.Errorf("%d lines with %q:\n%s", n, c.want, log.text.String())
				}
			})
		})
	}
}

// stacked is an error with a stack, like those of github.com/pkg/errors.
type stacked struct{}

func (stacked) Error() string { return "no price" }
func (stacked) Format(f fmt.State, verb rune) {
	fmt.Fprint(f, "no price")
	if verb == 'v' && f.Flag('+') {
		fmt.Fprint(f, "\nshop.price\n\tprice.go:7")
	}
}

// After an outage of the database one line reports how long it lasted. A single failed call is not an outage.
func TestLogReportsTheDatabasesReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, log := memstore.New(), &lines{}
		var gone atomic.Bool
		calls := 0
		store := db.Store()
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if gone.Load() {
				return errors.New("connection refused")
			}
			if op == memstore.OpRead {
				if calls++; calls%5 == 0 {
					return errors.New("deadlock")
				}
			}
			return nil
		}
		_, stop := start(t, store, relay.Options{Sinks: to(&recorder{}), Logger: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(time.Minute)
		if n := log.with("the database is back"); n != 0 {
			t.Errorf("%d lines report that the database is back, although it was never unavailable", n)
		}
		gone.Store(true)
		time.Sleep(time.Minute)
		gone.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := log.with("level=INFO", "the database is back", "after="); n != 1 {
			t.Errorf("%d lines report that the database is back, want 1:\n%s", n, log.text.String())
		}
	})
}

// After each minute with work, and at the end of the run, one line reports what was done.
func TestLogSummarizesEachMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, log := memstore.New(), &lines{}
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			switch {
			case m.Topic == "bad":
				return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "no")
			case m.Topic == "again" && m.Attempt == 1:
				return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "no answer")
			}
			return sinks.Ok("")
		}}
		_, stop := start(t, db.Store(), relay.Options{Sinks: judging(sink), Logger: slog.New(slog.NewTextHandler(log, nil))})
		write(db, "orders", "", 10)
		write(db, "again", "", 1)
		write(db, "bad", "", 1)
		time.Sleep(5 * time.Minute)
		write(db, "orders", "", 7)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"delivered=11 retried=1 parked=1 expired=0 in_flight=0 in_memory=0", "delivered=7 retried=0 parked=0"} {
			if n := log.with("level=INFO", "work done", want); n != 1 {
				t.Errorf("%d lines with %q", n, want)
			}
		}
		if n := log.with("work done"); n != 2 {
			t.Errorf("%d lines:\n%s", n, strings.TrimSpace(log.text.String()))
		}
	})
}
