package relay_test

import (
	"context"
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

// counting counts what a relay asks of its store.
type counting struct {
	*memstore.Store
	reads, settles, rows atomic.Int64
}

func (c *counting) Read(ctx context.Context, positions []storage.Position, limit, maxBytes int) (storage.Page, error) {
	c.reads.Add(1)
	return c.Store.Read(ctx, positions, limit, maxBytes)
}

func (c *counting) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	c.settles.Add(1)
	c.rows.Add(int64(len(settlements)))
	return c.Store.Settle(ctx, name, keep, settlements)
}

// Messages that come one by one, with a wake each, are sent soon, but cost few
// reads and settlements.
func TestFewReadsAndSettlementsForManyWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count, interval = 1000, time.Millisecond / 2
		var latest time.Duration
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			written, err := time.Parse(time.RFC3339Nano, string(m.Payload))
			if err != nil {
				t.Error(err)
			}
			latest = max(latest, time.Since(written))
			return sinks.Ok("")
		}}
		db := memstore.New()
		store := &counting{Store: db.Store()}
		r, stop := start(t, store, relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Workers: 1}}})
		time.Sleep(10 * time.Second)
		reads, settles := store.reads.Load(), store.settles.Load()
		for n := range count {
			db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("k", n%50), Payload: []byte(time.Now().Format(time.RFC3339Nano))})
			r.Wake()
			time.Sleep(interval)
		}
		reads, settles = store.reads.Load()-reads, store.settles.Load()-settles
		synctest.Wait()
		took := count * interval
		if most := int64(took/(2*time.Millisecond)) + 10; reads > most {
			t.Errorf("%d reads for %d wakes in %v, want at most %d", reads, count, took, most)
		}
		if most := 2*int64(took/(40*time.Millisecond)) + 2*count/64 + 10; settles > most {
			t.Errorf("%d settlements for %d messages in %v, want at most %d", settles, count, took, most)
		}
		time.Sleep(50 * time.Millisecond)
		if rows := store.rows.Load(); rows != count {
			t.Errorf("%d of %d messages were written back soon after the last one", rows, count)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if latest > 5*time.Millisecond {
			t.Errorf("a message was sent %v after it had been written", latest)
		}
	})
}

// What waits to be written back is written when the relay stops, and a message
// that is parked doesn't wait.
func TestLingeringEndsSoon(t *testing.T) {
	for name, ends := range map[string]func(t *testing.T, db *memstore.DB, r *relay.Relay, stop func() error){
		"stop": func(t *testing.T, _ *memstore.DB, _ *relay.Relay, stop func() error) {
			if err := stop(); err != nil {
				t.Error(err)
			}
		},
		"a parked message": func(t *testing.T, db *memstore.DB, r *relay.Relay, _ func() error) {
			for n := range 50 { // in both settlers' lanes
				db.Write(outbox.Message{Topic: "reject", Key: fmt.Sprint("r", n)})
			}
			r.Wake()
			time.Sleep(2 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
					if m.Topic == "reject" {
						return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "no")
					}
					return sinks.Ok("")
				}}
				db := memstore.New()
				store := &counting{Store: db.Store()}
				r, stop := start(t, store, relay.Options{Sinks: to(sink)})
				stop = sync.OnceValue(stop)
				defer stop()
				time.Sleep(10 * time.Second)
				for n := range 50 {
					db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("k", n)})
					r.Wake()
					time.Sleep(time.Millisecond / 10)
				}
				time.Sleep(3 * time.Millisecond)
				if sent, written := len(sink.ids()), store.rows.Load(); sent != 50 || written >= 50 {
					t.Fatalf("%d sent, %d written back: nothing waits", sent, written)
				}
				began := time.Now()
				ends(t, db, r, stop)
				synctest.Wait()
				if written := store.rows.Load(); written < 50 || time.Since(began) > 5*time.Millisecond {
					t.Errorf("%d of 50 were written back after %v", written, time.Since(began))
				}
			})
		})
	}
}
