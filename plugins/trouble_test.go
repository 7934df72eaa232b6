package plugins_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Each kind of failure has its own outcome, and the messages of another sink are not affected.
func TestOutcomesOfAMisbehavingPlugin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*plugins.Options)
		reason sinks.Reason
		want   string
		dies   bool
	}{
		"die": {nil, sinks.ReasonUnknown, "exited (exit status 7)", true},
		"eat": {func(o *plugins.Options) { o.Memory = 200 << 20 }, sinks.ReasonUnknown, "more than its limit of 200 MiB and was killed", true},
		"stop": {func(o *plugins.Options) {
			o.HealthInterval, o.HealthTimeout = 50*time.Millisecond, 10*time.Second // a healthy plug-in answers within this time on any machine
		}, sinks.ReasonUnknown, "didn't answer a health check within 10s and was killed", true},
		"panic": {nil, sinks.ReasonPanic, "panic: as told, with [secret]", false},
		"crash": {nil, sinks.ReasonUnknown, "exited (exit status 2): panic: where nobody recovers", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, "scripted")
			o.Secrets = map[string]settings.Secret{"secret": "s3cret-text"}
			if test.change != nil {
				test.change(&o)
			}
			sink, other := running(t, o), running(t, options(t, "scripted"))
			got := sink.Send(t.Context(), orders(name))[0]
			if got.Result != sinks.Retry || got.Reason != test.reason || !strings.Contains(got.Detail, test.want) {
				t.Errorf("outcome %+v, want %s: %s", got, test.reason, test.want)
			}
			if next := sink.Send(t.Context(), orders("hello"))[0]; (next.Result == sinks.Unavailable) != test.dies {
				t.Errorf("the next message: %+v", next)
			}
			ask(t, other, "hello")
			check(t, sink.Open(t.Context()))
			ask(t, sink, "hello")
		})
	}
}

// If a message kills the plug-in, the other messages of its batch are charged only
// one attempt, because after the first crash they are sent one at a time.
func TestOnlyTheKillingMessageIsCharged(t *testing.T) {
	t.Parallel()
	sink := running(t, options(t, "scripted"))
	left := orders("a", "b", "die", "c", "d")
	charged := map[string]int{}
	for range 5 {
		var again, later []sinks.Message // charged messages wait for their next attempt
		for i, o := range sink.Send(t.Context(), left) {
			switch o.Result {
			case sinks.Retry:
				charged[string(left[i].Payload)]++
				later = append(later, left[i])
			case sinks.Unavailable, sinks.Unsent:
				again = append(again, left[i])
			}
		}
		left = append(again, later...)
		check(t, sink.Open(t.Context()))
	}
	if len(left) != 1 || string(left[0].Payload) != "die" || charged["a"] != 1 || charged["d"] != 1 || charged["die"] < 3 {
		t.Errorf("left: %v, charged: %v", left, charged)
	}
	if got := sink.Suspects(); got != 1 {
		t.Errorf("%d suspects", got)
	}
}

// A message is postponed for as long as the plug-in says, and the other messages
// are delivered.
func TestPostponed(t *testing.T) {
	t.Parallel()
	sink := running(t, options(t, "scripted"))
	told := []string{"connection", "throttled", "auth", "busy"}
	for i, got := range sink.Send(t.Context(), orders("postpone connection", "postpone throttled", "postpone auth", "postpone busy", "hello")) {
		want := sinks.Ok("hello")
		if i < len(told) {
			want = sinks.Postpone(sinks.Reason(told[i]), "its part is in trouble", 1500*time.Millisecond)
		}
		if got != want {
			t.Errorf("outcome %d is %+v, want %+v", i, got, want)
		}
	}
}

// A deduplicating sink needs references, which the protocol doesn't carry.
func TestDeduplicatingSinkIsRefused(t *testing.T) {
	t.Parallel()
	sink := newSink(t, options(t, "deduplicating"))
	err := sink.Open(t.Context())
	var refused *sinks.OpenError
	if !errors.As(err, &refused) || refused.Reason != sinks.ReasonConfig || !strings.Contains(refused.Detail, "implements sinks.Deduplicating, which the plug-in protocol doesn't support") {
		t.Errorf("Open: %v", err)
	}
	for i, o := range sink.Send(t.Context(), orders("hello", "hello")) {
		if o.Result != sinks.Unavailable && o.Result != sinks.Unsent {
			t.Errorf("outcome %d is %+v", i, o)
		}
	}
	check(t, sink.Close(t.Context()))
}

// When the time for a Send is up, the plug-in reports which messages it has not started
// to send, and these are not charged an attempt.
func TestTimeoutDoesNotChargeUnsentMessages(t *testing.T) {
	t.Parallel()
	sink := running(t, options(t, "scripted"))
	const enough = 5 * time.Second // the time in which the first message gets its outcome
	for name, limit := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, enough)
		},
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(enough, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := limit(t.Context())
		var got []sinks.Result
		for _, o := range sink.Send(ctx, orders("a", "wait", "b")) {
			got = append(got, o.Result)
		}
		if want := []sinks.Result{sinks.Delivered, sinks.Unsent, sinks.Unsent}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		cancel()
	}
}

// The relay doesn't wait for a plug-in that ignores the time limit.
func TestStoppedPluginDoesNotBlockTheRelay(t *testing.T) {
	t.Parallel()
	sink := running(t, options(t, "scripted"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // enough time for the plug-in to receive the message
	defer cancel()
	if o := sink.Send(ctx, orders("stop"))[0]; o.Result != sinks.Retry || o.Reason != sinks.ReasonTimeout {
		t.Errorf("outcome %+v", o)
	}
	began := time.Now()
	check(t, syscall.Kill(sink.PID(), 0)) // the process exists but doesn't answer
	closing, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := sink.Close(closing); err == nil {
		t.Error("Close returned no error although the plug-in doesn't answer")
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("Close took %v", took)
	}
}

// A killed plug-in has nothing open, so Close returns no error.
func TestCloseOfAKilledPlugin(t *testing.T) {
	t.Parallel()
	for range 5 {
		sink := running(t, options(t, "scripted"))
		check(t, syscall.Kill(sink.PID(), syscall.SIGKILL))
		check(t, sink.Close(t.Context()))
	}
}

func TestPluginLimitsAreKept(t *testing.T) {
	t.Parallel()
	sink := running(t, options(t, "limited"))
	messages := orders("1", "2", "3", "4", strings.Repeat("5", 60), strings.Repeat("6", 60), strings.Repeat("7", 200), "8")
	var got []string
	for _, o := range sink.Send(t.Context(), messages) {
		got = append(got, o.Receipt)
	}
	if want := "3 3 3 2 2 1 1 1"; strings.Join(got, " ") != want {
		t.Errorf("batch sizes: %v, want %v", got, want)
	}
}

// The relay's log has what the plug-in logs and prints, with its level and without its
// secrets.
func TestLogs(t *testing.T) {
	t.Parallel()
	l := watched(t)
	o := options(t, "scripted")
	o.Logger = l.logger()
	o.Secrets = map[string]settings.Secret{"secret": "s3cret-text"}
	sink := running(t, o)
	ask(t, sink, "log")
	check(t, sink.Close(t.Context()))
	text := l.String()
	for _, want := range []string{
		`level=WARN msg="plug-in: as told" plugin=plugins.test secret=[secret]`,
		`level=INFO msg="plug-in: printed [secret]" plugin=plugins.test`,
		`msg="plug-in: long long long`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Error("the log shows the secret")
	}
}

// Processes that the plug-in has started end with it. A process that has left the
// plug-in's process group doesn't block Close.
func TestChildrenEndWithThePlugin(t *testing.T) {
	t.Parallel()
	o := options(t, "scripted")
	o.Env["PATH"] = "/usr/bin:/bin"
	sink := running(t, o)
	with, err := strconv.Atoi(ask(t, sink, "fork with"))
	check(t, err)
	away, err := strconv.Atoi(ask(t, sink, "fork away"))
	check(t, err)
	t.Cleanup(func() { _ = syscall.Kill(away, syscall.SIGKILL) })
	check(t, sink.Close(t.Context()))
	eventually(t, "the child in the group is gone", func() bool { return !lives(with) })
	if !lives(away) {
		t.Error("the child with a session of its own has exited, so the test proves nothing")
	}
}

// lives reports whether a process exists and is not a zombie.
func lives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Minute); !condition(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited without success: %s", what)
		}
	}
}
