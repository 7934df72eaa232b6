package relay_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// wholeHour runs the tests of failing keys at full length, an hour of failures and a million keys, which takes minutes with the
// race detector.
var wholeHour = flag.Bool("whole-hour", false, "run the tests of failing keys at full length: an hour of failures, and a million keys")

// failingKeys is a slow sink that fails every message whose key begins with "bad", until heal is called. It checks the order
// of every key.
type failingKeys struct {
	t *testing.T

	mu       sync.Mutex
	healed   bool
	first    map[string]int64 // the message that failed first, by bad key
	last     map[string]int64 // the message that was delivered last, by key
	good     int
	bad      int
	latest   time.Duration // the longest delay of a good message
	attempts int
}

func newFailingKeys(t *testing.T) *failingKeys {
	return &failingKeys{t: t, first: map[string]int64{}, last: map[string]int64{}}
}

func (s *failingKeys) Open(context.Context) error  { return nil }
func (s *failingKeys) Close(context.Context) error { return nil }
func (s *failingKeys) Order() sinks.Order          { return sinks.OrderPrefix }

func (s *failingKeys) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	time.Sleep(5*time.Millisecond + time.Duration(len(batch))*time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := make([]sinks.Outcome, len(batch))
	blocked := map[string]bool{}
	for i, m := range batch {
		switch bad := strings.HasPrefix(m.Key, "bad"); {
		case blocked[m.Key]:
			outcomes[i] = sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, "")
		case bad && !s.healed:
			if first, ok := s.first[m.Key]; ok && first != m.Sequence {
				s.t.Errorf("key %s: message %d was sent while message %d, which had failed, waited", m.Key, m.Sequence, first)
			}
			s.first[m.Key] = m.Sequence
			s.attempts++
			blocked[m.Key] = true
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
		default:
			if m.Sequence <= s.last[m.Key] {
				s.t.Errorf("key %s: %d arrived after %d", m.Key, m.Sequence, s.last[m.Key])
			}
			s.last[m.Key] = m.Sequence
			if bad {
				s.bad++
			} else {
				s.good++
				s.latest = max(s.latest, time.Since(m.CreatedAt))
			}
			outcomes[i] = sinks.Ok("")
		}
	}
	return outcomes
}

func (s *failingKeys) counts() (good, bad, attempts int, latest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.good, s.bad, s.attempts, s.latest
}

func (s *failingKeys) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.healed = true
}

// heap returns the size of the heap in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// For an hour a hundred messages a second are written. One in ten fails, and each failing message has a key of its own. The
// other messages are never late, and the relay's memory doesn't grow. Some of the failing keys get more messages, which wait.
// When the sink accepts all messages, everything is delivered in order.
func TestFailingKeysDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	minutes := 60
	switch {
	case *wholeHour:
	case underRace:
		minutes = 2
	default:
		minutes = 5
	}
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), newFailingKeys(t)
		_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: -1}}})
		wantBad := 0
		for second := range 60 * minutes {
			for i := range 10 {
				n := 10*second + i
				for j := range 9 {
					key := fmt.Sprintf("good%d-%d", n, j)
					if j == 0 {
						key = fmt.Sprint("good", n%500) // one key for many messages
					}
					db.Write(outbox.Message{Topic: "t", Key: key})
				}
				db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("bad", n)})
				wantBad++
				if n%7 == 0 && n >= 70 {
					db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("bad", n/2)})
					wantBad++
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(3 * time.Second)
		good, _, attempts, latest := sink.counts()
		t.Logf("%d keys fail, %d attempts, good messages were %v late at most", len(sink.first), attempts, latest)
		if want := 5400 * minutes; good != want {
			t.Errorf("%d good messages were delivered, want %d", good, want)
		}
		if latest > 2*time.Second {
			t.Errorf("good messages were %v late", latest)
		}
		sink.heal()
		time.Sleep(10 * time.Minute)
		if _, bad, _, latest := sink.counts(); bad != wantBad || latest > 2*time.Second {
			t.Errorf("%d of the messages that had failed were delivered, want %d; good messages were %v late", bad, wantBad, latest)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A relay that takes over a table with a million blocked keys delivers other messages immediately, and needs no more memory
// than with a few blocked keys. The messages behind a blocked key wait.
func TestTakeoverOfAMillionBlockedKeys(t *testing.T) {
	onlyComputes(t)
	n := 1_100_000
	if !*wholeHour {
		n = 60_000
	}
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), newFailingKeys(t)
		retryKeys(t, db, n, time.Hour, func(i int) string { return fmt.Sprint("bad", i) })
		const followers, good = 2_000, 2_000
		for i := range followers {
			db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("bad", i*(n/followers))})
		}
		for i := range good {
			db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("good", i)})
		}
		_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: -1}}})
		time.Sleep(4 * time.Second)
		delivered, _, attempts, latest := sink.counts()
		if delivered != good || attempts != 0 {
			t.Errorf("%d good messages were delivered, want %d; %d messages behind blocked keys were sent", delivered, good, attempts)
		}
		t.Logf("good messages were %v late", latest)
		before := heap()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if used := int64(before) - int64(heap()); used > 24<<20 {
			t.Errorf("the relay took %d MiB", used>>20)
		} else {
			t.Logf("the relay took %d KiB", used>>10)
		}
		runtime.KeepAlive(db)
		runtime.KeepAlive(sink)
	})
}

// retryKeys writes a message for each key, and makes it a retry.
func retryKeys(t *testing.T, db *memstore.DB, n int, delay time.Duration, key func(int) string) {
	t.Helper()
	s, ctx := db.Store(), t.Context()
	if err := s.SetClaimMode(ctx, storage.ByLanes); err != nil {
		t.Fatal(err)
	}
	grants, err := s.Acquire(ctx, "before", storage.Lanes, time.Minute)
	if err != nil || len(grants) != storage.Lanes {
		t.Fatal(len(grants), err)
	}
	fences := map[int]int64{}
	var positions []storage.Position
	var releases []storage.Renewal
	for _, g := range grants {
		fences[g.Lane] = g.Fence
		positions = append(positions, storage.Position{Lane: g.Lane})
	}
	tx := db.Begin()
	last := int64(0)
	for i := range n {
		last = tx.Insert(outbox.Message{Topic: "t", Key: key(i)})
	}
	tx.Commit()
	page, err := s.Read(ctx, storage.ReadRequest{Positions: positions, Limit: n + 1, MaxBytes: 1 << 40})
	if err != nil || len(page.Rows) != n {
		t.Fatal(len(page.Rows), err)
	}
	var settlements []storage.Settlement
	for i := range page.Rows {
		row := page.Rows[len(page.Rows)-1-i] // from the end: memstore keeps the rows in a slice, and moves the rows behind a removed one
		settlements = append(settlements, storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: fences[row.Lane], State: storage.StateRetry, Attempts: 5,
			Delay: delay + time.Duration(i)*time.Microsecond})
	}
	if _, err := s.Settle(ctx, "before", true, settlements); err != nil {
		t.Fatal(err)
	}
	for _, g := range grants {
		releases = append(releases, storage.Renewal{Lease: g.Lease, Marks: storage.Marks{Main: last}})
	}
	if err := s.Release(ctx, "before", releases); err != nil {
		t.Fatal(err)
	}
}
