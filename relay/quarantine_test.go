package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// mortal is a sink in a simulated process that dies when the sink gets a certain message, or when the test kills it. A dead
// process returns no answers and writes nothing.
type mortal struct {
	recorder
	poison int64
	dead   chan struct{}
	once   sync.Once
}

func (m *mortal) die() { m.once.Do(func() { close(m.dead) }) }

func (m *mortal) isDead() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

func (m *mortal) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	for _, message := range batch {
		if message.Sequence == m.poison {
			m.die()
		}
		if m.isDead() {
			return nil
		}
	}
	return m.recorder.Send(ctx, batch)
}

// live runs a relay until its process dies or the given time has passed.
func live(t *testing.T, db *memstore.DB, name string, sink sinks.Sink, m *mortal, life time.Duration) {
	t.Helper()
	store := db.Store()
	fail := func(context.Context, memstore.Op) error {
		if m.isDead() {
			return errDead
		}
		return nil
	}
	store.Hooks = memstore.Hooks{Fail: fail, Lose: fail}
	r, err := relay.New(store, relay.Options{Name: name, Lease: 3 * time.Second, DrainTimeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 10, Workers: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), life)
	defer cancel()
	go func() {
		select {
		case <-m.dead:
			r.Abort()
		case <-ctx.Done():
		}
	}()
	r.Run(ctx)
}

func TestMessageThatKillsItsRelayIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		for i := range 300 {
			write(db, "orders", fmt.Sprint("k", i%30), 1)
		}
		delivered := map[int64]bool{}
		for n := range 30 {
			m := &mortal{poison: 42, dead: make(chan struct{})}
			live(t, db, fmt.Sprint("relay-", n), m, m, 30*time.Second)
			for _, id := range m.ids() {
				delivered[id] = true
			}
			time.Sleep(5 * time.Second)
		}
		parked, err := db.Store().List(t.Context(), storage.Filter{State: storage.StateError})
		if err != nil || len(parked) != 1 || parked[0].ID != 42 {
			t.Fatalf("parked: %d messages, %v; want only message 42", len(parked), err)
		}
		if p := parked[0]; !strings.HasPrefix(p.LastError, "crash: ") || p.Crashes != 5 {
			t.Errorf("parked with %q after %d crashes", p.LastError, p.Crashes)
		}
		if len(delivered) != 299 {
			t.Errorf("%d other messages were delivered, want 299", len(delivered))
		}
	})
}

// exactlyMortal is a mortal sink that is deduplicating: an unresolved batch is sent again as a whole, including the message
// that kills the process.
type exactlyMortal struct {
	*mortal
	name  string
	plans int
}

func (m *exactlyMortal) Plan(_ context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	m.plans++
	batchRefs := make([]sinks.BatchRef, len(batch))
	for i := range batchRefs {
		batchRefs[i] = sinks.BatchRef{Batch: fmt.Sprint(m.name, m.plans), Size: len(batch), Place: i}
	}
	return batchRefs, nil
}

// With a deduplicating sink, a message can kill each relay that sends its unresolved batch again. When the sink is no longer
// deduplicating, the message is parked like any other message that crashes relays.
func TestCrashingMessageIsParkedWithoutIdempotence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		for i := range 300 {
			write(db, "orders", fmt.Sprint("k", i%30), 1)
		}
		for n := range 40 {
			m := &mortal{poison: 42, dead: make(chan struct{})}
			name := fmt.Sprint("relay-", n)
			if n < 10 {
				live(t, db, name, &exactlyMortal{mortal: m, name: name}, m, 30*time.Second)
				if !m.isDead() {
					t.Errorf("relay %s survived sending the message that kills its process", name)
				}
			} else {
				live(t, db, name, m, m, 30*time.Second)
			}
			time.Sleep(5 * time.Second)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 299 || counts[storage.StateError] != 1 {
			t.Errorf("at the end: %v, want 299 done and one parked", counts)
		}
	})
}

func TestRelaysThatAreKilledParkNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		for i := range 3000 {
			write(db, "orders", fmt.Sprint("k", i%30), 1)
		}
		for n := range 60 {
			m := &mortal{dead: make(chan struct{}), recorder: recorder{delay: 20 * time.Millisecond}}
			time.AfterFunc(time.Duration(3000+n*7)*time.Millisecond, m.die)
			live(t, db, fmt.Sprint("relay-", n), m, m, time.Hour)
		}
		m := &mortal{dead: make(chan struct{})}
		live(t, db, "last", m, m, 2*time.Minute)
		if counts := statusOf(t, db); counts[storage.StateDone] != 3000 {
			t.Errorf("at the end: %v, want 3000 done", counts)
		}
	})
}

// A relay that has taken over a dead relay's lanes and can't write journals sends nothing, and is unhealthy until it can write
// them.
func TestFailingJournalIsUnhealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, killed := memstore.New(), &mortal{poison: 1, dead: make(chan struct{})}
		write(db, "orders", "k", 3)
		live(t, db, "killed", killed, killed, time.Second)
		store, full := db.Store(), atomic.Bool{}
		full.Store(true)
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpJournal && full.Load() {
				return errors.New("violates check constraint")
			}
			return nil
		}
		sink := &recorder{}
		r, stop := start(t, store, relay.Options{Sinks: to(sink), Lease: 15 * time.Second})
		time.Sleep(35 * time.Second) // more than the dead relay's lease and another lease
		if err := r.Healthy(); err == nil || !strings.Contains(err.Error(), "violates check constraint") || len(sink.ids()) > 0 {
			t.Errorf("for a relay that can't write its journals, Healthy returned %v; it has sent %v", err, sink.ids())
		}
		full.Store(false)
		time.Sleep(time.Second)
		if err := r.Healthy(); err != nil || len(sink.ids()) != 3 {
			t.Errorf("after journals could be written, Healthy returned %v; the relay has sent %v", err, sink.ids())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
