package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// TestFirstMessagesForAFullQueue: a relay that has just begun finds the sink unavailable, as its first messages all go to a queue that
// takes nothing. Those that are written later, for another queue, are delivered.
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
	options := b.options()
	options.RoutingKey = "{topic}"
	sink, err := rabbitmq.New(options)
	if err != nil {
		t.Fatal(err)
	}
	store := db.Store()
	r, err := relay.New(store, relay.Options{Logger: slog.New(slog.DiscardHandler), Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {
		Sink: sink, Batch: 5, Timeout: 3 * time.Second, BreakerBackoff: relay.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Log(<-watch.told)
	write(healthy)
	for countsOf(t, store)[storage.StateDone] < 20 && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
	}
	if counts := countsOf(t, store); counts[storage.StateDone] != 20 || counts[storage.StateError] > 0 {
		t.Errorf("%v, want those of the other queue done", counts)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
