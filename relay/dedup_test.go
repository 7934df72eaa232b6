package relay_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// slowShelf is a destination that takes time for each batch. It counts the batches in flight.
type slowShelf struct {
	shelving
	mu          sync.Mutex
	under, most int
}

func (s *slowShelf) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
	return s.shelving.Send(ctx, batch)
}

// scribe is a store that counts the journals that are written for each batch. Its pages have the rows in the order of their
// ids, across lanes.
type scribe struct {
	storage.Store
	storage.Journaler
	most, writes int
}

func (s *scribe) WriteJournal(ctx context.Context, name string, journals []storage.Journal) ([]storage.Lease, error) {
	s.most, s.writes = max(s.most, len(journals)), s.writes+1
	return s.Journaler.WriteJournal(ctx, name, journals)
}

func (s *scribe) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	slices.SortFunc(page.Rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
	return page, err
}

// While a batch is in flight, the next one is planned, journalled and sent. Even if all 64 lanes have messages, each batch has
// messages of only a few lanes.
func TestPlannedBatchesOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, behind := memstore.New(), &shelf{map[string]bool{}, map[int64]int{}}
		for i := range 2000 {
			write(db, "orders", fmt.Sprint("k", i), 1)
		}
		store := db.Store()
		journals := &scribe{Store: store, Journaler: store}
		sink := &slowShelf{shelving: shelving{behind, "relay", 0}}
		r, err := relay.New(journals, relay.Options{Name: "relay", Drain: true, Logger: slog.New(slog.DiscardHandler),
			Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 100}}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sink.most != 2 || time.Since(began) > 15*time.Second {
			t.Errorf("%d batches were in flight at the same time, and it took %v: want 2, and half of 20 s", sink.most, time.Since(began))
		}
		if journals.most > 12 || journals.writes < 20 {
			t.Errorf("%d journals were written for one batch, in %d writes: want a few of the 64", journals.most, journals.writes)
		}
		if len(behind.counts) != 2000 {
			t.Errorf("the destination has %d messages, want 2000", len(behind.counts))
		}
	})
}
