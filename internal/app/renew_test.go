package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// lock is a destination that accepts messages with one password. For any other password it returns its field
// outcome.
type lock struct {
	password string
	made     []string // the passwords of the sinks that were made
	closed   int
	outcome  sinks.Outcome
}

type key struct {
	*lock
	password string
}

func (k key) Open(context.Context) error  { return nil }
func (k key) Close(context.Context) error { k.closed++; return nil }

func (k key) Address(topic string) sinks.Address {
	return sinks.Address{System: "lock", Name: topic}
}

func (k key) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	if k.password == k.lock.password {
		return sinks.All(len(batch), sinks.Ok(""))
	}
	return sinks.All(len(batch), k.outcome)
}

// exact is a sink that implements sinks.Deduplicating.
type exact struct{ key }

func (exact) Plan(_ context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	return make([]sinks.BatchRef, len(batch)), make([]sinks.Outcome, len(batch))
}

// Whatever outcome a sink reports for a refused login, no message is charged if the password in the file has changed
// meanwhile.
func TestRenewedPasswordChargesNoMessage(t *testing.T) {
	t.Parallel()
	for _, outcome := range []sinks.Outcome{
		sinks.Fail(sinks.Reject, sinks.ReasonRefused, "401"), sinks.Fail(sinks.Retry, sinks.ReasonRefused, "401"), sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, "wrong password"),
	} {
		for _, deduplicating := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				to, folder, log := &lock{password: "one", outcome: outcome}, t.TempDir(), &strings.Builder{}
				write := func(name, text string) {
					t.Helper()
					if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				kinds, err := sinks.NewRegistry(sinks.Kind{Name: "lock", Fields: []settings.Field{{Name: "password", Type: settings.TypeSecret, Help: "The password."}},
					New: func(s settings.Values) (sinks.Sink, error) {
						made := key{to, s.Secret("password").Reveal()}
						to.made = append(to.made, made.password)
						if deduplicating {
							return exact{made}, nil
						}
						return made, nil
					}})
				if err != nil {
					t.Fatal(err)
				}
				write("password", "one")
				write("rowrelay.yaml", "sources: {a: {database: \"sqlite:a.db\"}}\nsinks: {all: {type: lock, password_file: password}}\n")
				c, err := config.Load(filepath.Join(folder, "rowrelay.yaml"), kinds)
				if err != nil {
					t.Fatal(err)
				}
				b := newBench("a")
				options := b.options(t)
				options.Sinks, options.Logger = kinds, slog.New(slog.NewTextHandler(log, nil))
				a := make1(t, c, options)
				sink := a.sources[0].sinks["all"].Sink
				if _, is := sink.(sinks.Deduplicating); is != deduplicating {
					t.Fatalf("it is deduplicating: %v", is)
				}
				if got := sink.(sinks.Addressing).Address("t"); got != (sinks.Address{System: "lock", Name: "t"}) {
					t.Errorf("the address is %+v", got)
				}
				batch := []sinks.Message{{Message: outbox.Message{Topic: "t"}, Attempt: 1}}
				send := func(want sinks.Outcome) {
					t.Helper()
					if got := sink.Send(t.Context(), batch)[0]; got.Result != want.Result || got.Reason != want.Reason {
						t.Errorf("%+v, want %v %s", got, want.Result, want.Reason)
					}
				}
				send(sinks.Ok(""))
				to.password = "two"
				send(outcome) // the file still has the old password
				write("password", "two\n")
				send(sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, ""))
				made := len(to.made)
				if err := sink.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				send(sinks.Ok(""))
				if to.closed != 1 || len(to.made) <= made || to.made[len(to.made)-1] != "two" {
					t.Errorf("%d sinks were closed, those made have %q", to.closed, to.made)
				}

				write("password", "")
				time.Sleep(2 * renewEvery)
				send(sinks.Ok(""))
				if !strings.Contains(log.String(), "the previous secrets stay in use") {
					t.Errorf("the log has no error about the empty file: %s", log)
				}
				write("password", "three")
				to.password = "three"
				time.Sleep(2 * renewEvery)
				send(sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, ""))
				if err := sink.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				send(sinks.Ok(""))
			})
		}
	}
}

// latch is a sink that can be renewed while it sends. Open tests its password. For any other password than the right one, Send
// returns the outcome for the first message, and sends no other.
type latch struct {
	right, password *atomic.Value
	outcome         sinks.Outcome
}

func (l latch) Open(context.Context) error {
	if l.password.Load() != l.right.Load() {
		return &sinks.OpenError{Reason: sinks.ReasonAuth, Detail: fmt.Sprint("wrong password: ", l.password.Load())}
	}
	return nil
}

func (l latch) Close(context.Context) error { return nil }

func (l latch) Renew(with sinks.Sink) { l.password.Store(with.(latch).password.Load()) }

func (l latch) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	outcomes := sinks.All(len(batch), sinks.Ok(""))
	if l.password.Load() != l.right.Load() {
		outcomes = sinks.All(len(batch), sinks.Blocked())
		outcomes[0] = l.outcome
	}
	return outcomes
}

// exactLatch is a latch that implements sinks.Deduplicating.
type exactLatch struct{ latch }

func (l exactLatch) Renew(with sinks.Sink) { l.latch.Renew(with.(exactLatch).latch) }

func (l exactLatch) Plan(ctx context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	return make([]sinks.BatchRef, len(batch)), l.Send(ctx, batch)
}

// While a sink sends, its password is renewed ten times, at the destination and in its file, in both orders. No message
// fails.
func TestRenewedPasswordFailsNoMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outcome sinks.Outcome
		exact   bool
	}{
		"unavailable":        {sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, "wrong password"), false},
		"unavailable, exact": {sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, "wrong password"), true},
		"retry":              {sinks.Fail(sinks.Retry, sinks.ReasonAuth, "401"), false},
		"reject":             {sinks.Fail(sinks.Reject, sinks.ReasonRefused, "401"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				right, folder, log := &atomic.Value{}, t.TempDir(), &strings.Builder{}
				right.Store("0")
				kinds, err := sinks.NewRegistry(sinks.Kind{Name: "lock", Fields: []settings.Field{{Name: "password", Type: settings.TypeSecret, Help: "The password."}},
					New: func(s settings.Values) (sinks.Sink, error) {
						made := latch{right, &atomic.Value{}, test.outcome}
						made.password.Store(s.Secret("password").Reveal())
						if test.exact {
							return exactLatch{made}, nil
						}
						return made, nil
					}})
				if err != nil {
					t.Fatal(err)
				}
				write := func(name, text string) {
					t.Helper()
					if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				write("password", "0")
				write("rowrelay.yaml", "sources: {a: {database: \"sqlite:a.db\"}}\nsinks: {all: {type: lock, password_file: password}}\n")
				c, err := config.Load(filepath.Join(folder, "rowrelay.yaml"), kinds)
				if err != nil {
					t.Fatal(err)
				}
				options := newBench("a").options(t)
				options.Sinks, options.Logger = kinds, slog.New(slog.NewTextHandler(log, nil))
				sink := make1(t, c, options).sources[0].sinks["all"].Sink
				batch := []sinks.Message{{Message: outbox.Message{Topic: "t", Key: "a"}}, {Message: outbox.Message{Topic: "t", Key: "b"}}}
				send := func() {
					t.Helper()
					if plans, is := sink.(sinks.Deduplicating); is {
						if _, outcomes := plans.Plan(t.Context(), batch); outcomes[0].Result != sinks.Delivered {
							t.Errorf("planned: %+v", outcomes[0])
						}
					}
					for _, o := range sink.Send(t.Context(), batch) {
						if o.Result != sinks.Delivered {
							t.Errorf("%+v", o)
						}
					}
					time.Sleep(100 * time.Millisecond)
				}
				if err := sink.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				for i := range 10 {
					next := strconv.Itoa(i + 1)
					if i%2 == 0 { // the file is first: until the destination accepts the new password, the previous one stays in use
						write("password", next)
						for range 50 {
							send()
						}
						right.Store(next)
					} else {
						right.Store(next)
						write("password", next)
					}
					for range 50 {
						send()
					}
				}
				if n := strings.Count(log.String(), "the sink's secrets or certificates were renewed"); n != 10 {
					t.Errorf("the sink was renewed %d times:\n%s", n, log)
				}
				if n := strings.Count(log.String(), "the previous ones stay in use"); n != 5 {
					t.Errorf("%d renewals failed, want one for each file that is written first:\n%s", n, log)
				}
				right.Store("another")
				if err := sink.Open(t.Context()); err == nil || sinks.Unopened(err).Reason != sinks.ReasonAuth {
					t.Errorf("with a wrong password: %v", err)
				}
				write("password", "and another")
				if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "and another") {
					t.Errorf("the error isn't that of the current password: %v", err)
				}
				write("password", "another")
				if err := sink.Open(t.Context()); err != nil {
					t.Error(err)
				}
				send()
				if err := sink.Close(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			})
		})
	}
}

// After a refused login only messages that this refusal has affected are sent again.
func TestMessagesToRepeat(t *testing.T) {
	t.Parallel()
	auth, refused, open := sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, ""), sinks.Fail(sinks.Reject, sinks.ReasonRefused, ""), sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")
	ok, blocked, later := sinks.Ok(""), sinks.Blocked(), sinks.Postpone(sinks.ReasonBusy, "", time.Second)
	for name, test := range map[string]struct {
		keys     string
		outcomes []sinks.Outcome
		exact    bool
		want     []int
	}{
		"all":                                  {"aab", []sinks.Outcome{auth, blocked, blocked}, false, []int{0, 1, 2}},
		"delivered ones are left out":          {"aab", []sinks.Outcome{ok, refused, ok}, false, []int{1}},
		"behind an unknown outcome":            {"aabb", []sinks.Outcome{open, blocked, refused, blocked}, false, []int{2, 3}},
		"behind a postponed message":           {"aab", []sinks.Outcome{later, blocked, auth}, false, []int{2}},
		"messages without a key block nothing": {"--b", []sinks.Outcome{open, blocked, auth}, false, []int{1, 2}},
		"exact: only with an unknown outcome":  {"abc", []sinks.Outcome{refused, blocked, auth}, true, []int{2}},
	} {
		batch := make([]sinks.Message, len(test.keys))
		for i, key := range test.keys {
			if key != '-' {
				batch[i].Key = string(key)
			}
		}
		if got := toRepeat(batch, test.outcomes, test.exact); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
