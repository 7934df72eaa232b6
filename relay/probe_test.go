package relay_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// A relay's first messages go to a part of the destination that is down, for example to one of Kafka's partitions. Until a
// message is delivered, the relay can't distinguish this from an outage of the whole sink, so the sink counts as unavailable.
// The probes try other topics, so messages for the other parts are delivered nevertheless. No retry is written for the others.
func TestProbesTryOtherTopics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		isDown      func(sinks.Message) bool
		first, then func(db *memstore.DB)
	}{
		"of another topic": {
			func(m sinks.Message) bool { return m.Topic == "down" },
			func(db *memstore.DB) { writeKeys(db, "down", "k%d", 100) },
			func(db *memstore.DB) { write(db, "up", "k", 10) },
		},
		"of another topic, without a key": {
			func(m sinks.Message) bool { return m.Topic == "down" },
			func(db *memstore.DB) { write(db, "down", "", 100) },
			func(db *memstore.DB) { write(db, "up", "", 10) },
		},
		"of the third topic": {
			func(m sinks.Message) bool { return m.Topic != "up" },
			func(db *memstore.DB) { writeKeys(db, "down", "k%d", 50); writeKeys(db, "down too", "k%d", 50) },
			func(db *memstore.DB) { write(db, "up", "k", 10) },
		},
		"of another key": {
			func(m sinks.Message) bool { return m.Key == "busy" },
			func(db *memstore.DB) { write(db, "orders", "busy", 100) },
			func(db *memstore.DB) { write(db, "orders", "idle", 10) },
		},
	} {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			if claim == storage.ByRows && name == "of another key" { // a relay that claims by rows ignores keys
				continue
			}
			t.Run(fmt.Sprint(name, " ", claim), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, watch, works := memstore.New(), &downs{}, false
					sink := &recorder{order: sinks.OrderPrefix}
					sink.answer = func(m sinks.Message) sinks.Outcome { // the relay sends one batch at a time
						switch {
						case !test.isDown(m):
							works = true
							return sinks.Ok("")
						case works:
							return sinks.Postpone(sinks.ReasonConnection, "no leader", time.Minute)
						}
						return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "no leader")
					}
					test.first(db)
					_, stop := start(t, db.Store(), relay.Options{Claim: claim, Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Workers: 1, Batch: 10, Buffer: 200}}})
					time.Sleep(5 * time.Minute)
					if counts := statusOf(t, db); counts[storage.StatePending]+counts[storage.StateClaimed] != 100 || watch.n.Load() != 1 {
						t.Errorf("while everything is down: %v, and the sink was reported as down %d times; want 100 unchanged messages, and one report", counts, watch.n.Load())
					}
					test.then(db)
					time.Sleep(2 * time.Minute) // long enough for at least eight probes
					if n := len(sink.ids()); n != 10 {
						t.Errorf("%d messages were delivered, want the 10 whose part of the destination is up", n)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
					inOrder(t, sink.received)
				})
			})
		}
	}
}

// writeKeys writes messages of a topic, each with its own key.
func writeKeys(db *memstore.DB, topic, key string, n int) {
	for i := range n {
		write(db, topic, fmt.Sprintf(key, i), 1)
	}
}
