package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
