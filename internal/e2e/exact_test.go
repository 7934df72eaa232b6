package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

var deaths = flag.Int("deaths", 60, "how many relays die in TestRelaysThatDieBeforeSettlingDeliverOnce")

// idempotentTopic is a topic that must have each message exactly once.
type idempotentTopic struct{ *kafkaTopic }

func (k idempotentTopic) sink(from string) string {
	return k.kafkaTopic.sink(from) + "&idempotent=true"
}

func (k idempotentTopic) received() []arrival {
	all := k.kafkaTopic.received()
	for i := range all {
		all[i].sink = "kafka, idempotent"
	}
	return all
}

// Many relays that write to a real broker die, most of them between the broker's answer
// and the settlement. With each death all leases expire, so relays also take over
// lanes from relays that are alive and haven't noticed the expiry yet. Each message is in the
// topic once, in the order of its key.
//
// The table is in memory, because this test is about the broker and such a death takes no
// time. TestKillsAndCutsLoseNothing kills real processes.
func TestRelaysThatDieBeforeSettlingDeliverOnce(t *testing.T) {
	t.Parallel()
	h := newHospital(t)
	count := *deaths
	if *long {
		count = max(count, 3000)
	}
	h.live(count)
	h.recover()
	v := judge(t, h.topic.received())
	if v.distinct != h.written || len(v.duplicates) > 0 {
		t.Errorf("%d messages were written, %d arrived, %d of them twice", h.written, v.distinct, len(v.duplicates))
	}
	t.Logf("%d messages, %d deaths (%d between the broker's answer and the settlement), %d duplicates", h.written, h.died.Load(), h.unmarked.Load(), len(v.duplicates))
}

// hospital has a table and a topic, and runs the relays that die.
type hospital struct {
	t       *testing.T
	db      *memstore.DB
	topic   *kafkaTopic
	ahead   atomic.Int64 // how far the table's clock is ahead of the real time
	mu      sync.Mutex
	random  *rand.Rand
	written int

	died, unmarked atomic.Int64
	ends           sync.WaitGroup // waits for the runs of relays that count as dead and haven't noticed it
}

func newHospital(t *testing.T) *hospital {
	h := &hospital{t: t, db: memstore.New(), topic: newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA"), 1), random: rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))}
	h.db.Now = func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }
	return h
}

const hospitalLease = 2 * time.Second

// live runs relays that die, some of them concurrently.
func (h *hospital) live(deaths int) {
	var slots sync.WaitGroup
	for range 3 {
		slots.Go(func() {
			for h.died.Load() < int64(deaths) {
				h.write(1 + h.pick(60))
				h.oneLife()
			}
		})
	}
	slots.Wait()
	h.ends.Wait()
}

// write commits n orders of 20 customers.
func (h *hospital) write(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tx := h.db.Begin()
	for range n {
		h.written++
		customer := h.random.IntN(20)
		tx.Insert(outbox.Message{
			Topic: "orders", Key: fmt.Sprint("customer-", customer),
			Payload: fmt.Appendf(nil, `{"customer":%d,"number":%d}`, customer, h.written),
		})
	}
	tx.Commit()
}

func (h *hospital) pick(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

var errDied = errors.New("the process is dead")

// oneLife runs a relay that dies before a settlement, after one, or at a random time.
func (h *hospital) oneLife() {
	dead := make(chan struct{})
	die := sync.OnceFunc(func() { h.died.Add(1); close(dead) })
	settlements, store := int64(1+h.pick(3)), h.db.Store()
	before := h.pick(3) > 0
	at := func(op relayOp, here bool) error {
		if here && op == memstore.OpSettle && atomic.AddInt64(&settlements, -1) == 0 {
			if before {
				h.unmarked.Add(1)
			}
			die()
		}
		select {
		case <-dead:
			return errDied
		default:
			return nil
		}
	}
	store.Hooks = memstore.Hooks{
		Fail: func(_ context.Context, op memstore.Op) error { return at(op, before) },
		Lose: func(_ context.Context, op memstore.Op) error { return at(op, !before) },
	}
	r := h.relay(store)
	h.ends.Go(func() { _ = r.Run(h.t.Context()) })
	select {
	case <-dead:
	case <-time.After(time.Duration(h.pick(1000)) * time.Millisecond):
		die()
	}
	h.ends.Go(func() { // the sends of a dead relay continue for at most 300 ms
		<-time.After(time.Duration(h.pick(300)) * time.Millisecond)
		r.Abort()
	})
	h.ahead.Add(int64(hospitalLease))
}

type relayOp = memstore.Op

func (h *hospital) relay(store storage.Store) *relay.Relay {
	sink, err := kafka.NewIdempotent(kafka.Options{Brokers: strings.Split(h.topic.brokers, ","), Topic: h.topic.name})
	check(h.t, err)
	r, err := relay.New(store, relay.Options{
		Lease: hospitalLease, Poll: 5 * time.Millisecond, DrainTimeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]relay.SinkOptions{"kafka": {Sink: sink, Batch: 1 + h.pick(40), BreakerBackoff: relay.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}}},
	})
	check(h.t, err)
	return r
}

// recover runs a relay that doesn't die and delivers the remaining messages.
func (h *hospital) recover() {
	h.ahead.Add(int64(time.Hour)) // from now on the dead relays no longer count as alive
	ctx, cancel := context.WithTimeout(h.t.Context(), patience())
	defer cancel()
	store := h.db.Store()
	done := make(chan error, 1)
	r := h.relay(store)
	go func() { done <- r.Run(ctx) }()
	for ctx.Err() == nil {
		status, err := store.Status(ctx)
		check(h.t, err)
		if status.Counts[storage.StateDone] == int64(h.written) {
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		h.t.Error(err)
	}
}
