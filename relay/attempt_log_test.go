package relay_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// attemptLog returns the state and the failed attempts of a row. The result `text` has a line "relay sink: answer" for
// each attempt.
func attemptLog(t *testing.T, db *memstore.DB, id int64, of string) (state storage.State, log storage.AttemptLog, text string) {
	t.Helper()
	infos, err := db.Store().List(t.Context(), storage.Filter{IDs: []string{strconv.FormatInt(id, 10)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if info.Sinks != of {
			continue
		}
		var lines []string
		for _, a := range info.AttemptLog {
			lines = append(lines, fmt.Sprintf("%s %s: %s", a.Relay, a.Sink, a.Answer))
		}
		return info.State, info.AttemptLog, strings.Join(lines, "\n")
	}
	t.Fatalf("no row %d has the sinks %q: %+v", id, of, infos)
	return "", nil, ""
}

// A message's row records the failed attempts of all relays, with times on the database's clock. The record is deleted
// when the message is delivered.
func TestFailedAttemptsStandInTheRow(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const ahead = 7 * time.Hour // how far the database's clock is ahead
				db, began := memstore.New(), time.Now()
				db.Now = func() time.Time { return time.Now().Add(ahead) }
				answer := sinks.Fail(sinks.Retry, sinks.ReasonServerError, "503 <b>busy</b>")
				sink := &recorder{delay: 2 * time.Second, answer: func(sinks.Message) sinks.Outcome { return answer }}
				write(db, "orders", "k", 1)
				run := func(name string, d time.Duration) {
					_, stop := start(t, db.Store(), relay.Options{Name: name, Claim: claim, Sinks: map[string]relay.SinkOptions{"main": {
						Sink: sink, JudgeAloneAfter: relay.JudgeAtOnce, Backoff: relay.Backoff{Min: time.Minute, Max: time.Minute},
					}}})
					time.Sleep(d)
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
				run("one", 90*time.Second)
				answer = sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "no")
				run("two", time.Hour)
				state, log, text := attemptLog(t, db, 1, "")
				const busy = "one main: server_error: 503 <b>busy</b>\n" // an attempt of the first relay; how many it makes depends on random back-offs
				if state != storage.StateError || len(log) < 2 || text != strings.Repeat(busy, len(log)-1)+"two main: invalid: no" {
					t.Fatalf("the message is %s, with the attempts\n%s\nwant it parked, with attempts of the first relay and one of the second", state, text)
				}
				for i, a := range log {
					if after := a.At.Sub(began.Add(ahead)); a.DurationMS != 2000 || after < 0 || after > 5*time.Minute || i > 0 && !a.At.After(log[i-1].At) {
						t.Errorf("attempt %d began %v after the start of the test, on the database's clock, and took %d ms; want ascending times in the first minutes, and 2000 ms", i+1, after, a.DurationMS)
					}
				}
				if n, err := db.Store().Requeue(t.Context(), storage.Filter{}); n != 1 || err != nil {
					t.Fatalf("requeued %d, %v", n, err)
				}
				if _, _, again := attemptLog(t, db, 1, ""); again != text {
					t.Errorf("after the requeue the attempts are\n%s\nwant\n%s", again, text)
				}
				answer = sinks.Ok("")
				run("three", time.Hour)
				if state, log, _ := attemptLog(t, db, 1, ""); state != storage.StateDone || len(log) > 0 {
					t.Errorf("at the end the message is %s, with the attempts %v; want it delivered, with none", state, log)
				}
			})
		})
	}
}

// Attempts that aren't charged are kept in memory, and written with the message's next state.
func TestUnchargedAttemptsAreWrittenWithTheNextState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		sink := &recorder{delay: 10 * time.Millisecond, answer: func(m sinks.Message) sinks.Outcome {
			if m.Sequence == 1 {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
			}
			return sinks.Ok("")
		}}
		write(db, "orders", "bad", 1)
		_, stop := start(t, db.Store(), relay.Options{Name: "r", Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Backoff: relay.Backoff{Min: time.Hour, Max: time.Hour}}}})
		for range 60 {
			write(db, "orders", "good", 1)
			time.Sleep(time.Second)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if state, log, text := attemptLog(t, db, 1, ""); state != storage.StateRetry || len(log) < 2 {
			t.Errorf("the message is %s, with the attempts\n%s\nwant a retry, with the uncharged attempt and the charged one", state, text)
		}
	})
}

// Each sink of a message has its own attempts.
func TestFailedAttemptsOfEachSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		failing := func(answer string) relay.SinkOptions {
			return relay.SinkOptions{JudgeAloneAfter: relay.JudgeAtOnce, Sink: &recorder{answer: func(sinks.Message) sinks.Outcome {
				return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, answer)
			}}}
		}
		write(db, "orders", "k", 1)
		_, stop := start(t, db.Store(), relay.Options{Name: "r",
			Sinks:  map[string]relay.SinkOptions{"a": failing("not a"), "b": failing("not b"), "c": {Sink: &recorder{}}},
			Routes: []relay.Route{{Topic: "*", Sinks: []string{"a", "b", "c"}}},
		})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"a", "b"} {
			if state, _, text := attemptLog(t, db, 1, name); state != storage.StateError || text != "r "+name+": invalid: not "+name {
				t.Errorf("the row of sink %s is %s, with the attempts %q; want it parked, with its own attempt", name, state, text)
			}
		}
		if state, log, _ := attemptLog(t, db, 1, "c"); state != storage.StateDone || len(log) > 0 {
			t.Errorf("the row of sink c is %s, with %v; want it delivered, with no attempts", state, log)
		}
	})
}

// A consumer's Retry and Park count as failed attempts.
func TestConsumersFailedAttemptsStandInTheRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		c, err := relay.NewConsumer(db.Store(), relay.ConsumerOptions{Name: "c", Backoff: relay.Backoff{Min: time.Second, Max: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		db.Write(outbox.Message{Topic: "a"})
		for _, answer := range []func(*relay.Delivery) error{
			func(d *relay.Delivery) error { return d.Retry(t.Context(), "later") },
			func(d *relay.Delivery) error { return d.Park(t.Context(), "never") },
		} {
			got, err := c.Receive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			if err := answer(got[0]); err != nil {
				t.Fatal(err)
			}
		}
		_, log, text := attemptLog(t, db, 1, "")
		if want := "c : later\nc : refused: never"; text != want || log[0].DurationMS != 3000 {
			t.Errorf("the attempts are\n%s\nof %+v, want\n%s\neach of 3000 ms", text, log, want)
		}
	})
}
