package relay_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// alarms is an observer that records the topics that are reported as unrouted.
type alarms struct {
	relay.NoObserver
	mu     sync.Mutex
	topics []string
}

func (a *alarms) Unrouted(topic string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.topics = append(a.topics, topic)
}

func (a *alarms) told() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.topics)
}

// During a rollout, processes of the old version read messages of topics that they have no handler for. These messages wait,
// uncharged, and so do later messages of their keys. The topics are reported. Processes of the new version deliver all
// messages in order.
func TestTopicWithoutAHandlerWaits(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { rollOut(t, claim) })
		})
	}
}

func rollOut(t *testing.T, claim storage.Claim) {
	db, watch, got := memstore.New(), &alarms{}, map[string][]string{}
	note := func(_ context.Context, m sinks.Message) error {
		got[m.Key] = append(got[m.Key], fmt.Sprint(m.Topic, " ", m.Attempt))
		return nil
	}
	var old, fresh inproc.Mux
	old.Handle("paid", note)
	fresh.Handle("paid", note)
	fresh.Handle("refunded", note)
	options := func(mux *inproc.Mux) relay.Options {
		return relay.Options{Claim: claim, Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Func(mux.Serve), MaxAttempts: 2}}}
	}
	write(db, "paid", "a", 1)
	write(db, "refunded", "a", 1)
	write(db, "paid", "a", 1)
	write(db, "paid", "b", 1)

	_, stop := start(t, db.Store(), options(&old))
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if counts := statusOf(t, db); counts[storage.StateError] != 0 {
		t.Errorf("parked: %v", counts)
	}
	if n := len(got["b"]); n != 1 {
		t.Errorf("%d messages of another key were delivered, want 1", n)
	}
	if claim == storage.ByLanes && len(got["a"]) != 1 {
		t.Errorf("the messages %v of the key were delivered, although an earlier one waits", got["a"])
	}
	if told := watch.told(); len(told) < 10 || told[0] != "refunded" {
		t.Errorf("in twenty minutes the reported topics were %v", told)
	}

	before := len(watch.told())
	_, stop = start(t, db.Store(), options(&fresh))
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
	want := []string{"paid 1", "refunded 1", "paid 1"}
	if claim == storage.ByRows { // a relay that claims by rows keeps no order
		slices.Sort(want)
		slices.Sort(got["a"])
	}
	if !slices.Equal(got["a"], want) {
		t.Errorf("the messages %v of the key were delivered, want %v", got["a"], want)
	}
	if after := watch.told()[before:]; len(after) != 0 {
		t.Errorf("the new version reported %v", after)
	}
}
