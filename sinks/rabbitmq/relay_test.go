package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// TestRelayWaitsForAFailingQueue: a full queue nacks all messages. The relay parks
// none, and delivers all of them when the queue has room again.
func TestRelayWaitsForAFailingQueue(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	queue, end := fullQueue(t, b)
	db, watch := memstore.New(), &watch{told: make(chan string, 100), tried: make(chan struct{}, 1000)}
	for i := range 200 {
		db.Write(outbox.Message{Topic: queue, Key: fmt.Sprint("k", i)})
	}
	store, ctx, stop := relaying(t, b, db, watch, relay.SinkOptions{MaxAttempts: 2})
	t.Log(<-watch.told)
	for range 3 {
		<-watch.tried
	}
	if counts := countsOf(t, store); counts[storage.StateError]+counts[storage.StateDone] > 0 {
		t.Errorf("while the queue is full: %v", counts)
	}
	end()
	for countsOf(t, store)[storage.StateDone] < 200 && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
	}
	if counts := countsOf(t, store); counts[storage.StateDone] != 200 {
		t.Errorf("afterwards: %v, want 200 done", counts)
	}
	stop()
}

// TestFirstMessagesForAFullQueue: the first messages of a new relay all go to a full queue, so that the sink is unavailable. The relay
// delivers messages that are written later for another queue.
func TestFirstMessagesForAFullQueue(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	full, _ := fullQueue(t, b)
	healthy := b.client(t).queue("classic", nil)
	db, watch := memstore.New(), &watch{told: make(chan string, 100), tried: make(chan struct{}, 1000)}
	write := func(queue string) {
		for i := range 20 {
			db.Write(outbox.Message{Topic: queue, Key: fmt.Sprint(queue, i)})
		}
	}
	write(full)
	store, ctx, stop := relaying(t, b, db, watch, relay.SinkOptions{Batch: 5})
	t.Log(<-watch.told)
	write(healthy)
	for countsOf(t, store)[storage.StateDone] < 20 && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
	}
	if counts := countsOf(t, store); counts[storage.StateDone] != 20 || counts[storage.StateError] > 0 {
		t.Errorf("%v, want 20 done: the messages for the other queue", counts)
	}
	stop()
}

// relaying runs a relay with short back-offs. It publishes each message to the queue named by its topic. stop waits until the relay has stopped.
func relaying(t *testing.T, b *broker, db *memstore.DB, watch relay.Observer, to relay.SinkOptions) (store *memstore.Store, ctx context.Context, stop func()) {
	options := b.options()
	options.RoutingKey = "{topic}"
	sink, err := rabbitmq.New(options)
	if err != nil {
		t.Fatal(err)
	}
	to.Sink, to.Timeout, to.BreakerBackoff = sink, 3*time.Second, relay.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	store = db.Store()
	r, err := relay.New(store, relay.Options{Logger: slog.New(slog.DiscardHandler), Observer: watch, Sinks: map[string]relay.SinkOptions{"main": to}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return store, ctx, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// fullQueue creates a full queue that nacks all messages. end replaces it with an unlimited queue.
func fullQueue(t *testing.T, b *broker) (queue string, end func()) {
	c := b.client(t)
	queue = c.queue("classic", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	if err := c.Publish("", queue, false, false, amqp.Publishing{Body: []byte("full")}); err != nil {
		t.Fatal(err)
	}
	for {
		q, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Messages == 1 {
			break
		}
	}
	return queue, func() {
		if _, err := c.QueueDelete(queue, false, false, false); err != nil {
			t.Error(err)
		}
		if _, err := c.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
			t.Error(err)
		}
	}
}

// watch observes a relay.
type watch struct {
	relay.NoObserver
	told  chan string   // gets the reason whenever the sink becomes unavailable
	tried chan struct{} // gets a value for each Send
}

func (w *watch) SinkDown(_ string, reason sinks.Reason, detail string) {
	w.told <- string(reason) + ": " + detail
}

func (w *watch) Sent(string, time.Duration, map[relay.OutcomeKind]int) {
	select {
	case w.tried <- struct{}{}:
	default:
	}
}

func countsOf(t *testing.T, store storage.Operator) map[storage.State]int64 {
	t.Helper()
	status, err := store.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status.Counts
}
