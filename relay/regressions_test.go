package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// A sink that fails for more than 10,000 keys recovers.
func TestManyFailingKeysRecover(t *testing.T) {
	onlyComputes(t)
	synctest.Test(t, func(t *testing.T) {
		var heal atomic.Bool
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if !heal.Load() {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
			}
			return sinks.Ok("")
		}}
		db := memstore.New()
		for i := range 10_500 {
			write(db, "orders", fmt.Sprint("k", i), 1)
		}
		_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: -1}}})
		time.Sleep(10 * time.Second)
		heal.Store(true)
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 10_500 {
			t.Errorf("an hour after the sink healed: %v, want 10500 done", counts)
		}
	})
}

// retryRows writes one message for each key, and turns each into a retry.
func retryRows(t *testing.T, db *memstore.DB, n int, topic func(i int) string) {
	t.Helper()
	s := db.Store()
	ctx := t.Context()
	if err := s.SetClaimMode(ctx, storage.ByLanes); err != nil {
		t.Fatal(err)
	}
	grants, err := s.Acquire(ctx, "before", storage.Lanes, time.Minute)
	if err != nil || len(grants) != storage.Lanes {
		t.Fatal(len(grants), err)
	}
	for i := range n {
		db.Write(outbox.Message{Topic: topic(i), Key: fmt.Sprint("k", i)})
	}
	var positions []storage.Position
	fences := map[int]int64{}
	for _, g := range grants {
		positions = append(positions, storage.Position{Lane: g.Lane})
		fences[g.Lane] = g.Fence
	}
	page, err := s.Read(ctx, storage.ReadRequest{Positions: positions, Limit: 1_000_000, MaxBytes: 1 << 40})
	if err != nil || len(page.Rows) != n {
		t.Fatal(len(page.Rows), err)
	}
	var settlements []storage.Settlement
	for _, row := range page.Rows {
		settlements = append(settlements, storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: fences[row.Lane], State: storage.StateRetry, Attempts: 1, Delay: 10 * time.Minute})
	}
	if _, err := s.Settle(ctx, "before", true, settlements); err != nil {
		t.Fatal(err)
	}
	var releases []storage.Renewal
	for _, g := range grants {
		releases = append(releases, storage.Renewal{Lease: g.Lease})
	}
	if err := s.Release(ctx, "before", releases); err != nil {
		t.Fatal(err)
	}
}

// When a relay takes over more than 20,000 blocked keys, it knows all of them.
func TestAllHeldKeysAreLoaded(t *testing.T) {
	onlyComputes(t)
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		topic := func(i int) string { return fmt.Sprint("t", i%3) }
		const n = 21_000
		retryRows(t, db, n, topic)
		for i := range n {
			db.Write(outbox.Message{Topic: topic(i), Key: fmt.Sprint("k", i)})
		}
		sink := &recorder{}
		options := relay.Options{
			Sinks:  map[string]relay.SinkOptions{"s0": {Sink: sink}, "s1": {Sink: sink}, "s2": {Sink: sink}},
			Routes: []relay.Route{{Topic: "t0", Sink: "s0"}, {Topic: "t1", Sink: "s1"}, {Topic: "t2", Sink: "s2"}},
		}
		_, stop := start(t, db.Store(), options)
		time.Sleep(time.Minute)
		stop()
		if got := len(sink.ids()); got != 0 {
			t.Errorf("%d messages were delivered although an earlier message of their key waits for a retry", got)
		}
	})
}

type partialKeys struct {
	storage.Store
	once sync.Once
}

func (s *partialKeys) BlockedKeys(ctx context.Context, lanes []int, limit int) (keys []storage.BlockedKey, err error) {
	keys, err = s.Store.BlockedKeys(ctx, lanes, limit)
	s.once.Do(func() { keys, err = keys[:1], errors.New("the connection broke between two rows") })
	return keys, err
}

// If the store returns some blocked keys together with an error, the relay ignores them and asks again.
func TestHeldKeysWithAnErrorAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		retryRows(t, db, 10, func(int) string { return "t" })
		for i := range 10 {
			db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("k", i)})
		}
		sink := &recorder{}
		_, stop := start(t, &partialKeys{Store: db.Store()}, relay.Options{Sinks: to(sink)})
		time.Sleep(time.Minute)
		stop()
		if got := len(sink.ids()); got != 0 {
			t.Errorf("%d messages were delivered although an earlier message of their key waits for a retry", got)
		}
	})
}

type failedOver struct {
	storage.Store
	over  atomic.Bool
	marks atomic.Int64
}

func (s *failedOver) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	if s.over.Load() {
		page.SafeID, page.LateAfter = 0, 0
	}
	return page, err
}

func (s *failedOver) Renew(ctx context.Context, name string, r []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
	highest := int64(0)
	for _, renewal := range r {
		highest = max(highest, renewal.Marks.Main)
	}
	s.marks.Store(highest)
	return s.Store.Renew(ctx, name, r, ttl)
}

// After a failover, when the store returns LateAfter 0 and SafeID 0, the relay stores no mark above 0.
func TestMarksFollowTheSafeIDDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		write(db, "t", "k", 1000)
		s := &failedOver{Store: db.Store()}
		_, stop := start(t, s, relay.Options{Sinks: to(&recorder{})})
		time.Sleep(10 * time.Second)
		s.over.Store(true)
		time.Sleep(10 * time.Second)
		if m := s.marks.Load(); m != 0 {
			t.Errorf("the relay stored the mark %d, although the store has reported the safe id 0", m)
		}
		stop()
	})
}

type countsScans struct {
	storage.Store
	most atomic.Int64
}

func (s *countsScans) Scan(ctx context.Context, p []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	rows, left, err := s.Store.Scan(ctx, p, except, keep)
	s.most.Store(max(s.most.Load(), int64(len(rows))))
	return rows, left, err
}

// A scan doesn't load into memory the rows that were dropped because their key is blocked.
func TestScanDoesNotLoadDroppedRowsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if m.Key == "bad" {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
			}
			return sinks.Ok("")
		}}
		db := memstore.New()
		late := db.Begin()
		late.Insert(outbox.Message{Topic: "t", Key: "other"})
		write(db, "t", "bad", 50_000)
		s := &countsScans{Store: db.Store()}
		_, stop := start(t, s, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, MaxAttempts: -1, Buffer: 100, Batch: 50}}})
		time.Sleep(2 * time.Minute)
		late.Commit()
		time.Sleep(10 * time.Second)
		stop()
		if n := s.most.Load(); n > 1000 {
			t.Errorf("a scan for one late row returned %d rows, although the buffer holds 100", n)
		}
	})
}

// If a relay that claims by rows stops while a claim is in progress, it gives the claimed rows back.
func TestStopByRowsGivesBackAClaimInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		store := db.Store()
		store.Hooks.Lose = func(ctx context.Context, op memstore.Op) error {
			if op == memstore.OpClaim {
				time.Sleep(20 * time.Millisecond) // the time until the answer arrives
			}
			return nil
		}
		_, stop := start(t, store, relay.Options{Claim: storage.ByRows, Sinks: to(sink)})
		time.Sleep(time.Second) // the relay polls 0 ms, 220 ms, … after its start
		for statusOf(t, db)[storage.StateClaimed] == 0 {
			write(db, "orders", "", 50)
			time.Sleep(time.Millisecond)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateClaimed] != 0 {
			t.Errorf("after a clean stop: %v, want nothing claimed", counts)
		}
	})
}

// lostCommit is a store that commits a handler's transaction and loses the result, once.
type lostCommit struct {
	*memstore.Store
	once sync.Once
}

func (s *lostCommit) HandleTx(ctx context.Context, name string, keep bool, done storage.Settlement, handler func(context.Context, *sql.Tx) error) error {
	if err := handler(ctx, nil); err != nil {
		return err
	}
	settled, err := s.Settle(ctx, name, keep, []storage.Settlement{done})
	if err == nil && settled.Changed != 1 {
		err = storage.ErrFenced
	}
	s.once.Do(func() { err = errors.New("the connection broke during commit") })
	return err
}

type okTx struct{ recorder }

func (s *okTx) HandleTx(ctx context.Context, _ *sql.Tx, m sinks.Message) sinks.Outcome {
	return s.Send(ctx, []sinks.Message{m})[0]
}

// If the result of a transactional handler's commit is lost, the message doesn't block its key for ever.
func TestKeyContinuesAfterALostCommit(t *testing.T) {
	onlyComputes(t)
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &okTx{}
		write(db, "t", "k", 3)
		_, stop := start(t, &lostCommit{Store: db.Store()}, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}}})
		time.Sleep(time.Hour)
		stop()
		if counts := statusOf(t, db); counts[storage.StateDone] != 3 {
			t.Errorf("an hour later: %v, want 3 done", counts)
		}
	})
}

// The outcome of a key's message isn't written before those of earlier messages of the key; otherwise, after a crash, an
// earlier message would be sent again after a later one.
func TestMarksOfAKeyAreWrittenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		write(db, "t", "k", 2)
		store := db.Store()
		dead := make(chan struct{})
		var settles atomic.Int32
		store.Hooks.Fail = func(ctx context.Context, op memstore.Op) error {
			select {
			case <-dead:
				return errDead
			default:
			}
			if op == memstore.OpSettle && settles.Add(1) == 1 {
				<-dead // the settlement is in progress until the process is dead
				return errDead
			}
			return nil
		}
		r, stop := start(t, store, relay.Options{Lease: time.Second, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 300}}})
		// so many other messages that a second settlement would be started concurrently
		for i := range 400 {
			write(db, "t", fmt.Sprint("other", i), 1)
		}
		time.Sleep(700 * time.Millisecond)
		close(dead)
		r.Abort()
		stop()
		_, stop = start(t, db.Store(), relay.Options{Sinks: to(sink)})
		time.Sleep(time.Minute)
		stop()
		var got []int64
		for _, m := range sink.received {
			if m.Key == "k" {
				got = append(got, m.Sequence)
			}
		}
		if len(got) == 3 && got[2] == 1 {
			t.Errorf("the messages of key k arrived as %v: the last one must not be the oldest", got)
		} else {
			t.Logf("key k: %v", got)
		}
	})
}

type topicAlarm struct {
	relay.NoObserver
	mu     sync.Mutex
	topics map[string]bool
}

func (a *topicAlarm) Unrouted(topic string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.topics[topic] = true
}

// Each topic without a route is reported.
func TestEachUnroutedTopicIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, alarms := memstore.New(), &topicAlarm{topics: map[string]bool{}}
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(&recorder{}), Routes: []relay.Route{{Topic: "known", Sink: "main"}}, Observer: alarms})
		write(db, "first", "k", 1)
		time.Sleep(time.Minute)
		write(db, "second", "k", 1)
		time.Sleep(10 * time.Minute)
		stop()
		if !alarms.topics["second"] {
			t.Errorf("reported %v, not the second topic", alarms.topics)
		}
	})
}

// Consumers delete delivered messages that are older than their retention.
func TestConsumersApplyTheirRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		c, err := relay.NewConsumer(db.Store(), relay.ConsumerOptions{Retention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			write(db, "t", "", 1)
			d, err := c.Receive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			d[0].Done(t.Context(), "")
			time.Sleep(24 * time.Hour)
		}
		if n := statusOf(t, db)[storage.StateDone]; n > 1 {
			t.Errorf("%d done rows are kept for longer than the retention of an hour", n)
		}
	})
}

// If the answer of a claim arrives so late that the claim is about to expire, the claimed messages are not sent.
func TestLateClaimIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		slow := db.Store()
		slow.Hooks.Lose = func(ctx context.Context, op memstore.Op) error {
			if op == memstore.OpClaim {
				select { // the answer takes 14.9 s
				case <-ctx.Done():
				case <-time.After(14900 * time.Millisecond):
				}
			}
			return nil
		}
		write(db, "t", "", 1)
		a, b := &recorder{delay: 5 * time.Second}, &recorder{}
		_, stopA := start(t, slow, relay.Options{Name: "a", Claim: storage.ByRows, Sinks: to(a)})
		time.Sleep(time.Second)
		_, stopB := start(t, db.Store(), relay.Options{Name: "b", Claim: storage.ByRows, Sinks: to(b)})
		for range 100 { // repeatedly: after relay a has given the message back, either relay may claim it first
			if time.Sleep(time.Minute); len(b.ids()) > 0 {
				break
			}
		}
		stopA()
		stopB()
		if n := len(a.ids()) + len(b.ids()); n != 1 {
			t.Errorf("%d deliveries of one message, although no process stopped and no answer was lost", n)
		}
	})
}

// A drain doesn't wait for a due message whose key waits for a retry that isn't due.
func TestDrainDoesNotWaitForAHeldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if m.Sequence == 1 {
				o := sinks.Fail(sinks.Retry, sinks.ReasonBusy, "")
				o.RetryAfter = time.Hour
				return o
			}
			return sinks.Ok("")
		}}
		db.Write(outbox.Message{Topic: "t", Key: "k"})
		db.Write(outbox.Message{Topic: "t", Key: "k", AvailableAt: time.Now().Add(time.Second)})
		_, stop := start(t, db.Store(), relay.Options{Sinks: judging(sink)})
		time.Sleep(5 * time.Second)
		stop()
		r, err := relay.New(db.Store(), relay.Options{Sinks: judging(sink), Drain: true})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r.Run(t.Context())
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the drain took %v", took)
		}
	})
}

// slowPoison is a sink that kills its process some time after it has received a certain message.
type slowPoison struct {
	recorder
	dead chan struct{}
	once sync.Once
}

func (s *slowPoison) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	for _, m := range batch {
		if string(m.Payload) == "poison" {
			time.Sleep(50 * time.Millisecond)
			s.once.Do(func() { close(s.dead) })
			return nil
		}
	}
	return s.recorder.Send(ctx, batch)
}

// A message that crashes its relays is parked even while another sink is busy.
func TestPoisonIsParkedThoughAnotherSinkIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		db.Write(outbox.Message{Topic: "a", Key: "p", Payload: []byte("poison")})
		for i := range 20_000 {
			write(db, "b", fmt.Sprint("k", i%100), 1)
		}
		lives := 0
		for range 60 {
			dead := make(chan struct{})
			isDead := func() bool {
				select {
				case <-dead:
					return true
				default:
					return false
				}
			}
			store := db.Store()
			fail := func(ctx context.Context, op memstore.Op) error {
				if op == memstore.OpJournal {
					time.Sleep(time.Millisecond)
				}
				if isDead() {
					return errDead
				}
				return nil
			}
			store.Hooks = memstore.Hooks{Fail: fail, Lose: fail}
			a, b := &slowPoison{dead: dead}, &recorder{delay: 30 * time.Millisecond}
			r, stop := start(t, store, relay.Options{Lease: 3 * time.Second, DrainTimeout: time.Millisecond,
				Sinks:  map[string]relay.SinkOptions{"a": {Sink: a}, "b": {Sink: b, Batch: 10, Buffer: 50}},
				Routes: []relay.Route{{Topic: "a", Sink: "a"}, {Topic: "b", Sink: "b"}}})
			for range 300 {
				time.Sleep(100 * time.Millisecond)
				if isDead() {
					break
				}
			}
			if !isDead() {
				stop()
				break
			}
			lives++
			r.Abort()
			stop()
			time.Sleep(5 * time.Second)
		}
		parked, _ := db.Store().List(t.Context(), storage.Filter{State: storage.StateError})
		if len(parked) != 1 {
			t.Errorf("after it has killed %d relays, the message is not parked; %v", lives, statusOf(t, db))
		} else {
			t.Logf("the message was parked after it had killed %d relays", lives)
		}
	})
}

// A relay that claims by rows may give a row back, and claim it again before it has received the answer of the call that gave
// it back. Then the answer must not make the relay forget the row.
func TestReturnedRowIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		store := db.Store()
		store.Hooks.Lose = func(ctx context.Context, op memstore.Op) error {
			if op == memstore.OpSettle {
				time.Sleep(5 * time.Millisecond) // the time until the answer arrives
			}
			return nil
		}
		slow, fast := &recorder{delay: 3 * time.Millisecond}, &recorder{delay: time.Millisecond}
		r, stop := start(t, store, relay.Options{Claim: storage.ByRows,
			Sinks:  map[string]relay.SinkOptions{"a": {Sink: slow, Batch: 2, Buffer: 4, Workers: 2}, "b": {Sink: fast, Batch: 50, Buffer: 400}},
			Routes: []relay.Route{{Topic: "a", Sink: "a"}, {Topic: "b", Sink: "b"}}})
		for range 300 {
			write(db, "a", "", 1)
			write(db, "b", "", 1)
			r.Wake()
			time.Sleep(time.Millisecond)
		}
		for i := range 12 {
			t.Log(i*5, statusOf(t, db))
			time.Sleep(5 * time.Second)
		}
		stop()
		rows, _ := db.Store().List(t.Context(), storage.Filter{Limit: 1000})
		late, crashes := 0, 0
		for _, row := range rows {
			crashes += row.Crashes
			if row.FinishedAt.Sub(row.CreatedAt) > 15*time.Second {
				late++
			}
		}
		if crashes > 0 {
			t.Errorf("%d rows arrived after more than 15 s, and %d crashes were charged, although nothing crashed", late, crashes)
		}
	})
}

// heldByRows moves this number of messages to the held table, in the given state, as a relay that claims by rows does.
func heldByRows(t *testing.T, db *memstore.DB, count int, state storage.State) {
	t.Helper()
	ctx, s := t.Context(), db.Store()
	if err := s.SetClaimMode(ctx, storage.ByRows); err != nil {
		t.Fatal(err)
	}
	write(db, "t", "", count)
	rows, err := s.Claim(ctx, storage.ClaimRequest{Relay: "x", Token: "x", TTL: time.Minute, Limit: count, Pick: storage.Oldest})
	if err != nil || len(rows) != count {
		t.Fatal(len(rows), err)
	}
	var settlements []storage.Settlement
	for _, row := range rows {
		settlements = append(settlements, storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Token: "x", State: state, Attempts: 1})
	}
	if _, err := s.Settle(ctx, "x", true, settlements); err != nil {
		t.Fatal(err)
	}
}

// A drain by rows delivers all deferred rows that are due, even if they are more than Reclaim moves in one call.
func TestDrainByRowsDeliversAllDueRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), memstore.New()
		heldByRows(t, db, 5000, storage.StateError)
		if n, err := db.Store().Requeue(ctx, storage.Filter{}); n != 5000 || err != nil {
			t.Fatal(n, err)
		}
		r, err := relay.New(db.Store(), relay.Options{Claim: storage.ByRows, Sinks: to(&recorder{}), Drain: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 5000 {
			t.Errorf("after the drain: %v, want 5000 done", counts)
		}
	})
}

// A drain by rows doesn't end after an empty claim if rows became claimable while the claim was in progress.
func TestDrainByRowsReadsAgainAfterRowsReturn(t *testing.T) {
	for range 20 { // repeatedly, because the order in which the relay receives the two results is random
		synctest.Test(t, func(t *testing.T) {
			ctx, db, began := t.Context(), memstore.New(), time.Now()
			heldByRows(t, db, 1000, storage.StateRetry)
			store := db.Store()
			later := began.Add(time.Second)
			store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
				if op == memstore.OpReclaim {
					time.Sleep(time.Until(later)) // no row becomes claimable before this time
				}
				return nil
			}
			store.Hooks.Lose = func(_ context.Context, op memstore.Op) error {
				if op == memstore.OpClaim && time.Now().After(began) {
					time.Sleep(time.Until(later))
				}
				return nil
			}
			r, err := relay.New(store, relay.Options{Claim: storage.ByRows, Sinks: to(&recorder{}), Poll: 700 * time.Millisecond, Lease: 2400 * time.Millisecond, Drain: true,
				Observer: &busy{began: began}})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
			if counts := statusOf(t, db); counts[storage.StatePending] != 0 {
				t.Errorf("after the drain: %v, want nothing pending", counts)
			}
		})
	}
}

// busy is an observer that blocks the relay's loop after the first renewal, so that the loop receives all results of the first
// second together.
type busy struct {
	relay.NoObserver
	began time.Time
}

func (b *busy) LanesHeld(int, int) {
	if since := time.Since(b.began); since > 700*time.Millisecond && since < time.Second {
		time.Sleep(300 * time.Millisecond)
	}
}

// If two retries have the same key, the one with the lower id is sent first.
func TestLowestRetryBlocksTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), memstore.New()
		s := db.Store()
		if err := s.SetClaimMode(ctx, storage.ByRows); err != nil {
			t.Fatal(err)
		}
		write(db, "t", "k", 2)
		rows, err := s.Claim(ctx, storage.ClaimRequest{Relay: "x", Token: "x", TTL: time.Minute, Limit: 2, Pick: storage.Oldest})
		if err != nil || len(rows) != 2 {
			t.Fatal(len(rows), err)
		}
		var settlements []storage.Settlement
		for _, row := range rows {
			settlements = append(settlements, storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Token: "x", State: storage.StateRetry, Attempts: 1, Delay: time.Second})
		}
		if _, err := s.Settle(ctx, "x", true, settlements); err != nil {
			t.Fatal(err)
		}
		sink := &recorder{}
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
		time.Sleep(time.Minute)
		stop()
		inOrder(t, sink.received)
	})
}
