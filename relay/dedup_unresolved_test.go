package relay_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// shelf is the destination of deduplicating sinks. It stores each batch only once.
type shelf struct {
	batches map[string]bool
	counts  map[int64]int
}

// shelving is one relay's sink for a shelf.
type shelving struct {
	*shelf
	name  string
	plans int
}

func (s *shelving) Open(context.Context) error  { return nil }
func (s *shelving) Close(context.Context) error { return nil }

func (s *shelving) Plan(_ context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	s.plans++
	batchRefs := make([]sinks.BatchRef, len(batch))
	for i := range batchRefs {
		batchRefs[i] = sinks.BatchRef{Batch: fmt.Sprint(s.name, s.plans), Size: len(batch), Place: i}
	}
	return batchRefs, nil
}

func (s *shelving) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	fresh := map[string]bool{}
	for _, m := range batch {
		if !s.batches[m.BatchRef.Batch] || fresh[m.BatchRef.Batch] {
			s.batches[m.BatchRef.Batch], fresh[m.BatchRef.Batch] = true, true
			s.counts[m.Sequence]++
		}
	}
	return sinks.All(len(batch), sinks.Ok(""))
}

// If several relays die, each before it has stored a batch's outcomes, the messages of the batch are not parked, since they
// are not the cause.
func TestCrashesWithAnUnresolvedBatchParkNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, behind := memstore.New(), &shelf{map[string]bool{}, map[int64]int{}}
		for i := range 40 {
			write(db, "orders", fmt.Sprint("k", i%7), 1)
		}
		for n := range 12 {
			store, dead := db.Store(), make(chan struct{})
			if n < 11 {
				dieAt(store, memstore.OpSettle, dead)
			}
			name := fmt.Sprint("relay-", n)
			r, err := relay.New(store, relay.Options{Name: name, Lease: 3 * time.Second, DrainTimeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
				Sinks: map[string]relay.SinkOptions{"main": {Sink: &shelving{behind, name, 0}, Batch: 10}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			go func() {
				select {
				case <-dead:
					r.Abort()
				case <-ctx.Done():
				}
			}()
			_ = r.Run(ctx)
			cancel()
			time.Sleep(5 * time.Second)
		}
		if counts := statusOf(t, db); counts[storage.StateDone] != 40 {
			t.Errorf("at the end: %v, want 40 done", counts)
		}
		for id, n := range behind.counts {
			if n != 1 {
				t.Errorf("the destination has message %d %d times", id, n)
			}
		}
	})
}

// dieAt makes a relay's process die before its first call of this kind.
func dieAt(store *memstore.Store, where memstore.Op, dead chan struct{}) {
	die := sync.OnceFunc(func() { close(dead) })
	fail := func(_ context.Context, op memstore.Op) error {
		if op == where {
			die()
		}
		select {
		case <-dead:
			return errDead
		default:
			return nil
		}
	}
	store.Hooks = memstore.Hooks{Fail: fail, Lose: fail}
}

// If the id of a row in a batch was assigned again, the new row is not part of the batch. Otherwise a sink that has the batch
// would report the new row as delivered.
func TestBatchRefIdentifiesItsMessage(t *testing.T) {
	t.Parallel()
	for name, ofRow := range map[string]bool{"the row's": true, "another's": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, behind := memstore.New(), &shelf{map[string]bool{"before": true}, map[int64]int{}}
				m := outbox.Message{ID: outbox.NewID(), Topic: "orders", Key: "k"}
				id := db.Write(m)[0]
				check := crc32.ChecksumIEEE([]byte(m.ID))
				if !ofRow {
					check++
				}
				dieWithBatchRef(t, db, storage.SentBatch{Sink: "main", Batch: "before", Size: 1, IDs: []int64{id}, Places: []int{0}, Checks: []uint32{check}})
				_, stop := start(t, db.Store(), relay.Options{Sinks: to(&shelving{behind, "after", 0})})
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if sent := behind.counts[id] == 1; sent == ofRow {
					t.Errorf("the row was sent outside the batch: %t", sent)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 1 {
					t.Errorf("at the end: %v", counts)
				}
			})
		})
	}
}

// dieWithBatchRef leases all lanes, and leaves a reference to the batch in the journal of each lane.
func dieWithBatchRef(t *testing.T, db *memstore.DB, batchRef storage.SentBatch) {
	t.Helper()
	store := db.Store()
	grants, err := store.Acquire(t.Context(), "dead", storage.Lanes, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var journals []storage.Journal
	for _, g := range grants {
		journals = append(journals, storage.Journal{Lease: g.Lease, Batches: []storage.SentBatch{batchRef}})
	}
	if _, err := store.WriteJournal(t.Context(), "dead", journals); err != nil {
		t.Fatal(err)
	}
}
