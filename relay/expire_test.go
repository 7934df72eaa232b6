package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
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

// expiries is an observer that counts expired messages.
type expiries struct {
	relay.NoObserver
	mu    sync.Mutex
	count map[string]int // by the sink, and by whether they were parked or discarded
}

func (o *expiries) Expired(sink string, become relay.OnExpire) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count == nil {
		o.count = map[string]int{}
	}
	o.count[sink+" "+string(become)]++
}

func (o *expiries) want(t *testing.T, want string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if got := fmt.Sprint(o.count); got != want {
		t.Errorf("expired are %s, want %s", got, want)
	}
}

// bothClaims runs a test for each way of claiming. The test runs on a simulated clock, with a database whose clock is three
// hours ahead.
func bothClaims(t *testing.T, play func(t *testing.T, claim storage.Claim, db *memstore.DB)) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				db.Now = func() time.Time { return time.Now().Add(3 * time.Hour) }
				play(t, claim, db)
			})
		})
	}
}

func parked(t *testing.T, db *memstore.DB) map[int64]string {
	t.Helper()
	infos, err := db.Store().List(t.Context(), storage.Filter{State: storage.StateError})
	if err != nil {
		t.Fatal(err)
	}
	found := map[int64]string{}
	for _, info := range infos {
		found[info.ID] = info.LastError
	}
	return found
}

// Messages that are too old on the database's clock are parked or discarded, as their topic's route determines, and the later
// messages of their keys are sent. A parked message is sent when an operator requeues it.
func TestExpiredMessagesAreNotSent(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		sink, seen := &recorder{}, &expiries{}
		past, later := db.Now().Add(-time.Minute), db.Now().Add(time.Minute)
		written := db.Write(
			outbox.Message{Topic: "kept", Key: "k", ExpiresAt: past},
			outbox.Message{Topic: "kept", Key: "k", ExpiresAt: past},
			outbox.Message{Topic: "kept", Key: "k", ExpiresAt: later},
			outbox.Message{Topic: "kept", Key: "k", ExpiresAt: past},
			outbox.Message{Topic: "kept", Key: "k"},
			outbox.Message{Topic: "dropped", Key: "k", ExpiresAt: past},
			outbox.Message{Topic: "dropped", ExpiresAt: past},
			outbox.Message{Topic: "dropped"},
		)
		_, stop := start(t, db.Store(), relay.Options{Claim: claim, Sinks: to(sink), Observer: seen, Routes: []relay.Route{
			{Topic: "kept", Sink: "main"}, {Topic: "dropped", Sink: "main", OnExpire: relay.DiscardExpired},
		}})
		time.Sleep(5 * time.Second)
		got := sink.ids()
		slices.Sort(got)
		if want := []int64{written[2], written[4], written[7]}; !slices.Equal(got, want) {
			t.Errorf("sent are %v, want %v", got, want)
		}
		seen.want(t, "map[main discard:2 main park:3]")
		left := parked(t, db)
		if len(left) != 3 {
			t.Errorf("parked are %v, want 3", left)
		}
		for id, text := range left {
			if want := storage.Expired + "since " + past.UTC().Format(time.RFC3339Nano) + ", its expires_at"; text != want {
				t.Errorf("row %d is parked with %q, want %q", id, text, want)
			}
		}
		if n := len(db.Messages()); n != 6 {
			t.Errorf("%d rows are left, want 6 without the discarded ones", n)
		}
		if _, err := db.Store().Requeue(t.Context(), storage.Filter{IDs: []string{fmt.Sprint(written[0])}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if !slices.Contains(sink.ids(), written[0]) {
			t.Error("a requeued message was not sent")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// If a message has an ExpiresAt and its route an ExpireAfter, the earlier time applies. ExpireAfter counts from the message's
// creation. After a requeue, a message doesn't expire again because of ExpireAfter.
func TestExpireAfter(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		sink, seen := &recorder{}, &expiries{}
		day := db.Now().Add(24 * time.Hour)
		old := db.Write(outbox.Message{Topic: "t"}, outbox.Message{Topic: "t", ExpiresAt: day}, outbox.Message{Topic: "other"})
		time.Sleep(time.Hour)
		young := db.Write(outbox.Message{Topic: "t"}, outbox.Message{Topic: "t", ExpiresAt: db.Now().Add(-time.Second)})
		_, stop := start(t, db.Store(), relay.Options{Claim: claim, Sinks: to(sink), Observer: seen, Routes: []relay.Route{
			{Topic: "t", Sink: "main", ExpireAfter: time.Hour}, {Prefix: "o", Sink: "main", ExpireAfter: 2 * time.Hour},
		}})
		time.Sleep(5 * time.Second)
		got := sink.ids()
		slices.Sort(got)
		if want := []int64{old[2], young[0]}; !slices.Equal(got, want) {
			t.Errorf("sent are %v, want %v", got, want)
		}
		seen.want(t, "map[main park:3]")
		if text := parked(t, db)[old[1]]; !strings.HasSuffix(text, "1h0m0s after it was written") {
			t.Errorf("parked with %q", text)
		}
		if n, err := db.Store().Requeue(t.Context(), storage.Filter{}); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(5 * time.Second)
		if n := len(sink.ids()); n != 5 {
			t.Errorf("%d messages were sent after a requeue, want all 5", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A message that expires in memory while its sink is down isn't sent when the sink recovers. A message that expires while it
// is in flight is delivered.
func TestMessagesExpireWhileInMemory(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		seen, up := &expiries{}, time.Now().Add(time.Minute)
		slow := &recorder{delay: 10 * time.Second}
		down := &recorder{answer: func(sinks.Message) sinks.Outcome {
			if time.Now().Before(up) {
				return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down")
			}
			return sinks.Ok("")
		}}
		soon := db.Now().Add(5 * time.Second)
		written := db.Write(outbox.Message{Topic: "slow", ExpiresAt: soon}, outbox.Message{Topic: "down", Key: "k", ExpiresAt: soon}, outbox.Message{Topic: "down", Key: "k"})
		_, stop := start(t, db.Store(), relay.Options{Claim: claim, Observer: seen,
			Sinks:  map[string]relay.SinkOptions{"slow": {Sink: slow}, "down": {Sink: down}},
			Routes: []relay.Route{{Topic: "slow", Sink: "slow"}, {Topic: "down", Sink: "down"}}})
		time.Sleep(2 * time.Minute)
		if got := slices.Concat(slow.ids(), down.ids()); !slices.Equal(got, []int64{written[0], written[2]}) {
			t.Errorf("sent are %v, want %v", got, []int64{written[0], written[2]})
		}
		seen.want(t, "map[down park:1]")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// If a message expires while it waits for its next attempt, it is parked when that attempt is due and no earlier. Then the
// next message of its key is sent.
func TestRetriesExpireWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, seen, first := memstore.New(), &expiries{}, int64(0)
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if m.Sequence == first {
				outcome := sinks.Fail(sinks.Retry, sinks.ReasonServerError, "again")
				outcome.RetryAfter = 30 * time.Second
				return outcome
			}
			return sinks.Ok("")
		}}
		tx := db.Begin()
		first = tx.Insert(outbox.Message{Topic: "t", Key: "k", ExpiresAt: time.Now().Add(10 * time.Second)})
		second := tx.Insert(outbox.Message{Topic: "t", Key: "k"})
		tx.Commit()
		_, stop := start(t, db.Store(), relay.Options{Sinks: judging(sink), Observer: seen})
		time.Sleep(29 * time.Second)
		if n := len(parked(t, db)); n != 0 || len(sink.ids()) != 0 {
			t.Errorf("before the retry is due, %d messages are parked and %v were sent", n, sink.ids())
		}
		time.Sleep(5 * time.Second)
		if text := parked(t, db)[first]; !strings.HasSuffix(text, "its expires_at; attempts: 1") {
			t.Errorf("parked with %q", text)
		}
		if got := sink.ids(); !slices.Equal(got, []int64{second}) {
			t.Errorf("sent are %v, want %d", got, second)
		}
		seen.want(t, "map[main park:1]")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Until the settlement of an expired message is written, no later message of its key is sent. This holds for messages that
// have expired when they are read, and for messages that expire in memory.
func TestKeysWaitUntilAnExpiryIsWritten(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, up := memstore.New(), time.Now().Add(wait)
				sink := &recorder{answer: func(sinks.Message) sinks.Outcome {
					if time.Now().Before(up) {
						return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down")
					}
					return sinks.Ok("")
				}}
				store := db.Store()
				writable := up.Add(time.Minute)
				store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
					if op == memstore.OpSettle && time.Now().Before(writable) {
						return errors.New("not now")
					}
					return nil
				}
				expires := time.Now().Add(wait / 2)
				written := db.Write(
					outbox.Message{Topic: "t", Key: "k"}, outbox.Message{Topic: "t", Key: "k", ExpiresAt: expires},
					outbox.Message{Topic: "t", Key: "k", ExpiresAt: expires}, outbox.Message{Topic: "t", Key: "k"})
				_, stop := start(t, store, relay.Options{Sinks: to(sink)})
				time.Sleep(time.Until(writable) - time.Second)
				if got := sink.ids(); slices.Contains(got, written[3]) {
					t.Errorf("before any settlement could be written, %v were sent", got)
				}
				time.Sleep(time.Minute)
				if got := sink.ids(); !slices.Equal(got, []int64{written[0], written[3]}) {
					t.Errorf("sent are %v, want %v", got, []int64{written[0], written[3]})
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// With HoldKey an expired message does not hold its key. An operator's decision about a message that holds its key is carried
// out whatever the message's age is. After a requeue, a message that was parked by its sink can expire; a message that was
// parked because it had expired can't. In each case the next message of the key is sent.
func TestExpiryAndHeldKeys(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]struct {
		change  func(storage.Operator, context.Context, storage.Filter) (int, error)
		left    string // the beginning of the error of the parked message, if it still exists
		expired string
	}{
		"requeue": {storage.Operator.Requeue, storage.Expired, "map[main park:3]"},
		"skip":    {storage.Operator.Skip, "invalid", "map[main park:2]"},
		"discard": {storage.Operator.Discard, "", "map[main park:2]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink, seen := memstore.New(), newHolding(), &expiries{}
				past, soon := time.Now().Add(-time.Minute), time.Now().Add(10*time.Second)
				written := db.Write(
					outbox.Message{Topic: "t", Key: "k", Payload: []byte("bad"), ExpiresAt: soon},
					outbox.Message{Topic: "t", Key: "k", ExpiresAt: soon},
					outbox.Message{Topic: "t", Key: "k"},
					outbox.Message{Topic: "t", Key: "other", ExpiresAt: past},
					outbox.Message{Topic: "t", Key: "other"})
				options := sink.options()
				options.Observer = seen
				_, stop := start(t, db.Store(), options)
				wantHeld := func(want int64) {
					t.Helper()
					if s, _ := db.Store().Status(t.Context()); s.HeldKeys != want {
						t.Errorf("%d keys are held, want %d", s.HeldKeys, want)
					}
				}
				change := func(change func(storage.Operator, context.Context, storage.Filter) (int, error), want int) {
					t.Helper()
					if n, err := change(db.Store(), t.Context(), storage.Filter{Key: "k"}); n != want || err != nil {
						t.Errorf("changed %d, %v; want %d", n, err, want)
					}
					time.Sleep(10 * time.Second)
				}
				time.Sleep(20 * time.Second)
				seen.want(t, "map[main park:1]")
				wantHeld(1)
				change(decide.change, 1)
				if got, want := sink.ids(), []int64{written[4], written[2]}; !slices.Equal(got, want) {
					t.Errorf("sent are %v, want %v", got, want)
				}
				seen.want(t, decide.expired)
				wantHeld(0)
				if text, there := parked(t, db)[written[0]]; there != (decide.left != "") || !strings.HasPrefix(text, decide.left) {
					t.Errorf("parked with %q, want %q", text, decide.left)
				}
				if decide.left == storage.Expired {
					change(storage.Operator.Requeue, 2) // the second message, too; both had expired before, so they never expire again
					wantHeld(1)
					sink.mended.Store(true)
					change(storage.Operator.Requeue, 1)
					if got, want := sink.ids()[2:], written[:2]; !slices.Equal(got, want) {
						t.Errorf("after the requeue, sent are %v, want %v", got, want)
					}
					seen.want(t, decide.expired)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// away is a sink whose Open fails before a certain time.
type away struct {
	recorder
	until time.Time
}

func (s *away) Open(context.Context) error {
	if time.Now().Before(s.until) {
		return errors.New("down")
	}
	return nil
}

// countedReads counts the rows that pages return.
type countedReads struct {
	*memstore.Store
	rows atomic.Int64
}

func (s *countedReads) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	s.rows.Add(int64(len(page.Rows)))
	return page, err
}

// When a sink recovers, its expired backlog is read once, whatever its keys are, and doesn't wait for room in the buffer.
func TestExpiredBacklogIsWalkedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const backlog = 30_000
		db, seen, sink := memstore.New(), &expiries{}, &away{until: time.Now().Add(time.Hour)}
		for i := range backlog {
			db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint(i % 1000)})
		}
		store := &countedReads{Store: db.Store()}
		_, stop := start(t, store, relay.Options{Observer: seen, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Buffer: 2000}},
			Routes: []relay.Route{{Topic: "*", Sink: "main", ExpireAfter: 10 * time.Minute, OnExpire: relay.DiscardExpired}}})
		time.Sleep(59 * time.Minute)
		before := store.rows.Load()
		time.Sleep(5 * time.Minute)
		if read := store.rows.Load() - before; read > backlog+backlog/10 {
			t.Errorf("%d rows were read to discard %d", read, backlog)
		}
		seen.want(t, fmt.Sprintf("map[main discard:%d]", backlog))
		if left := len(db.Messages()); left != 0 || len(sink.ids()) != 0 {
			t.Errorf("%d rows are left, and %d were sent", left, len(sink.ids()))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A consumer doesn't receive expired messages, and reports them to the observer and the log.
func TestConsumerSkipsExpiredMessages(t *testing.T) {
	t.Parallel()
	for become, left := range map[relay.OnExpire]int{relay.ParkExpired: 3, relay.DiscardExpired: 1} {
		t.Run(string(become), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				db.Now = func() time.Time { return time.Now().Add(-3 * time.Hour) }
				db.Write(outbox.Message{Topic: "old"})
				time.Sleep(time.Hour)
				written := db.Write(outbox.Message{Topic: "expired", ExpiresAt: db.Now()}, outbox.Message{Topic: "good", ExpiresAt: db.Now().Add(time.Minute)})
				var told expiries
				var log strings.Builder
				c, err := relay.NewConsumer(db.Store(), relay.ConsumerOptions{
					ExpireAfter: time.Hour, OnExpire: become, Observer: &told, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				got, err := c.Receive(ctx, 10)
				if err != nil || len(got) != 1 || got[0].Sequence != written[1] {
					t.Fatalf("received %v, %v; want row %d", got, err, written[1])
				}
				told.want(t, fmt.Sprintf("map[consumer %s:2]", become))
				if strings.Count(log.String(), "a message that has expired") != 1 {
					t.Errorf("the log has %s", log.String())
				}
				if n := len(db.Messages()); n != left {
					t.Errorf("%d rows are left, want %d", n, left)
				}
				for id, text := range parked(t, db) {
					if !strings.HasPrefix(text, storage.Expired) {
						t.Errorf("row %d is parked with %q", id, text)
					}
				}
				if err := got[0].Done(ctx, ""); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Invalid expiry options are rejected.
func TestExpiryOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for want, routes := range map[string][]relay.Route{
		"must not be negative":        {{Topic: "t", Sink: "main", ExpireAfter: -1}},
		`must be "park" or "discard"`: {{Topic: "t", Sink: "main", OnExpire: "drop"}},
		"has two routes":              {{Topic: "t", Sink: "main", ExpireAfter: time.Hour}, {Topic: "t", Sink: "main"}},
	} {
		if _, err := relay.New(memstore.New().Store(), relay.Options{Sinks: to(&recorder{}), Routes: routes}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", routes, err, want)
		}
	}
}
