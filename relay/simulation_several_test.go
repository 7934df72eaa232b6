package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// TestSimulationOfSeveralSinks has topics with several sinks, and topics with only one of these sinks. Each sink receives all
// of its messages, in order per key, whatever the outcomes at other sinks are. Some histories have parked messages that hold
// their keys.
func TestSimulationOfSeveralSinks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*simulations) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateCourse(t, seed+1, nil, func(c *course) {
				several(c)
				c.holds = seed%3 == 1
			})
		})
	}
}

// TestSimulationOfSeveralSinksAndLostSeconds is like TestSimulationOfSeveralSinks, but the server also loses its last second
// from time to time.
func TestSimulationOfSeveralSinksAndLostSeconds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*simulations) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateCourse(t, seed+1, nil, func(c *course) {
				several(c)
				c.loses = time.Minute
			})
		})
	}
}

// several routes some messages to several sinks, and makes sinks faster, since each receives more messages.
func several(c *course) {
	c.several, c.call, c.rest = true, c.call/2, 2*c.rest
}

// TestSimulationFindsBrokenParts shows that these histories can fail: each of these stores breaks one rule for rows that
// several sinks need.
func TestSimulationFindsBrokenParts(t *testing.T) {
	t.Parallel()
	onlyMutants(t)
	changed := func(change func(*storage.Settlement)) func(storage.Store) storage.Store {
		return func(s storage.Store) storage.Store { return changesSettlements{s, s.(storage.Journaler), change} }
	}
	for name, m := range map[string]struct {
		wrap func(storage.Store) storage.Store
		want string // a problem that the mutant causes
	}{
		"a delivery to one sink is done for all": {changed(func(s *storage.Settlement) { s.For, s.Left = "", "" }), unsent},
		"a retry is for all sinks":               {changed(func(s *storage.Settlement) { s.For = orOf(s.For, "a,b") }), "two rows for sink"},
		"a row's sinks stay as they are":         {changed(func(s *storage.Settlement) { s.Left = orOf(s.Left, "a,b") }), "ended as"},
		"a page doesn't have the sinks of a row": {func(s storage.Store) storage.Store { return tellsNoSinks{s, s.(storage.Journaler)} }, "came twice"},
		"deliveries to some sinks are late":      {func(s storage.Store) storage.Store { return &writesLate{Store: s, Journaler: s.(storage.Journaler)} }, "the last message that arrived"},
		"a retry blocks its key for no sink":     {func(s storage.Store) storage.Store { return holdsElsewhere{s, s.(storage.Journaler)} }, overtaken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				problems := simulateCourse(t, seed, m.wrap, several)
				if slices.ContainsFunc(problems, func(problem string) bool { return strings.Contains(problem, m.want) }) {
					return
				}
			}
			t.Error("no history detected this store")
		})
	}
}

// orOf returns `others` if `some` isn't empty, and otherwise the empty text.
func orOf(some, others string) string {
	if some == "" {
		return ""
	}
	return others
}

// changesSettlements is a store that changes each settlement before it is written.
type changesSettlements struct {
	storage.Store
	storage.Journaler
	change func(*storage.Settlement)
}

func (s changesSettlements) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	settlements = slices.Clone(settlements)
	for i := range settlements {
		s.change(&settlements[i])
	}
	return s.Store.Settle(ctx, name, keep, settlements)
}

// writesLate writes a delivery to some of a message's sinks only with the next call of Settle.
type writesLate struct {
	storage.Store
	storage.Journaler
	mu   sync.Mutex
	late []storage.Settlement
}

func (s *writesLate) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	s.mu.Lock()
	now, late := s.late, []storage.Settlement(nil)
	for _, settlement := range settlements {
		if settlement.Left != "" && settlement.State == storage.StateDone {
			late = append(late, settlement)
		} else {
			now = append(now, settlement)
		}
	}
	s.late = late
	s.mu.Unlock()
	counts, err := s.Store.Settle(ctx, name, keep, now)
	counts.Changed += len(settlements) - len(now)
	return counts, err
}

// tellsNoSinks returns rows as if all sinks needed them.
type tellsNoSinks struct {
	storage.Store
	storage.Journaler
}

func (s tellsNoSinks) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	for i := range page.Rows {
		page.Rows[i].Sinks = ""
	}
	return page, err
}

// holdsElsewhere returns blocked keys as if they belonged to a sink that doesn't exist.
type holdsElsewhere struct {
	storage.Store
	storage.Journaler
}

func (s holdsElsewhere) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	keys, err := s.Store.BlockedKeys(ctx, lanes, limit)
	return elsewhere(keys), err
}

func (s holdsElsewhere) BlockedAmong(ctx context.Context, among []storage.LaneKey) ([]storage.BlockedKey, error) {
	keys, err := s.Store.BlockedAmong(ctx, among)
	return elsewhere(keys), err
}

func elsewhere(keys []storage.BlockedKey) []storage.BlockedKey {
	for i := range keys {
		if keys[i].Sinks != "" {
			keys[i].Sinks = "elsewhere"
		}
	}
	return keys
}
