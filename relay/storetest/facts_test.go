package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// facts records the table's leases, claims and locks, which a mutant can't query from the store.
type facts struct {
	mu     sync.Mutex
	owners map[int]string
	fences map[int]int64
	until  map[int]time.Time
	marks  map[int]storage.Marks
	tokens map[int64]string // of claimed rows

	table   memory           // the table of the correct store
	reader  Store            // one handle for all calls
	memory  []storage.Row    // the rows of the last page, for the mutant whose reads lag
	locks   map[int64]func() // the rows that the table's LockRow has locked
	waiting bool
}

func newFacts(table memory) *facts {
	return &facts{
		locks:  map[int64]func(){},
		owners: map[int]string{}, fences: map[int]int64{}, until: map[int]time.Time{},
		marks: map[int]storage.Marks{}, tokens: map[int64]string{},
		table: table, reader: table.DB.Store(),
	}
}

// fence returns the lane's current fence.
func (f *facts) fence(lane int) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fences[lane]
}

func (f *facts) owner(lane int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owners[lane]
}

func (f *facts) token(id int64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tokens[id]
}

func (f *facts) setWaiting(waiting bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = waiting
}

// lockedRows returns the number of rows that are locked.
func (f *facts) lockedRows() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locks)
}

func (f *facts) locked() bool { return f.lockedRows() > 0 }

// unlock releases all locks.
func (f *facts) unlock() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, unlock := range f.locks {
		unlock()
		delete(f.locks, id)
	}
}

// mutantTable is a table whose stores have a mistake. It records row locks in the facts.
type mutantTable struct {
	memory
	facts *facts
}

func (m mutantTable) LockRow(t testing.TB, id int64) (waiting func() bool, unlock func()) {
	wait, release := m.memory.LockRow(t, id)
	m.facts.lock(id, release)
	return func() bool { return wait() || m.facts.isWaiting() }, func() { m.facts.release(id) }
}

func (f *facts) lock(id int64, release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks[id] = release
}

func (f *facts) release(id int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if release := f.locks[id]; release != nil {
		release()
		delete(f.locks, id)
	}
}

func (f *facts) isWaiting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// observed returns a store that records the facts.
func (f *facts) observed(s Store) Store {
	s = onAcquire{s, f.acquire(s)}
	s = onRenew{s, f.renew(s)}
	return onClaim{s, f.claim(s)}
}

func (f *facts) acquire(s Store) func(context.Context, string, int, time.Duration) ([]storage.Grant, error) {
	return func(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
		grants, err := s.Acquire(ctx, name, count, ttl)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, g := range grants {
			f.owners[g.Lane], f.fences[g.Lane], f.until[g.Lane] = name, g.Fence, time.Now().Add(ttl)
		}
		return grants, err
	}
}

func (f *facts) renew(s Store) func(context.Context, string, []storage.Renewal, time.Duration) ([]storage.Lease, error) {
	return func(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
		held, err := s.Renew(ctx, name, renewals, ttl)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, lease := range held {
			f.until[lease.Lane] = time.Now().Add(ttl)
		}
		return held, err
	}
}

func (f *facts) claim(s Store) func(context.Context, storage.ClaimRequest) ([]storage.Row, error) {
	return func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
		rows, err := s.Claim(ctx, request)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, row := range rows {
			f.tokens[row.ID] = request.Token
		}
		return rows, err
	}
}
