package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// halves is a destination with two partitions. One is for the keys that begin with "d". While that partition's state is
// unknown, it accepts nothing, and its batches stay unresolved.
type halves struct {
	mu      sync.Mutex
	batches map[string]bool
	got     map[string][]int64 // by key
	doubt   bool
	opens   int
}

// halvesOf is one relay's sink for a destination of the type halves.
type halvesOf struct {
	*halves
	name  string
	plans int
}

func (s *halvesOf) Open(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens++
	return nil
}

func (s *halvesOf) Close(context.Context) error { return nil }
func (s *halvesOf) Order() sinks.Order          { return sinks.OrderPrefix }

func (s *halvesOf) Plan(_ context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans++
	batchRefs, sizes := make([]sinks.BatchRef, len(batch)), map[bool]int{}
	for i, m := range batch {
		p := strings.HasPrefix(m.Key, "d")
		batchRefs[i] = sinks.BatchRef{Batch: fmt.Sprint(s.name, s.plans, p), Place: sizes[p]}
		sizes[p]++
	}
	for i, m := range batch {
		batchRefs[i].Size = sizes[strings.HasPrefix(m.Key, "d")]
	}
	return batchRefs, nil
}

func (s *halvesOf) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes, fresh := make([]sinks.Outcome, len(batch)), map[string]bool{}
	for i, m := range batch {
		if s.doubt && strings.HasPrefix(m.Key, "d") {
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "no answer")
			continue
		}
		if name := m.BatchRef.Batch; !s.batches[name] || fresh[name] {
			s.batches[name], fresh[name] = true, true
			s.got[m.Key] = append(s.got[m.Key], m.Sequence)
		}
		outcomes[i] = sinks.Ok("")
	}
	return outcomes
}

// While a batch is unresolved, only its keys wait, both in the relay that sent it and in a relay that takes over its lanes.
// Later everything is delivered once and in order.
func TestUnresolvedBatchBlocksOnlyItsKeys(t *testing.T) {
	t.Parallel()
	for _, takeover := range []bool{false, true} {
		t.Run(fmt.Sprint("takeover ", takeover), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, behind := memstore.New(), &halves{batches: map[string]bool{}, got: map[string][]int64{}, doubt: true}
				add := func(n int) {
					for i := range n {
						write(db, "orders", fmt.Sprint("d", i%5), 1)
						write(db, "orders", fmt.Sprint("k", i%5), 1)
						write(db, "orders", []string{"", "k"}[i%2], 1)
					}
				}
				add(20)
				options := relay.Options{Name: "first", Lease: 3 * time.Second, Sinks: map[string]relay.SinkOptions{"main": {Sink: &halvesOf{behind, "first", 0}, Batch: 10}}}
				store, dead := db.Store(), make(chan struct{})
				store.Hooks = memstore.Hooks{Fail: func(context.Context, memstore.Op) error {
					select {
					case <-dead:
						return errDead
					default:
						return nil
					}
				}}
				_, stop := start(t, store, options)
				time.Sleep(time.Minute)
				if takeover {
					close(dead)
					_ = stop()
					options.Name, options.Sinks = "second", map[string]relay.SinkOptions{"main": {Sink: &halvesOf{behind, "second", 0}, Batch: 10}}
					_, stop = start(t, db.Store(), options)
				}
				add(20)
				time.Sleep(2 * time.Minute)
				if got := statusOf(t, db)[storage.StateDone]; got != 80 {
					t.Errorf("while the batch is unresolved, %d messages are done, want the 80 of the other partition", got)
				}
				behind.mu.Lock()
				if opens := behind.opens; opens > 4 {
					t.Errorf("while the batch was unresolved, the sink was opened %d times, as if it were unavailable", opens)
				}
				behind.doubt = false
				behind.mu.Unlock()
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if counts := statusOf(t, db); counts[storage.StateDone] != 120 {
					t.Errorf("at the end the states are %v, want 120 done", counts)
				}
				total := 0
				for key, got := range behind.got {
					total += len(got)
					if key != "" && !slices.IsSorted(got) {
						t.Errorf("key %s is out of order: %v", key, got)
					}
				}
				if total != 120 {
					t.Errorf("%d messages arrived, want 120", total)
				}
			})
		})
	}
}
