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

// A key's first message was a retry and was delivered. The server loses this delivery, and the relay, which doesn't notice,
// writes a retry of the second message. So the key has two retries. Every relay sends the key's later messages only after
// both.
func TestTwoMessagesOfAKeyWaitForAnotherAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep   int // the maximum number of blocked keys in memory
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

// startKeeping runs a relay that keeps at most this number of blocked keys in memory, and asks the database about others.
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

// waitForAttempts writes a message of each topic, all with the same key, turns them into retries, and returns their ids.
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

// The server loses its last commits (it falls back) after a page was read and before the relay asks which of the page's keys
// are blocked. So the answer and the page belong to different states of the server.
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

// fallsBack is a store whose server falls back before the first query about blocked keys.
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

// The server falls back while a relay reads new rows beyond the backlog of a sink that is down. So the page has another epoch
// than the lanes' leases. The page's rows aren't sent until the lanes are leased again, since the relay's state of their key
// is no longer valid: the key's previous message, which was a retry, is pending again.
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

// fallsBackBeyond is a store whose server falls back after a retry was written, before the next read that excludes the
// backlog.
type fallsBackBeyond struct {
	storage.Store
	fall    func()
	retried atomic.Bool
	looks   int // the number of these reads since the retry was written
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
	if s.fall != nil && s.looks == 2 { // after the first of these reads, the relay has forgotten the blocked key
		s.fall()
		s.fall = nil
	}
	return s.Store.Read(ctx, request)
}

// While a settlement is in progress, the server loses the lane's lease, and the same relay leases the lane again. The
// settlement then changes nothing. If it made the row a retry, the relay, which has already read the lane's blocked keys,
// would never send the row.
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

// settlesLate is a store whose server falls back while the first settlement is in progress. The settlement reaches the server
// after the relay has leased its lanes again and has read the blocked keys.
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

// failsFirst is a sink that fails the first message that it receives, and records the ids of all messages.
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

// The id sequence is reset while many messages with high ids wait. The relay reads these once, and reads and delivers the new
// messages, which have low ids, in order.
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
			r.Wake() // a message that a poll finds would make the polls more frequent
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

// While the dropped rows of a key are read, another message appears late. So the page waits both for a scan and for the
// database's answer about the key.
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
			t.Error("no dropped rows were read")
		}
		if got := sink.of("k"); !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if got := sink.of("late"); len(got) != 1 {
			t.Errorf("delivered %v, want the message that appeared late", got)
		}
	})
}

// commitsLate is a store that commits a transaction when the dropped rows of a key are read.
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
