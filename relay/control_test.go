package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// steered lets a test set and lift controls of a table, as an operator does.
type steered struct {
	*testing.T
	db *memstore.DB
}

func (s steered) set(kind storage.ControlKind, name string, rate int) {
	s.Helper()
	c := storage.Control{Kind: kind, Name: name, Rate: rate}
	if err := s.db.Store().SetControl(s.Context(), c, 0); err != nil {
		s.Fatal(err)
	}
}

func (s steered) lift(kind storage.ControlKind, name string) {
	s.Helper()
	if was, err := s.db.Store().LiftControl(s.Context(), storage.Control{Kind: kind, Name: name}); err != nil || !was {
		s.Fatalf("lift %s %s: %v, %v", kind, name, was, err)
	}
}

// counted returns how many messages of a topic the sink has received.
func (r *recorder) counted(topic string) (n int) {
	for _, m := range r.all() {
		if m.Topic == topic {
			n++
		}
	}
	return n
}

// All relays, including one that starts during the pause, stop sending to a paused sink within a second, and resume within a
// second after the pause ends. Other sinks are not affected, and no attempt is charged.
func TestAPausedSinkGetsNothing(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				operator := steered{t, db}
				paused, other := &recorder{}, &recorder{}
				run := func() func() error {
					_, stop := start(t, db.Store(), relay.Options{Claim: claim, Lease: 3 * time.Second,
						Sinks:  map[string]relay.SinkOptions{"paused": {Sink: paused, Buffer: 10, Batch: 5}, "other": {Sink: other}},
						Routes: []relay.Route{{Topic: "p", Sink: "paused"}, {Prefix: "p.", Sink: "paused"}, {Topic: "o", Sink: "other"}}})
					return stop
				}
				var stops []func() error
				begin := func() {
					for range 3 {
						stops = append(stops, run())
					}
				}
				end := func() {
					for _, stop := range stops {
						if err := stop(); err != nil {
							t.Error(err)
						}
					}
					stops = nil
				}
				begin()
				time.Sleep(10 * time.Second)
				for i := range 10 {
					write(db, "p", fmt.Sprint("key-", i), 1)
				}
				time.Sleep(3 * time.Second)
				operator.set(storage.PauseSink, "paused", 0)
				time.Sleep(time.Second)
				got := len(paused.all())
				if got != 10 {
					t.Fatalf("%d messages before the pause, want 10", got)
				}
				for i := range 100 {
					write(db, "p", fmt.Sprint("key-", i%20), 1)
					write(db, "p.x", fmt.Sprint("key-", i%20), 1)
					write(db, "o", fmt.Sprint("key-", i%20), 1)
				}
				time.Sleep(5 * time.Second)
				end()
				begin()
				time.Sleep(20 * time.Second)
				if n := len(paused.all()); n != got {
					t.Errorf("%d messages reached the sink while it was paused", n-got)
				}
				if n := len(other.all()); n != 100 {
					t.Errorf("%d of 100 messages reached the other sink", n)
				}
				operator.lift(storage.PauseSink, "paused")
				time.Sleep(time.Second)
				if n := len(paused.all()); n == got {
					t.Error("no message reached the sink within a second of the end of its pause")
				}
				time.Sleep(2 * time.Second) // a claim by rows takes at most what fits into the small buffer, so this takes several claims
				if n := len(paused.all()); n != got+200 {
					t.Errorf("%d messages reached the sink after its pause, want 200", n-got)
				}
				if claim == storage.ByLanes {
					inOrder(t, paused.all())
				}
				end()
				infos, err := db.Store().List(t.Context(), storage.Filter{Limit: 1000})
				if err != nil || slices.ContainsFunc(infos, func(i storage.Info) bool { return i.State != storage.StateDone || i.Attempts > 1 }) {
					t.Errorf("not all are done at the first attempt: %v", err)
				}
			})
		})
	}
}

// Pauses of sinks, topics and keys start and end while messages fail and relays start and stop. No paused message is sent more
// than a second after its pause began, keys keep their order in each sink, even across topics, and messages that aren't paused
// are delivered.
func TestPausesKeepKeyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2 * *simulations) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, violation := range pausesComeAndGo(t, seed, func(s *memstore.Store) storage.Store { return s }) {
					t.Error(violation)
				}
			})
		})
	}
}

// deaf is a store that reports no controls to its relays.
type deaf struct{ *memstore.Store }

func (deaf) Controls(context.Context) ([]storage.Control, error) { return nil, nil }

// belated is a store that reports the controls that were in force two seconds ago.
type belated struct{ *memstore.Store }

func (s belated) Controls(ctx context.Context) ([]storage.Control, error) {
	controls, err := s.Store.Controls(ctx)
	return slices.DeleteFunc(controls, func(c storage.Control) bool { return time.Since(c.Since) < 2*time.Second }), err
}

// The history of TestPausesKeepKeyOrder detects relays that learn of pauses too late or never.
func TestPauseTestFindsIgnoredPauses(t *testing.T) {
	t.Parallel()
	for name, mutant := range map[string]func(*memstore.Store) storage.Store{
		"deaf": func(s *memstore.Store) storage.Store { return deaf{s} },
		"late": func(s *memstore.Store) storage.Store { return belated{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				found := false
				for seed := uint64(0); seed < 5 && !found; seed++ {
					found = len(pausesComeAndGo(t, seed, mutant)) > 0
				}
				if !found {
					t.Error("nothing was found")
				}
			})
		})
	}
}

// pausesComeAndGo plays one history, and returns the rules that the sent messages violated.
func pausesComeAndGo(t *testing.T, seed uint64, open func(*memstore.Store) storage.Store) (violations []string) {
	random := rand.New(rand.NewPCG(seed, 1))
	db := memstore.New()
	operator := steered{t, db}
	var mu sync.Mutex
	pausedSince := map[string]time.Time{} // by kind and name
	last := map[string]int64{}            // by sink and key
	failed := map[string]int{}
	sent := 0
	sink := func(name string) sinks.Sink {
		r := &recorder{order: sinks.OrderNone, delay: 400 * time.Millisecond}
		r.answer = func(m sinks.Message) sinks.Outcome {
			mu.Lock()
			defer mu.Unlock()
			for _, what := range []string{"sink " + name, "topic " + m.Topic, "key " + m.Key} {
				if since, ok := pausedSince[what]; ok && time.Since(since) > time.Second+r.delay {
					violations = append(violations, fmt.Sprintf("message %d of key %s and topic %s was sent to %s, though %s has been paused for %v", m.Sequence, m.Key, m.Topic, name, what, time.Since(since)))
				}
			}
			at := name + " " + m.Key
			if m.Key != "" && m.Sequence < last[at] {
				violations = append(violations, fmt.Sprintf("key %s at %s: message %d arrived after message %d", m.Key, name, m.Sequence, last[at]))
			}
			if m.Sequence%5 == 0 && failed[at+fmt.Sprint(m.Sequence)] == 0 {
				failed[at+fmt.Sprint(m.Sequence)] = 1
				return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "refused")
			}
			if failed[at+fmt.Sprint(m.Sequence)]++; m.Sequence%7 == 0 && failed[at+fmt.Sprint(m.Sequence)] < 3 {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
			}
			last[at] = m.Sequence
			sent++
			return sinks.Ok("")
		}
		return r
	}
	options := relay.Options{Lease: 3 * time.Second,
		Sinks: map[string]relay.SinkOptions{
			"a": {Sink: sink("a"), Buffer: 20, Batch: 5, MaxAttempts: -1, BreakerThreshold: -1, Backoff: relay.Backoff{Min: time.Second, Max: time.Second}, BreakerBackoff: relay.Backoff{Min: time.Second, Max: time.Second}},
			"b": {Sink: sink("b"), Buffer: 20, Batch: 5, MaxAttempts: -1, BreakerThreshold: -1, Backoff: relay.Backoff{Min: time.Second, Max: time.Second}},
		},
		Routes: []relay.Route{{Topic: "1", Sink: "a"}, {Topic: "2", Sink: "a"}, {Topic: "3", Sink: "b"}, {Topic: "4", Sinks: []string{"a", "b"}}}}
	run := func() func() error {
		options.Logger = slog.New(slog.DiscardHandler)
		r, err := relay.New(open(db.Store()), options)
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 0 {
			r.KeepBlockedKeys(2)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		return func() error { cancel(); return <-done }
	}
	stops := []func() error{run(), run()}
	controls := []storage.Control{{Kind: storage.PauseSink, Name: "a"}, {Kind: storage.PauseSink, Name: "b"}}
	for i := range 4 {
		controls = append(controls, storage.Control{Kind: storage.PauseTopic, Name: fmt.Sprint(i + 1)}, storage.Control{Kind: storage.PauseKey, Name: fmt.Sprint("key-", i)})
	}
	lift := func(c storage.Control) {
		mu.Lock()
		delete(pausedSince, c.String())
		mu.Unlock()
		operator.lift(c.Kind, c.Name)
	}
	parts := 0
	for range 120 {
		for range random.IntN(8) {
			topic := 1 + random.IntN(4)
			message := outbox.Message{Topic: fmt.Sprint(topic)}
			if random.IntN(5) > 0 {
				message.Key = fmt.Sprint("key-", random.IntN(10))
			}
			if parts++; topic == 4 {
				parts++
			}
			tx := db.Begin()
			tx.Insert(message)
			tx.Commit()
		}
		switch random.IntN(6) {
		case 0, 1:
			c := controls[random.IntN(len(controls))]
			mu.Lock()
			_, paused := pausedSince[c.String()]
			mu.Unlock()
			if paused {
				lift(c)
				break
			}
			operator.set(c.Kind, c.Name, 0)
			mu.Lock()
			pausedSince[c.String()] = time.Now()
			mu.Unlock()
		case 2:
			if random.IntN(4) == 0 {
				at := random.IntN(len(stops))
				if err := stops[at](); err != nil && !errors.Is(err, context.Canceled) { // it was stopped while it was starting
					t.Error(err)
				}
				stops[at] = run()
			}
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
	}
	for _, c := range controls {
		mu.Lock()
		_, paused := pausedSince[c.String()]
		mu.Unlock()
		if paused {
			lift(c)
		}
	}
	time.Sleep(5 * time.Minute)
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if sent != parts {
		violations = append(violations, fmt.Sprintf("%d of %d parts were delivered", sent, parts))
	}
	if counts := statusOf(t, db); counts[storage.StatePending]+counts[storage.StateRetry]+counts[storage.StateScheduled] > 0 {
		violations = append(violations, fmt.Sprintf("left: %v", counts))
	}
	return violations
}

// A paused topic with more messages than fit into memory does not delay other keys of its sink.
func TestPausedTopicDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		operator := steered{t, db}
		operator.set(storage.PauseTopic, "paused", 0)
		_, stop := start(t, db.Store(), relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Buffer: 50, Batch: 10}}})
		time.Sleep(time.Second)
		for i := range 3000 {
			write(db, "paused", fmt.Sprint("key-", i%700), 1)
			if i%10 == 0 {
				write(db, "paused", "", 1)
				write(db, "other", "", 1)
				write(db, "other", fmt.Sprint("another-", i), 1)
				write(db, "other", fmt.Sprint("key-", i%700), 1)
			}
		}
		time.Sleep(20 * time.Second)
		if n := sink.counted("paused"); n > 0 {
			t.Errorf("%d messages of the paused topic were sent", n)
		}
		// Fewer than 1 % of a lane's other keys wait, too: they are false positives of its keySet.
		if n := sink.counted("other"); n < 580 || n > 600 {
			t.Errorf("%d messages of another topic were sent, want nearly all of the 600 that don't follow a paused one", n)
		}
		operator.lift(storage.PauseTopic, "paused")
		time.Sleep(5 * time.Second)
		if n := len(sink.all()); n != 3000+4*300 {
			t.Errorf("%d messages of %d were sent in the end", n, 3000+4*300)
		}
		inOrder(t, sink.all())
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A message of a paused topic is committed late. Its id is far below the cursor, so that only a scan finds it. Later messages
// of its key, which have another topic, wait for it.
func TestLateMessageOfAPausedTopicBlocksItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		operator := steered{t, db}
		operator.set(storage.PauseTopic, "paused", 0)
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
		keys := keysOf(0, storage.Lanes, 2) // in one lane
		write(db, "paused", keys[0], 1)
		late := db.Begin()
		late.Insert(outbox.Message{Topic: "paused", Key: keys[1]})
		for i := range 2000 { // so many that a page, which begins a little below the cursor, doesn't reach the late message
			write(db, "other", fmt.Sprint("other-", i), 1)
		}
		time.Sleep(5 * time.Second)
		late.Commit()
		write(db, "other", keys[1], 1)
		time.Sleep(5 * time.Second)
		if n := len(sink.all()); n != 2000 {
			t.Errorf("%d messages were sent during the pause, want the 2000 whose keys have no paused message", n)
		}
		operator.lift(storage.PauseTopic, "paused")
		time.Sleep(5 * time.Second)
		if n := len(sink.all()); n != 2003 {
			t.Errorf("%d of 2003 messages were sent", n)
		}
		inOrder(t, sink.all())
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// countsRows counts the rows that Read and Due return.
type countsRows struct {
	*memstore.Store
	read, due *atomic.Int64
}

func (s countsRows) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	s.read.Add(int64(len(page.Rows)))
	return page, err
}

func (s countsRows) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
	rows, next, err := s.Store.Due(ctx, lanes, after, limit, maxBytes)
	s.due.Add(int64(len(rows)))
	return rows, next, err
}

// While a topic with many messages is paused, other controls start and end. The relay doesn't read the topic's messages again
// because of them.
func TestOtherControlsDoNotRereadPausedMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		store := countsRows{db.Store(), &atomic.Int64{}, &atomic.Int64{}}
		operator := steered{t, db}
		operator.set(storage.PauseTopic, "paused", 0)
		for i := range 20_000 {
			write(db, "paused", fmt.Sprint("key-", i%5000), 1)
		}
		_, stop := start(t, store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}, "other": {Sink: sink}}, Routes: []relay.Route{{Topic: "o", Sink: "other"}, {Topic: "*", Sink: "main"}}})
		time.Sleep(20 * time.Second)
		before := store.read.Load()
		for _, change := range []func(){
			func() { operator.set(storage.PauseSink, "other", 0) },
			func() { operator.set(storage.LimitSink, "main", 10_000) },
			func() { operator.set(storage.PauseTopic, "another", 0) },
			func() { operator.set(storage.PauseKey, "x", 0) },
			func() { operator.lift(storage.PauseSink, "other") },
			func() { operator.lift(storage.LimitSink, "main") },
		} {
			change()
			write(db, "fine", "y", 1)
			time.Sleep(5 * time.Second)
		}
		if n := store.read.Load() - before; n > 2000 {
			t.Errorf("%d rows were read for 6 messages", n)
		}
		write(db, "t", "key-1", 1)
		write(db, "another", "z", 1)
		write(db, "t", "z", 1)
		write(db, "t", "x", 1)
		time.Sleep(5 * time.Second)
		if n := len(sink.all()); n != 6 {
			t.Errorf("%d messages were sent during the pause, want 6", n)
		}
		operator.lift(storage.PauseTopic, "another")
		time.Sleep(5 * time.Second)
		if n := len(sink.all()); n != 8 {
			t.Errorf("%d messages were sent after the end of another topic's pause, want 8", n)
		}
		operator.lift(storage.PauseTopic, "paused")
		operator.lift(storage.PauseKey, "x")
		time.Sleep(time.Minute)
		if n := len(sink.all()); n != 20_010 {
			t.Errorf("%d of 20010 messages were sent", n)
		}
		inOrder(t, sink.all())
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Due messages of a paused topic or sink aren't read repeatedly, and don't delay other due messages.
func TestPausedDueMessagesDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	for _, kind := range []storage.ControlKind{storage.PauseTopic, storage.PauseSink} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dueMessagesAreRead(t, kind)
		})
	}
}

func dueMessagesAreRead(t *testing.T, kind storage.ControlKind) {
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		store := countsRows{db.Store(), &atomic.Int64{}, &atomic.Int64{}}
		operator := steered{t, db}
		operator.set(kind, "paused", 0)
		const paused = 40_000
		due := time.Now().Add(10 * time.Minute)
		for range paused {
			db.Write(outbox.Message{Topic: "paused", AvailableAt: due})
		}
		_, stop := start(t, store, relay.Options{Sinks: map[string]relay.SinkOptions{"paused": {Sink: sink}, "main": {Sink: sink}},
			Routes: []relay.Route{{Topic: "paused", Sink: "paused"}, {Topic: "*", Sink: "main"}}})
		time.Sleep(11 * time.Minute)
		before := store.due.Load()
		for i := range 30 {
			db.Write(outbox.Message{Topic: "other", AvailableAt: time.Now().Add(time.Second)})
			time.Sleep(2500 * time.Millisecond)
			if n := sink.counted("other"); n != i+1 {
				t.Errorf("%d of %d messages were sent within 1.5 s after they were due", n, i+1)
			}
		}
		if n := store.due.Load() - before; n > 5*paused {
			t.Errorf("%d rows were read for 30 messages", n)
		}
		operator.lift(kind, "paused")
		time.Sleep(time.Minute)
		if n := len(sink.all()); n != paused+30 {
			t.Errorf("%d of %d messages were sent", n, paused+30)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A drain ends even if something is paused. If paused messages are left, its error names the pauses; otherwise it returns no
// error.
func TestDrainLeavesPausedMessages(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, c := range []storage.Control{{Kind: storage.PauseSink, Name: "p"}, {Kind: storage.PauseTopic, Name: "p"}, {Kind: storage.PauseKey, Name: "k"}} {
			if claim == storage.ByRows && c.Kind == storage.PauseKey {
				continue
			}
			t.Run(string(claim)+"/"+c.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, sink := memstore.New(), &recorder{}
					operator := steered{t, db}
					drain := func() error {
						r, err := relay.New(db.Store(), relay.Options{Claim: claim, Drain: true, Sinks: map[string]relay.SinkOptions{"p": {Sink: sink, Buffer: 5}, "o": {Sink: sink}},
							Routes: []relay.Route{{Topic: "p", Sink: "p"}, {Topic: "o", Sink: "o"}}})
						if err != nil {
							t.Fatal(err)
						}
						return r.Run(t.Context())
					}
					operator.set(c.Kind, c.Name, 0)
					write(db, "o", "other", 100)
					if err := drain(); err != nil {
						t.Errorf("a drain that left nothing: %v", err)
					}
					write(db, "p", "k", 100)
					write(db, "o", "other", 100)
					if err := drain(); err == nil || !strings.Contains(err.Error(), c.String()) {
						t.Errorf("a drain that left messages returned %v", err)
					}
					if n, p := sink.counted("o"), sink.counted("p"); n != 200 || p != 0 {
						t.Errorf("%d messages of 200 were sent that aren't paused, and %d that are", n, p)
					}
					operator.lift(c.Kind, c.Name)
					if err := drain(); err != nil || sink.counted("p") != 100 {
						t.Errorf("%d messages were sent after the pause, %v", sink.counted("p"), err)
					}
				})
			})
		}
	}
}

// A drain whose only sink is paused leaves all messages, including due retries, and returns an error.
func TestDrainFailsIfTheOnlySinkIsPaused(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, state := range []storage.State{storage.StatePending, storage.StateRetry} {
			t.Run(string(claim)+"/"+string(state), func(t *testing.T) {
				t.Parallel()
				for range 20 { // repeatedly, because the relay may read the pause before or after it acquires its lanes
					synctest.Test(t, func(t *testing.T) {
						db, sink := memstore.New(), &recorder{}
						db.Hooks.Fail = func(context.Context, memstore.Op) error {
							time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
							return nil
						}
						options := relay.Options{Claim: claim, Sinks: to(sink), Logger: slog.New(slog.DiscardHandler)}
						drain := func() error {
							options.Drain = true
							r, err := relay.New(db.Store(), options)
							if err != nil {
								t.Fatal(err)
							}
							return r.Run(t.Context())
						}
						operator := steered{t, db}
						if state == storage.StateRetry {
							sink.answer = func(sinks.Message) sinks.Outcome { return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500") }
							_, stop := start(t, db.Store(), options)
							write(db, "t", "key", 1)
							time.Sleep(time.Second)
							if err := stop(); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Hour)
							sink.answer = nil
						} else {
							write(db, "t", "key", 500)
						}
						operator.set(storage.PauseSink, "main", 0)
						if err := drain(); err == nil || !strings.Contains(err.Error(), "sink main") {
							t.Errorf("a drain that left everything returned %v", err)
						}
						operator.lift(storage.PauseSink, "main")
						operator.set(storage.PauseTopic, "another", 0)
						if err := drain(); err != nil {
							t.Errorf("a drain that left nothing returned %v", err)
						}
						if counts := statusOf(t, db); counts[storage.StatePending]+counts[storage.StateRetry] > 0 {
							t.Errorf("left: %v", counts)
						}
					})
				}
			})
		}
	}
}

// hidesRows is a store whose reads and claims don't return rows of topics that begin with "hidden".
type hidesRows struct{ *memstore.Store }

func hidden(row storage.Row) bool { return strings.HasPrefix(row.Message.Topic, "hidden") }

func (s hidesRows) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	page.Rows = slices.DeleteFunc(page.Rows, hidden)
	return page, err
}

func (s hidesRows) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	return s.Store.Scan(ctx, positions, except, func(c storage.Candidate) bool { return !strings.HasPrefix(c.Topic, "hidden") && keep(c) })
}

func (s hidesRows) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
	request.Except = append(request.Except, "hidden")
	return s.Store.Claim(ctx, request)
}

// A drain fails if it leaves a due message that no read finds.
func TestDrainFailsIfAMessageCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				write(db, "hidden", "one", 1)
				write(db, "t", "another", 10)
				r, err := relay.New(hidesRows{db.Store()}, relay.Options{Claim: claim, Sinks: to(sink), Drain: true, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "row 1 ") || sink.counted("t") != 10 {
					t.Errorf("the drain delivered %d of 10 messages and returned %v", sink.counted("t"), err)
				}
			})
		})
	}
}

// All relays together send a sink about as many messages as its limit allows. When the limit is lifted, they send everything.
func TestLimitIsSharedByAllRelays(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				operator := steered{t, db}
				operator.set(storage.LimitSink, "main", 100)
				var stops []func() error
				for range 3 {
					_, stop := start(t, db.Store(), relay.Options{Claim: claim, Sinks: to(sink)})
					stops = append(stops, stop)
				}
				time.Sleep(10 * time.Second)
				for i := range 4000 {
					write(db, "t", fmt.Sprint("key-", i%500), 1)
				}
				time.Sleep(10 * time.Second)
				before := len(sink.all())
				time.Sleep(10 * time.Second)
				if n := len(sink.all()) - before; n > 1030 || n < 600 {
					t.Errorf("%d messages in ten seconds, want about 1000", n)
				}
				operator.lift(storage.LimitSink, "main")
				time.Sleep(2 * time.Second)
				if n := len(sink.all()); n != 4000 {
					t.Errorf("%d of 4000 messages arrived when there was no limit", n)
				}
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// Consumers, and relays that don't have the sink, get no share of its limit, since they send it nothing.
func TestLimitIsSharedByRelaysWithTheSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		operator := steered{t, db}
		operator.set(storage.LimitSink, "main", 100)
		var stops []func() error
		for range 2 {
			_, stop := start(t, db.Store(), relay.Options{Claim: storage.ByRows, Sinks: to(sink), Topics: []string{"t"}})
			stops = append(stops, stop)
		}
		for range 3 {
			_, stop := start(t, db.Store(), relay.Options{Claim: storage.ByRows, Sinks: map[string]relay.SinkOptions{"other": {Sink: &recorder{}}}, Topics: []string{"other"}})
			stops = append(stops, stop)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var consumers sync.WaitGroup
		for i := range 9 {
			consumer, err := relay.NewConsumer(db.Store(), relay.ConsumerOptions{Name: fmt.Sprint("consumer-", i), Topics: []string{"another"}})
			if err != nil {
				t.Fatal(err)
			}
			consumers.Go(func() {
				for ctx.Err() == nil {
					if _, err := consumer.Receive(ctx, 10); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(10 * time.Second)
		for i := range 4000 {
			write(db, "t", fmt.Sprint("key-", i), 1)
		}
		time.Sleep(10 * time.Second)
		before := len(sink.all())
		time.Sleep(10 * time.Second)
		if n := len(sink.all()) - before; n > 1030 || n < 600 {
			t.Errorf("%d messages in ten seconds, want about 1000", n)
		}
		cancel()
		consumers.Wait()
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Messages that were sent while there was no limit don't count against the next limit.
func TestLimitCanBeChanged(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				operator := steered{t, db}
				operator.set(storage.LimitSink, "main", 100)
				_, stop := start(t, db.Store(), relay.Options{Claim: claim, Sinks: to(sink)})
				write(db, "t", "key-0", 1)
				time.Sleep(2 * time.Second)
				operator.lift(storage.LimitSink, "main")
				time.Sleep(2 * time.Second)
				for i := range 3000 {
					write(db, "t", fmt.Sprint("key-", i), 1)
				}
				time.Sleep(5 * time.Second)
				operator.set(storage.LimitSink, "main", 100)
				time.Sleep(2 * time.Second)
				for i := range 50 {
					write(db, "t", fmt.Sprint("key-", i), 1)
				}
				time.Sleep(3 * time.Second)
				if n := len(sink.all()); n != 3051 {
					t.Errorf("%d of 3051 messages arrived, the last 50 with a limit of 100 a second", n)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A paused relay leaves its lanes or rows to the others, and gets its share again when the pause ends.
func TestPausedRelayGivesUpItsShare(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				operator := steered{t, db}
				got := map[string]*recorder{}
				var stops []func() error
				for _, name := range []string{"one", "two"} {
					got[name] = &recorder{}
					_, stop := start(t, db.Store(), relay.Options{Name: name, Claim: claim, Lease: 3 * time.Second, Sinks: to(got[name])})
					stops = append(stops, stop)
				}
				send := func(n int) (one, two int) {
					time.Sleep(10 * time.Second)
					one, two = len(got["one"].all()), len(got["two"].all())
					for i := range n {
						write(db, "t", fmt.Sprint("key-", i), 1)
						time.Sleep(10 * time.Millisecond)
					}
					time.Sleep(5 * time.Second)
					return len(got["one"].all()) - one, len(got["two"].all()) - two
				}
				if one, two := send(500); one == 0 || two == 0 {
					t.Errorf("the relays sent %d and %d", one, two)
				}
				operator.set(storage.PauseRelay, "one", 0)
				if one, two := send(500); one != 0 || two != 500 {
					t.Errorf("while relay one was paused, the relays sent %d and %d", one, two)
				}
				operator.lift(storage.PauseRelay, "one")
				if one, two := send(500); one == 0 || two == 0 {
					t.Errorf("after the pause the relays sent %d and %d", one, two)
				}
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// openings is a sink that counts the calls of Open.
type openings struct {
	recorder
	n atomic.Int32
}

func (o *openings) Open(context.Context) error { o.n.Add(1); return nil }

// Until the controls have been read, no sink is opened and nothing is sent, since the sink may be paused.
func TestNothingIsSentBeforeTheControlsAreRead(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink, known := memstore.New(), &openings{}, make(chan struct{})
				store := db.Store()
				store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
					select {
					case <-known:
						return nil
					default:
						if op == memstore.OpControls {
							return errors.New("the controls can't be read")
						}
						return nil
					}
				}
				write(db, "orders", "k", 3)
				_, stop := start(t, store, relay.Options{Claim: claim, Sinks: to(sink)})
				time.Sleep(time.Minute)
				if n := sink.n.Load(); n > 0 || len(sink.ids()) > 0 {
					t.Errorf("the sink was opened %d times and got %d messages", n, len(sink.ids()))
				}
				close(known)
				time.Sleep(time.Minute)
				if len(sink.ids()) != 3 {
					t.Errorf("%d messages were delivered, want 3", len(sink.ids()))
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
