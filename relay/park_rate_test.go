package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// A sink refuses most messages, because the login of one of its two tenants has expired, and delivers the others. Before a
// hundred messages are parked, the sink is paused for all relays, with the reason. After the login is renewed and the sink
// resumed, all waiting messages are delivered.
func TestParkRateLimitPausesTheSink(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, relays := range []int{1, 3} {
			t.Run(fmt.Sprint(claim, " ", relays), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db := memstore.New()
					renewed := false
					sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
						if m.Topic == "expired" && !renewed {
							return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "401 Unauthorized")
						}
						return sinks.Ok("")
					}}
					var stops []func() error
					for range relays {
						_, stop := start(t, db.Store(), relay.Options{Claim: claim, Sinks: to(sink)})
						stops = append(stops, stop)
					}
					time.Sleep(10 * time.Second)
					for i := range 5000 {
						write(db, "expired", fmt.Sprint("key-", i), 1)
						if i%3 == 0 {
							write(db, "fine", fmt.Sprint("fine-", i), 1)
						}
						if i%100 == 0 {
							time.Sleep(100 * time.Millisecond)
						}
					}
					time.Sleep(time.Minute)
					status, err := db.Store().Status(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					parked := status.Counts[storage.StateError]
					if parked == 0 || parked >= 100 {
						t.Errorf("%d messages were parked", parked)
					}
					if len(status.Controls) != 1 || status.Controls[0].Kind != storage.PauseSink || status.Controls[0].Name != "main" {
						t.Fatalf("the controls in force are %v", status.Controls)
					}
					t.Logf("%d parked; %s: %s", parked, status.Controls[0].By, status.Controls[0].Reason)
					renewed = true
					if _, err := db.Store().LiftControl(t.Context(), status.Controls[0]); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					if status, err = db.Store().Status(t.Context()); err != nil {
						t.Fatal(err)
					}
					if done := status.Counts[storage.StateDone]; done != 5000+1667-parked {
						t.Errorf("%d messages are done and %d parked, of 6667", done, parked)
					}
					for _, stop := range stops {
						if err := stop(); err != nil {
							t.Error(err)
						}
					}
				})
			})
		}
	}
}

// A sink that delivers most of its messages is not paused, however many it refuses. A sink without a ParkRateLimit is never
// paused.
func TestSinkIsNotPausedBelowTheParkRateLimit(t *testing.T) {
	t.Parallel()
	refused := sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422")
	for name, test := range map[string]struct {
		refused, limit int
		says           sinks.Outcome
	}{
		"most messages are delivered": {4, 0, refused}, "never": {8, -1, refused},
		"most messages are delivered, and failures are retried": {4, 0, sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
					if m.Topic == "bad" {
						return test.says
					}
					return sinks.Ok("")
				}}
				_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, ParkRateLimit: test.limit, MaxAttempts: 5}}})
				for i := range 3000 {
					topic := "good"
					if i*7%10 < test.refused {
						topic = "bad"
					}
					write(db, topic, fmt.Sprint("key-", i*7), 1)
					time.Sleep(10 * time.Millisecond)
				}
				for i := range 600 { // deliveries after the last bad messages, so that these are judged, too
					write(db, "good", fmt.Sprint("later-", i), 1)
					time.Sleep(100 * time.Millisecond)
				}
				status, err := db.Store().Status(t.Context())
				if err != nil || len(status.Controls) > 0 || status.Counts[storage.StatePending] > 0 {
					t.Errorf("%v, the controls in force are %v, and the states %v", err, status.Controls, status.Counts)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A few bad messages don't pause a sink, however many relays are active. With many relays, each gets only a part of the sink's
// messages, but one relay gets all bad messages of a key.
func TestFewBadMessagesPauseNoSinkOfManyRelays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ relays, bad int }{{10, 5}, {10, 20}, {60, 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{answer: func(m sinks.Message) sinks.Outcome {
					if m.Topic == "bad" {
						return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422")
					}
					return sinks.Ok("")
				}}
				var stops []func() error
				for i := range c.relays {
					_, stop := start(t, db.Store(), relay.Options{Name: fmt.Sprint("relay-", i), Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: time.Second}}})
					stops = append(stops, stop)
				}
				time.Sleep(20 * time.Second)
				write(db, "bad", "one key", c.bad)
				for i := range 1000 {
					write(db, "good", fmt.Sprint("key-", i), 1)
				}
				time.Sleep(50 * time.Second)
				status, err := db.Store().Status(t.Context())
				if err != nil || len(status.Controls) > 0 || status.Counts[storage.StateError] != int64(c.bad) || status.Counts[storage.StateDone] != 1000 {
					t.Errorf("%v, the controls in force are %v, and the states %v", err, status.Controls, status.Counts)
				}
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// mayNotWriteControls is a store whose relay has the privilege to read controls but not to write them.
type mayNotWriteControls struct{ *memstore.Store }

func (mayNotWriteControls) SetControl(context.Context, storage.Control, time.Duration) error {
	return errors.New("permission denied for table outbox_controls")
}

// A relay without the privilege to write controls pauses the sink only for itself. It continues to apply controls. When an
// operator ends a pause of the sink, the relay resumes the sink, too.
func TestControlsAreReadThoughAPauseCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{answer: func(m sinks.Message) sinks.Outcome {
					if m.Topic == "bad" {
						return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "401 Unauthorized")
					}
					return sinks.Ok("")
				}}
				operator := steered{t, db}
				_, stop := start(t, mayNotWriteControls{db.Store()}, relay.Options{Claim: claim, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, ParkRateLimit: 10, JudgeAloneAfter: relay.JudgeAtOnce}}})
				good := 0
				blown := func() bool { // the sink must deliver some messages: while it delivers none, it counts as unavailable, and no message is parked
					for i := range 40 {
						write(db, "bad", fmt.Sprint("key-", i), 1)
					}
					time.Sleep(10 * time.Second)
					write(db, "good", "another key", 1)
					good++
					before := sink.counted("good")
					time.Sleep(2 * time.Second)
					return sink.counted("good") == before
				}
				for range 5 {
					tries := 1
					for ; !blown(); tries++ {
						if tries == 20 {
							t.Fatal("the sink is not paused")
						}
					}
					operator.set(storage.PauseSink, "main", 0)
					time.Sleep(2 * time.Second)
					operator.lift(storage.PauseSink, "main")
					time.Sleep(2 * time.Second)
				}
				operator.set(storage.PauseTopic, "bad", 0)
				operator.set(storage.PauseSink, "main", 0)
				time.Sleep(2 * time.Second)
				operator.lift(storage.PauseSink, "main")
				time.Sleep(time.Minute)
				if n := sink.counted("good"); n != good {
					t.Errorf("%d of %d messages were sent after the last pause of the sink", n, good)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
