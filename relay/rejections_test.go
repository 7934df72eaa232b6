package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// picky is a sink that refuses messages of the topic "bad", or all messages.
type picky struct {
	*refusing
	says sinks.Outcome
	all  atomic.Bool
}

func (p *picky) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return p.fan.Send(ctx, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome {
		time.Sleep(time.Duration(1+m.Sequence%5) * time.Millisecond)
		if m.Topic == "bad" || p.all.Load() {
			return p.says
		}
		return p.recorder.Send(ctx, []sinks.Message{m})[0]
	})
}

// writeMixed writes messages, each with another key. The given percentage of them is bad, in a pseudo-random order that is
// always the same.
func writeMixed(db *memstore.DB, messages, percent int, pace time.Duration) (good int) {
	draw := rand.New(rand.NewPCG(1, uint64(percent)))
	for i := range messages {
		topic := "bad"
		if draw.IntN(100) >= min(percent, 20+i/5) {
			topic, good = "good", good+1
		}
		db.Write(outbox.Message{Topic: topic, Key: fmt.Sprint("k", draw.Int64())})
		time.Sleep(pace)
	}
	return good
}

var failed = map[string]sinks.Outcome{
	"fails":   sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500 Internal Server Error"),
	"refuses": sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422 Unprocessable Entity"),
}

// A sink that rejects most messages because of the messages themselves isn't down, although it often fails several times in a
// row. Its good messages are delivered, the bad ones are charged and parked with the reason, and it isn't reported as down
// repeatedly.
func TestMostlyRejectingSinkStaysUp(t *testing.T) {
	t.Parallel()
	for name, says := range failed {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			for _, percent := range []int{30, 60, 75} {
				for _, pace := range []time.Duration{0, 10 * time.Millisecond} {
					if underRace != (percent == 60) {
						continue
					}
					t.Run(fmt.Sprintf("%s %d percent by %s, a message each %v", name, percent, claim, pace), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							db, sink, watch := memstore.New(), &picky{refusing: newRefusing(), says: says}, &downs{}
							_, stop := start(t, db.Store(), relay.Options{Claim: claim, Observer: watch,
								Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: 3, ParkRateLimit: -1}}})
							time.Sleep(10 * time.Second)
							const written = 1500
							good := writeMixed(db, written, percent, pace)
							time.Sleep(2 * time.Minute) // the breaker can't distinguish the first failures from an outage
							if n := len(sink.ids()); n != good {
								t.Errorf("%d of %d good messages were delivered", n, good)
							}
							if n := watch.n.Load(); n > 3 { // one of these reports comes at the end, when only bad messages are left
								t.Errorf("the sink was reported as down %d times", n)
							}
							parked, err := db.Store().List(t.Context(), storage.Filter{State: storage.StateError, Limit: written})
							if err != nil || pace > 0 && len(parked) < (written-good)/2 {
								t.Errorf("%d of %d bad messages are parked (%v)", len(parked), written-good, err)
							}
							for _, m := range parked {
								if wrong := m.Message.Topic != "bad" || !strings.Contains(m.LastError, says.Detail); wrong || says.Result == sinks.Retry && m.Attempts != 3 {
									t.Fatalf("parked is %s after %d attempts: %s", m.Message.Topic, m.Attempts, m.LastError)
								}
							}
							if err := stop(); err != nil {
								t.Error(err)
							}
						})
					})
				}
			}
		}
	}
}

// Bad messages that fill the buffer leave memory when other messages arrive. The deliveries of those show that the sink works.
// The bad messages are judged when they return, because their failures are remembered.
func TestBadMessagesThatLeaveTheBufferAreJudged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys, behind, rounds = 2, 40, 40
		db, sink := memstore.New(), &picky{refusing: newRefusing(), says: failed["refuses"]}
		for key := range keys {
			write(db, "bad", fmt.Sprint("key-", key), 1)
			write(db, "good", fmt.Sprint("key-", key), behind)
		}
		_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {
			Sink: sink, Workers: 1, Batch: 8, Buffer: 4, BreakerThreshold: 2, BreakerBackoff: relay.Backoff{Min: 100 * time.Millisecond, Max: 3 * time.Second},
		}}})
		round := func(bad int) {
			time.Sleep(8 * time.Second)
			for n := range 2 {
				write(db, "good", "", 1)
				if n < bad {
					write(db, "bad", "", 1)
				}
			}
		}
		for range rounds {
			round(2)
		}
		for range 10 {
			round(0)
		}
		time.Sleep(time.Minute)
		if n, want := statusOf(t, db)[storage.StateError], int64(keys+2*rounds); n != want {
			t.Errorf("%d bad messages are parked, want %d", n, want)
		}
		if n, want := len(sink.ids()), keys*behind+2*rounds+20; n != want {
			t.Errorf("%d good messages were delivered, want %d", n, want)
		}
		if controls, err := db.Store().Controls(t.Context()); err != nil || len(controls) > 0 {
			t.Errorf("the controls in force are %+v (%v)", controls, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// If a sink usually rejects most messages, an outage of it is detected nevertheless, and no message is charged an attempt.
func TestOutageAmongRejectionsIsDetected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink, watch := memstore.New(), &picky{refusing: newRefusing(), says: failed["fails"]}, &downs{}
		_, stop := start(t, db.Store(), relay.Options{Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: 5, ParkRateLimit: -1}}})
		writeMixed(db, 1500, 60, 20*time.Millisecond)
		before := watch.n.Load()
		sink.all.Store(true)
		for i := range 500 {
			db.Write(outbox.Message{Topic: "good", Key: fmt.Sprint("after-", i)})
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(10 * time.Minute)
		if watch.n.Load() == before {
			t.Error("the sink was never reported as down")
		}
		sink.all.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		n := 0
		for _, m := range sink.received {
			if strings.HasPrefix(m.Key, "after-") {
				if n++; m.Attempt != 1 {
					t.Fatalf("message %d was charged %d attempts", m.Sequence, m.Attempt-1)
				}
			}
		}
		if n != 500 {
			t.Errorf("%d of 500 messages of the outage were delivered", n)
		}
		inOrder(t, sink.received)
	})
}

// While a sink is down, messages that are invalid in themselves are parked, and the log doesn't give them as the reason of the
// outage.
func TestInvalidMessageDoesNotCountAgainstTheSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, log := memstore.New(), &bytes.Buffer{}
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if m.Topic == "invalid" {
				return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "a header")
			}
			return failed["fails"]
		}}
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), Logger: slog.New(slog.NewTextHandler(log, nil))})
		for i := range 10 {
			write(db, "orders", fmt.Sprint("k", i), 1)
		}
		time.Sleep(10 * time.Second)
		write(db, "invalid", "", 20)
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateError] != 20 {
			t.Errorf("%v, want 20 parked", counts)
		}
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "unavailable") && strings.Contains(line, "a header") {
				t.Errorf("the log has %s", line)
			}
		}
	})
}
