package relay_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// oneOfMany is a sink that postpones the messages of the topic "down" until it is healed, and counts how often it was called
// for them.
func oneOfMany(order sinks.Order) (sink *recorder, healed *atomic.Bool, asked *atomic.Int64) {
	healed, asked = new(atomic.Bool), new(atomic.Int64)
	return &recorder{order: order, answer: func(m sinks.Message) sinks.Outcome {
		if m.Topic == "down" && !healed.Load() {
			asked.Add(1)
			return sinks.Postpone(sinks.ReasonConnection, "connection refused", 10*time.Second)
		}
		return sinks.Ok("")
	}}, healed, asked
}

// One of many endpoints is down for twenty minutes. Its messages are not charged, and are retried at the time that the sink gave.
// The other endpoints' messages are delivered, and the sink is not reported as down.
func TestPostponedMessagesWaitUncharged(t *testing.T) {
	t.Parallel()
	for _, order := range []sinks.Order{sinks.OrderNone, sinks.OrderPrefix} {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			t.Run(fmt.Sprint(order, claim), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { testPostponed(t, order, claim) })
			})
		}
	}
}

func testPostponed(t *testing.T, order sinks.Order, claim storage.Claim) {
	db, watch := memstore.New(), &downs{}
	sink, healed, asked := oneOfMany(order)
	options := relay.Options{Claim: claim, Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: 2, Batch: 10}}}
	for range 5 {
		write(db, "down", "d", 1)
		write(db, "up", "u", 1)
		write(db, "down", "", 1)
		write(db, "up", "", 1)
	}
	_, stop := start(t, db.Store(), options)
	time.Sleep(20 * time.Minute)
	synctest.Wait() // wait until no send or settlement is in progress
	if n := len(sink.ids()); n != 10 {
		t.Errorf("%d messages of the endpoints that are up were delivered, want 10", n)
	}
	checkWaiting(t, db)
	messages := int64(6) // the messages without a key, and the first message of the key
	if claim == storage.ByRows {
		messages = 10
	}
	if n := asked.Load(); n < 100*messages || n > 130*messages {
		t.Errorf("in twenty minutes the sink was called %d times for %d messages, which wait 10 s after each call", n, messages)
	}
	if n := watch.n.Load(); n > 0 {
		t.Errorf("the sink was reported as down %d times", n)
	}
	healed.Store(true)
	time.Sleep(time.Minute)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := len(sink.ids()); n != 20 {
		t.Errorf("%d messages were delivered in the end, want 20", n)
	}
	for _, m := range sink.received {
		if m.Attempt != 1 {
			t.Errorf("message %d was charged %d attempts", m.Sequence, m.Attempt-1)
		}
	}
	if claim == storage.ByLanes {
		inOrder(t, sink.received)
	}
}

// checkWaiting checks that the postponed messages' rows have the reason and no charged attempt.
func checkWaiting(t *testing.T, db *memstore.DB) {
	t.Helper()
	var waiting []storage.Info
	for tries := 0; len(waiting) == 0; tries++ {
		var err error
		if waiting, err = db.Store().List(t.Context(), storage.Filter{State: storage.StateRetry}); err != nil || tries > 50 {
			t.Fatalf("waiting: %v, %v", waiting, err)
		}
		time.Sleep(100 * time.Millisecond) // all of them may be in flight now, so look again
	}
	for _, w := range waiting {
		if w.Attempts != 0 || w.LastError != "connection: connection refused" {
			t.Errorf("message %d waits after %d attempts with %q", w.ID, w.Attempts, w.LastError)
		}
	}
	if parked := statusOf(t, db)[storage.StateError]; parked > 0 {
		t.Errorf("%d messages were parked", parked)
	}
}

// downs is an observer that counts how often a sink was reported as down.
type downs struct {
	relay.NoObserver
	n atomic.Int32
}

func (d *downs) SinkDown(string, sinks.Reason, string) { d.n.Add(1) }

// If a sink returns a whole batch as Unsent without a RetryAfter, it counts as unavailable.
func TestUnsentBatchOpensTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, watch := memstore.New(), &downs{}
		write(db, "orders", "k", 1)
		sink := &recorder{answer: func(sinks.Message) sinks.Outcome { return sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, "") }}
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), Observer: watch})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := watch.n.Load(); n != 1 {
			t.Errorf("the sink was reported as down %d times, want once", n)
		}
	})
}
