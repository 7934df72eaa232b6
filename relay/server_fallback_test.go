package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// The server loses the delivery of the first message of a key, and its relay, which doesn't know that, writes a retry of the
// second one. Then both are retries. The later messages of the key are sent after both, by any relay.
func TestTwoMessagesOfAKeyWaitForAnotherAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep   int // blocked keys in memory
		topics []string
		delays []time.Duration
	}{
		"in memory":                       {10, []string{"t", "t"}, []time.Duration{time.Second, 2 * time.Second}},
		"in memory, the second due first": {10, []string{"t", "t"}, []time.Duration{2 * time.Second, time.Second}},
		"in memory, of two topics":        {10, []string{"t", "u"}, []time.Duration{time.Second, 2 * time.Second}},
		"in memory, three":                {10, []string{"t", "t", "t"}, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}},
		"queried":                         {0, []string{"t", "t"}, []time.Duration{time.Second, 2 * time.Second}},
		"queried, of two topics":          {0, []string{"t", "u"}, []time.Duration{time.Second, 2 * time.Second}},
		"queried, three":                  {0, []string{"t", "u", "t"}, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}},
	} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, followers later %v", name, later), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, sink := memstore.New(), &recorder{}
					want := waitForAttempts(t, db, c.topics, c.delays)
					if !later {
						want = append(want, followers(db)...)
					}
					stop := startKeeping(t, c.keep, db.Store(), relay.Options{Sinks: to(sink)})
					time.Sleep(500 * time.Millisecond)
					if later {
						want = append(want, followers(db)...)
					}
					time.Sleep(time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
					if got := sink.ids(); !slices.Equal(got, want) {
						t.Errorf("delivered %v, want %v", got, want)
					}
				})
			})
		}
	}
}

// startKeeping runs a relay that keeps this many blocked keys in memory, and asks the database about others.
func startKeeping(t *testing.T, keep int, store storage.Store, options relay.Options) (stop func() error) {
	t.Helper()
	options.Logger = slog.New(slog.DiscardHandler)
	r, err := relay.New(store, options)
	if err != nil {
		t.Fatal(err)
	}
	r.KeepBlockedKeys(keep)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

// followers writes two messages of the key.
func followers(db *memstore.DB) []int64 {
	return db.Write(outbox.Message{Topic: "t", Key: "k"}, outbox.Message{Topic: "t", Key: "k"})
}

// waitForAttempts makes a message of each topic a retry, all of one key, and returns their ids.
func waitForAttempts(t *testing.T, db *memstore.DB, topics []string, delays []time.Duration) (ids []int64) {
	t.Helper()
	s, ctx := db.Store(), t.Context()
	if err := s.SetClaimMode(ctx, storage.ByLanes); err != nil {
		t.Fatal(err)
	}
	grants, err := s.Acquire(ctx, "before", storage.Lanes, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var releases []storage.Renewal
	for _, topic := range topics {
		ids = append(ids, db.Write(outbox.Message{Topic: topic, Key: "k"})...)
	}
	for _, g := range grants {
		page, err := s.Read(ctx, storage.ReadRequest{Positions: []storage.Position{{Lane: g.Lane}}, Limit: 100, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range page.Rows {
			if _, err := s.Settle(ctx, "before", true, []storage.Settlement{{
				ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: g.Fence, State: storage.StateRetry, Attempts: 1, Delay: delays[i],
			}}); err != nil {
				t.Fatal(err)
			}
		}
		releases = append(releases, storage.Renewal{Lease: g.Lease})
	}
	if err := s.Release(ctx, "before", releases); err != nil {
		t.Fatal(err)
	}
	return ids
}

// The server falls back between a page and the query which of its keys are blocked, so the answer is not of the page's time.
func TestServerFallsBackBeforeABlockedKeyQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		want := slices.Concat(followers(db), followers(db))
		restore := db.Save()
		var sent []int64
		sink := failsFirst(&sent)
		options := relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: relay.JudgeAtOnce, Backoff: relay.Backoff{Min: decade, Max: decade}}}}
		_, stop := start(t, db.Store(), options)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if !slices.Equal(sent, want[:1]) {
			t.Fatalf("%v were sent, want %v", sent, want[:1])
		}

		store := &fallsBack{Store: db.Store(), restore: restore}
		stop = startKeeping(t, 0, store, options)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if store.restore != nil {
			t.Error("the relay did not ask about keys")
		}
		if !slices.Equal(sent[1:], want) {
			t.Errorf("%v were sent, want %v, and the first one once before", sent, want)
		}
	})
}

// fallsBack makes its server fall back before it is asked about blocked keys.
type fallsBack struct {
	storage.Store
	restore func()
}

func (s *fallsBack) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	if s.restore != nil {
		s.restore()
		s.restore = nil
	}
	return s.Store.BlockedAmong(ctx, keys)
}

// The server falls back while a relay reads new rows beyond the backlog of a sink that is down, so the page has another epoch
// than the lanes. The rows that have appeared below their cursors aren't sent before the lanes are leased again, since the
// relay's state of their key is no longer valid: the message before them was a retry, and no longer is.
func TestServerFallsBackWithABacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		want := db.Write(outbox.Message{Topic: "t", Key: "k"})
		restore := db.Save()
		backlog := func() {
			for range 200 {
				db.Write(outbox.Message{Topic: "down", Key: "k"})
			}
		}
		backlog()
		var sent []int64
		store := &fallsBackBeyond{Store: db.Store(), fall: func() {
			restore()
			want = append(want, db.Write(outbox.Message{Topic: "t", Key: "k"})...)
			backlog()
		}}
		down := &recorder{answer: func(sinks.Message) sinks.Outcome {
			return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down")
		}}
		stop := startKeeping(t, 0, store, relay.Options{
			Sinks: map[string]relay.SinkOptions{
				"main": {Sink: failsFirst(&sent), JudgeAloneAfter: relay.JudgeAtOnce, Buffer: 10, Backoff: relay.Backoff{Min: decade, Max: decade}},
				"down": {Sink: down, Buffer: 10},
			},
			Routes: []relay.Route{{Topic: "t", Sink: "main"}, {Topic: "down", Sink: "down"}},
		})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if store.fall != nil {
			t.Fatal("the relay did not read beyond the backlog")
		}
		if !slices.Equal(sent[1:], want) {
			t.Errorf("%v were sent, want %v, and the first one once before", sent, want)
		}
	})
}

// fallsBackBeyond makes its server fall back when a retry is written, before the next read without the backlog.
type fallsBackBeyond struct {
	storage.Store
	fall    func()
	retried atomic.Bool
	looks   int // reads since then
}

func (s *fallsBackBeyond) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	settled, err := s.Store.Settle(ctx, name, keep, settlements)
	if settlements[0].State == storage.StateRetry {
		s.retried.Store(true)
	}
	return settled, err
}

func (s *fallsBackBeyond) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	if len(request.Except) == 0 {
		return s.Store.Read(ctx, request)
	}
	time.Sleep(time.Millisecond)
	if s.retried.Load() {
		s.looks++
	}
	if s.fall != nil && s.looks == 2 { // the key was forgotten after the first read
		s.fall()
		s.fall = nil
	}
	return s.Store.Read(ctx, request)
}

// While a settlement is in progress, the server loses the lease that it was made under, and the same relay leases the lane again.
// The settlement changes nothing. Otherwise the relay, which has read the blocked keys already, would skip the row.
func TestSettlementUnderALeaseThatTheServerHasLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		want := followers(db)
		if err := db.Store().SetClaimMode(t.Context(), storage.ByLanes); err != nil {
			t.Fatal(err)
		}
		restore := db.Save()
		var sent []int64
		sink := failsFirst(&sent)
		store := &settlesLate{Store: db.Store(), restore: restore, begun: make(chan struct{}), goOn: make(chan struct{}), settled: make(chan struct{})}
		_, stop := start(t, store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: relay.JudgeAtOnce, Backoff: relay.Backoff{Min: time.Minute, Max: time.Minute}}}})
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if !isClosed(store.settled) {
			t.Error("no settlement arrived late")
		}
		if want := slices.Concat(want[:1], want); !slices.Equal(sent, want) {
			t.Errorf("%v were sent, want %v", sent, want)
		}
	})
}

// settlesLate makes its server fall back while the first settlement is in progress. The settlement arrives when the relay has
// leased its lanes again and has read the blocked keys.
type settlesLate struct {
	storage.Store
	restore              func()
	begun, goOn, settled chan struct{}
}

func (s *settlesLate) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	if !isClosed(s.begun) {
		s.restore()
		close(s.begun)
		<-s.goOn
		defer close(s.settled)
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

func (s *settlesLate) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	keys, err := s.Store.BlockedKeys(ctx, lanes, limit)
	if isClosed(s.begun) && !isClosed(s.goOn) {
		close(s.goOn)
		<-s.settled
	}
	return keys, err
}

// failsFirst fails the first message that it gets, and records the ids of all.
func failsFirst(sent *[]int64) *recorder {
	return &recorder{answer: func(m sinks.Message) sinks.Outcome {
		if *sent = append(*sent, m.Sequence); len(*sent) == 1 {
			return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "503")
		}
		return sinks.Ok("")
	}}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// The id sequence is reset while many messages with higher ids wait. The relay reads these once, and then the new ones with low
// ids, in order.
func TestIDSequenceIsResetBelowABacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		for i := range 100 {
			db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("other-", i)})
		}
		old := slices.Concat(followers(db), followers(db))
		var up atomic.Bool
		var reads atomic.Int64
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if !up.Load() && m.Key == "k" {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "503")
			}
			return sinks.Ok("")
		}}
		store := db.Store()
		store.Hooks.Lose = func(_ context.Context, op memstore.Op) error {
			if time.Sleep(time.Millisecond); op == memstore.OpRead {
				reads.Add(1)
			}
			return nil
		}
		r, stop := start(t, store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: -1}}})
		time.Sleep(10 * time.Second)
		db.Renumber(1)
		reads.Store(0)
		var anew []int64
		for range 600 {
			anew = append(anew, db.Write(outbox.Message{Topic: "t", Key: "new"})...)
			r.Wake() // otherwise it would poll more often
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := reads.Load(); n > 3000 {
			t.Errorf("%d reads in a minute", n)
		}
		if got := sink.of("new"); !slices.Equal(got, anew) {
			t.Errorf("delivered %v, want %v", got, anew)
		}
		up.Store(true)
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := sink.of("k"); !slices.Equal(got, old) {
			t.Errorf("delivered %v, want %v", got, old)
		}
	})
}

// of returns the delivered messages of a key.
func (r *recorder) of(key string) (ids []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.received {
		if m.Key == key {
			ids = append(ids, m.Sequence)
		}
	}
	return ids
}

// The dropped rows of a key are read while another message appears late: the page waits both for a scan and for the database's
// answer about the key.
func TestBlockedKeyQueryWithAScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		late := db.Begin()
		late.Insert(outbox.Message{Topic: "t", Key: "late"})
		want := slices.Concat(waitForAttempts(t, db, []string{"t"}, []time.Duration{time.Second}), followers(db))
		store := &commitsLate{Store: db.Store(), late: late}
		stop := startKeeping(t, 10, store, relay.Options{Sinks: to(sink)})
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if store.late != nil {
			t.Error("no key was caught up with")
		}
		if got := sink.of("k"); !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if got := sink.of("late"); len(got) != 1 {
			t.Errorf("delivered %v, want the one that appeared late", got)
		}
	})
}

// commitsLate commits a transaction when the dropped rows of a key are read.
type commitsLate struct {
	storage.Store
	late *memstore.Tx
}

func (s *commitsLate) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	if s.late != nil && len(request.Positions) > 0 && request.Positions[0].Key != "" {
		s.late.Commit()
		s.late = nil
	}
	return s.Store.Read(ctx, request)
}

func (s *commitsLate) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	time.Sleep(time.Millisecond)
	return s.Store.BlockedAmong(ctx, keys)
}
