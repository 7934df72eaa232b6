package relay_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// figures is an Observer that records messages in memory, parked messages and calls of the database.
type figures struct {
	relay.NoObserver
	mu                 sync.Mutex
	inFlight, buffered int // the highest values that were observed
	now                [2]int
	parked             map[sinks.Reason]int
	calls              map[string]bool
}

func (f *figures) InMemory(_ string, inFlight, buffered int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight, f.buffered, f.now = max(f.inFlight, inFlight), max(f.buffered, buffered), [2]int{inFlight, buffered}
}

func (f *figures) Parked(_ string, reason sinks.Reason) { f.parked[reason]++ }

func (f *figures) Called(call string, _ time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call] = true
}

func TestObserverGetsMemoryParksAndCalls(t *testing.T) {
	t.Parallel()
	for claim, want := range map[storage.Claim][]string{
		storage.ByLanes: {"controls", "lease", "purge", "read", "settle"},
		storage.ByRows:  {"claim", "controls", "lease", "purge", "settle"},
	} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, told := memstore.New(), &figures{parked: map[sinks.Reason]int{}, calls: map[string]bool{}}
				sink := &recorder{delay: 5 * time.Second, answer: func(m sinks.Message) sinks.Outcome {
					if m.Topic == "bad" {
						return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "no")
					}
					return sinks.Ok("")
				}}
				write(db, "orders", "", 30)
				write(db, "bad", "", 2)
				_, stop := start(t, db.Store(), relay.Options{Claim: claim, Observer: told, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 10, Workers: 1, Buffer: 100}}})
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if told.inFlight != 10 || told.buffered != 32 || told.now != [2]int{} {
					t.Errorf("%d in flight and %d in memory at most, %v at the end; want 10, 32, and none", told.inFlight, told.buffered, told.now)
				}
				if told.parked[sinks.ReasonInvalid] != 2 || len(told.parked) != 1 {
					t.Errorf("parked %v", told.parked)
				}
				if got := slices.Sorted(maps.Keys(told.calls)); !slices.Equal(got, want) {
					t.Errorf("calls of the database %v, want %v", got, want)
				}
			})
		})
	}
}
