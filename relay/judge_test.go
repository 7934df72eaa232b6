package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// refusing is a sink whose calls may overlap. While its destination is unavailable, it gives the same answer for every
// message.
type refusing struct {
	recorder
	fan    *sinks.Fan
	answer atomic.Pointer[sinks.Outcome]
	bad    func(sinks.Message) bool // messages that are always refused
	asked  atomic.Int64
}

func newRefusing() *refusing { return &refusing{fan: sinks.NewFan(8)} }

func (r *refusing) Order() sinks.Order { return sinks.OrderPrefix }

func (r *refusing) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return r.fan.Send(ctx, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome {
		r.asked.Add(1)
		time.Sleep(time.Duration(1+m.Sequence%5) * time.Millisecond)
		if answer := r.answer.Load(); answer != nil {
			return *answer
		}
		if r.bad != nil && r.bad(m) {
			return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422 Unprocessable Entity")
		}
		return r.recorder.Send(ctx, []sinks.Message{m})[0]
	})
}

// refusals has the answers that a destination may give during an outage.
var refusals = map[string]sinks.Outcome{
	"502":               sinks.Fail(sinks.Retry, sinks.ReasonServerError, "502 Bad Gateway"),
	"408":               sinks.Fail(sinks.Retry, sinks.ReasonBusy, "408 Request Timeout"),
	"hang":              sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "no answer"),
	"handler":           sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "dial tcp: connection refused"),
	"401":               sinks.Fail(sinks.Reject, sinks.ReasonRefused, "401 Unauthorized"),
	"413":               sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, "413 Content Too Large"),
	"unroutable":        sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, "no queue"),
	"503":               sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, "503 Service Unavailable"),
	"of an endpoint":    {Result: sinks.Reject, Reason: sinks.ReasonRefused, Detail: "404 Not Found", Destination: "https://a.example"},
	"an endpoint's 502": {Result: sinks.Retry, Reason: sinks.ReasonServerError, Detail: "502", Destination: "https://a.example"},
}

// For ten minutes, from the start or while messages are being sent, the destination accepts nothing. No message is charged an
// attempt, and within thirty seconds after the outage everything is delivered.
func TestFailuresOfAllKeysOpenTheBreaker(t *testing.T) {
	t.Parallel()
	for name, answer := range refusals {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			for _, midst := range []bool{false, true} {
				if underRace && (!midst || claim == storage.ByRows || answer.Reason != sinks.ReasonServerError) {
					continue
				}
				t.Run(fmt.Sprintf("%s by %s, in the midst %v", name, claim, midst), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { testRefusedForAll(t, answer, claim, midst) })
				})
			}
		}
	}
}

func testRefusedForAll(t *testing.T, answer sinks.Outcome, claim storage.Claim, midst bool) {
	db, sink, watch := memstore.New(), newRefusing(), &downs{}
	n := 400
	if answer.Destination != "" {
		n = 100 // the sink isn't down, so the relay repeats each message, and computes for long
	}
	writeAll := func() {
		for i := range n {
			write(db, "orders", fmt.Sprint("k", i%(n/2)), 1)
		}
	}
	if !midst {
		sink.answer.Store(&answer)
	}
	writeAll()
	_, stop := start(t, db.Store(), relay.Options{Claim: claim, Sinks: to(sink), Observer: watch})
	written := n
	if midst {
		time.Sleep(204 * time.Millisecond) // while some sends are in flight
		writeAll()
		time.Sleep(20 * time.Millisecond)
		sink.answer.Store(&answer)
		written += n
	}
	time.Sleep(time.Minute)
	writeAll()
	written += n
	time.Sleep(9 * time.Minute)
	if counts := statusOf(t, db); counts[storage.StateError] > 0 {
		t.Errorf("during the outage %v", counts)
	}
	if watch.n.Load() == 0 && answer.Destination == "" {
		t.Error("the sink was never reported as down")
	}
	asked := sink.asked.Load()
	sink.answer.Store(nil)
	time.Sleep(30 * time.Second)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if counts := statusOf(t, db); counts[storage.StateDone] != int64(written) {
		t.Errorf("30 s after the outage %v, want %d done", counts, written)
	}
	for _, m := range sink.received {
		if m.Attempt != 1 {
			t.Fatalf("message %d was charged %d attempts", m.Sequence, m.Attempt-1)
		}
	}
	if asked > int64(written+n) && answer.Destination == "" {
		t.Errorf("the sink was called for %d messages", asked)
	}
	if claim == storage.ByLanes {
		inOrder(t, sink.received)
	}
}

// One message in fifty is refused. It is parked while the others are delivered. A bad message that is alone in its table is
// parked after 30 minutes.
func TestMessageAloneIsJudgedByItsOwnAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		write  func(db *memstore.DB)
		within time.Duration
		parked int64
	}{
		{"among good ones", func(db *memstore.DB) {
			for i := range 1500 { // enough good messages after the last bad one, whose next attempts come at random times
				topic := "orders"
				if i%50 == 20 && i < 500 {
					topic = "bad"
				}
				write(db, topic, fmt.Sprint("k", i), 1)
				time.Sleep(5 * time.Millisecond)
			}
		}, time.Second, 10},
		{"alone", func(db *memstore.DB) { write(db, "bad", "k", 1) }, 30 * time.Minute, 1},
		{"a few alone", func(db *memstore.DB) { write(db, "bad", "", 4) }, 30 * time.Minute, 4},
		{"many in a batch of good ones", func(db *memstore.DB) {
			for i := range 400 {
				topic := "orders"
				if i%20 == 10 {
					topic = "bad"
				}
				write(db, topic, fmt.Sprint("k", i), 1)
			}
		}, 30 * time.Minute, 20},
		{"more than a few before a good one", func(db *memstore.DB) {
			write(db, "bad", "", 20)
			time.Sleep(20 * time.Second)
			for range 50 { // after each of these deliveries, every suspended message is tried again once
				write(db, "orders", "", 1)
				time.Sleep(time.Second)
			}
		}, 10 * time.Second, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), newRefusing()
				sink.bad = func(m sinks.Message) bool { return m.Topic == "bad" }
				_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
				c.write(db)
				if c.within > 20*time.Minute {
					time.Sleep(29 * time.Minute)
					if counts := statusOf(t, db); counts[storage.StateError]+counts[storage.StateRetry] > 0 {
						t.Errorf("after 29 minutes %v", counts)
					}
				}
				time.Sleep(c.within)
				if err := stop(); err != nil {
					t.Error(err)
				}
				counts := statusOf(t, db)
				if counts[storage.StateError] != c.parked || counts[storage.StatePending] > 0 || counts[storage.StateRetry] > 0 {
					t.Errorf("%v, want %d parked and nothing waiting", counts, c.parked)
				}
			})
		})
	}
}

// If a message fails after all others were delivered, the drain leaves it and returns an error. With JudgeAtOnce the message is
// parked instead, and nothing is left.
func TestDrainEndsThoughMessagesFail(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, judge := range []time.Duration{0, relay.JudgeAtOnce} {
			t.Run(fmt.Sprint(claim, " ", judge), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, sink := memstore.New(), newRefusing()
					sink.bad = func(m sinks.Message) bool { return m.Topic == "bad" }
					for i := range 100 {
						write(db, "orders", fmt.Sprint("k", i), 1)
					}
					write(db, "bad", "b", 1)
					if claim == storage.ByLanes {
						write(db, "orders", "b", 1)
					}
					began := time.Now()
					r, err := relay.New(db.Store(), relay.Options{Claim: claim, Drain: true, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: judge}}})
					if err != nil {
						t.Fatal(err)
					}
					err, written, parked, left := r.Run(t.Context()), int64(101), int64(1), int64(0)
					if claim == storage.ByLanes {
						written = 102
					}
					if judge == 0 {
						parked, left = 0, written-100
						if want := fmt.Sprintf(`%d messages are left: sink "main" does not accept them`, left); err == nil || !strings.Contains(err.Error(), want) {
							t.Errorf("the drain ended with %v, want %s", err, want)
						}
					} else if err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("the drain took %v", took)
					}
					if counts := statusOf(t, db); counts[storage.StateDone] != written-parked-left || counts[storage.StateError] != parked || counts[storage.StatePending] != left {
						t.Errorf("after the drain %v", counts)
					}
				})
			})
		}
	}
}

// If a message that was charged in an earlier run fails again while nothing else is left, the drain retries it for as long as
// it retries an uncharged message, and only then ends without it.
func TestDrainGivesAChargedMessageTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var healthy time.Time
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if m.Topic == "slow" && (healthy.IsZero() || time.Now().Before(healthy)) {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
			}
			return sinks.Ok("")
		}}
		db := memstore.New()
		drain := func() error {
			r, err := relay.New(db.Store(), relay.Options{Drain: true, Poll: 100 * time.Millisecond, Sinks: map[string]relay.SinkOptions{
				"main": {Sink: sink, Batch: 1, Workers: 1, BreakerBackoff: relay.Backoff{Min: 500 * time.Millisecond, Max: 500 * time.Millisecond}}}})
			if err != nil {
				t.Fatal(err)
			}
			return r.Run(t.Context())
		}
		write(db, "slow", "a", 1)
		for i := range 100 {
			write(db, "orders", fmt.Sprint("k", i), 1)
		}
		if err := drain(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateRetry] != 1 || counts[storage.StateDone] != 100 {
			t.Fatalf("after the first drain %v, want one message charged", counts)
		}
		time.Sleep(time.Minute) // longer than its back-off
		healthy = time.Now().Add(3 * time.Second)
		if err := drain(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 101 {
			t.Errorf("after the second drain %v, want all delivered", counts)
		}
	})
}

// A sink has two destinations, one of which refuses everything. The messages for the other destination are delivered, and a
// bad message among them is parked.
func TestFailingDestinationDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		sink := &recorder{order: sinks.OrderPrefix, answer: func(m sinks.Message) sinks.Outcome {
			switch {
			case m.Topic == "down" && !healed.Load():
				return sinks.Outcome{Result: sinks.Reject, Reason: sinks.ReasonRefused, Detail: "401", Destination: "down"}
			case m.Topic == "bad":
				return sinks.Outcome{Result: sinks.Reject, Reason: sinks.ReasonRefused, Detail: "422", Destination: "up"}
			}
			return sinks.Outcome{Result: sinks.Delivered, Destination: strings.Replace(m.Topic, "bad", "up", 1)}
		}}
		db, watch := memstore.New(), &downs{}
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), Observer: watch})
		for i := range 600 {
			write(db, "down", fmt.Sprint("d", i%50), 1)
			write(db, "up", fmt.Sprint("u", i%50), 1)
			if i == 300 {
				write(db, "bad", "bad", 1)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := len(sink.ids()); n != 600 {
			t.Errorf("%d messages of the destination that is up were delivered, want 600", n)
		}
		if counts := statusOf(t, db); counts[storage.StateError] != 1 {
			t.Errorf("%v, want one parked", counts)
		}
		if n := watch.n.Load(); n > 0 {
			t.Errorf("the sink was reported as down %d times", n)
		}
		healed.Store(true)
		time.Sleep(30 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(sink.ids()); n != 1200 {
			t.Errorf("%d messages were delivered in the end, want 1200", n)
		}
		inOrder(t, sink.received)
	})
}

// If one key after the other fails, without a delivery in between, no attempt is charged, and the sink is reported as down.
func TestFailuresBeforeTheBreakerOpensAreUncharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink, said := memstore.New(), newRefusing(), &said{}
		answer := refusals["502"]
		sink.answer.Store(&answer)
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), Observer: said})
		for i := range 5 {
			write(db, "orders", fmt.Sprint("k", i), 1)
			time.Sleep(5 * time.Second)
		}
		sink.answer.Store(nil)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(sink.received) != 5 {
			t.Errorf("%d messages were delivered, want 5", len(sink.received))
		}
		for _, m := range sink.received {
			if m.Attempt != 1 {
				t.Errorf("message %d arrived as attempt %d", m.Sequence, m.Attempt)
			}
		}
		if told := said.text(); !strings.Contains(told, "none was delivered") || !strings.Contains(told, "502 Bad Gateway") {
			t.Errorf("the observer got %q", told)
		}
	})
}

// said is an observer that records why a sink was reported as down.
type said struct {
	relay.NoObserver
	mu  sync.Mutex
	why string
}

func (s *said) SinkDown(_ string, reason sinks.Reason, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = string(reason) + ": " + detail
}

func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}
