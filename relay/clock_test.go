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

// The database's clock jumps by ten minutes while two relays work. If it jumps forward, all leases expire, as if the relays
// had died, and messages in flight may be sent twice. If it jumps back, leases last longer, which only delays the takeover of
// a dead relay's lanes. In both cases no message is lost, and the first deliveries of a key's messages are in order.
func TestDatabaseClockJumps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by    time.Duration
		claim storage.Claim
		twice bool // whether messages may be sent twice
	}{
		"forward, lanes": {10 * time.Minute, storage.ByLanes, true},
		"back, lanes":    {-10 * time.Minute, storage.ByLanes, false},
		"forward, rows":  {10 * time.Minute, storage.ByRows, true},
		"back, rows":     {-10 * time.Minute, storage.ByRows, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { jump(t, c.by, c.claim, c.twice) })
		})
	}
}

func jump(t *testing.T, by time.Duration, claim storage.Claim, mayTwice bool) {
	db, sink := memstore.New(), &recorder{order: sinks.OrderPrefix, delay: 800 * time.Millisecond}
	var ahead atomic.Int64
	db.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	const buffer = 40
	options := relay.Options{Claim: claim, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 10, Workers: 2, Buffer: buffer}}}
	_, stopOne := start(t, db.Store(), options)
	_, stopOther := start(t, db.Store(), options)
	const keys, each = 20, 40
	for range each {
		for k := range keys {
			write(db, "orders", fmt.Sprint("k", k), 1)
		}
	}
	time.Sleep(10 * time.Second)
	ahead.Add(int64(by))
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	for _, stop := range []func() error{stopOne, stopOther} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	seen, last, twice := map[int64]bool{}, map[string]int64{}, 0
	for _, m := range sink.received {
		if seen[m.Sequence] {
			twice++
			continue
		}
		if seen[m.Sequence] = true; claim == storage.ByLanes && m.Sequence < last[m.Key] {
			t.Errorf("key %s: %d first arrived after %d", m.Key, m.Sequence, last[m.Key])
		}
		last[m.Key] = m.Sequence
	}
	if len(seen) != keys*each {
		t.Errorf("%d of %d messages arrived", len(seen), keys*each)
	}
	if twice > 2*buffer || twice > 0 && !mayTwice {
		t.Errorf("%d messages arrived twice", twice)
	}
	if counts := statusOf(t, db); counts[storage.StateDone] != keys*each {
		t.Errorf("at the end the states are %v", counts)
	}
	t.Logf("%d messages arrived twice", twice)
}
