package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// These are stores that make one call in another way. A mistake is one of them
// with a function that makes the call wrongly.

type onAcquire struct {
	Store
	acquire func(ctx context.Context, name string, count int, ttl time.Duration) ([]relay.Grant, error)
}

func (s onAcquire) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]relay.Grant, error) {
	return s.acquire(ctx, name, count, ttl)
}

type onRenew struct {
	Store
	renew func(ctx context.Context, name string, renewals []relay.Renewal, ttl time.Duration) ([]relay.Lease, error)
}

func (s onRenew) Renew(ctx context.Context, name string, renewals []relay.Renewal, ttl time.Duration) ([]relay.Lease, error) {
	return s.renew(ctx, name, renewals, ttl)
}

type onRelease struct {
	Store
	release func(ctx context.Context, name string, renewals []relay.Renewal) error
}

func (s onRelease) Release(ctx context.Context, name string, renewals []relay.Renewal) error {
	return s.release(ctx, name, renewals)
}

type onSettle struct {
	Store
	settle func(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (relay.Settled, error)
}

func (s onSettle) Settle(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (relay.Settled, error) {
	return s.settle(ctx, name, keep, settlements)
}

type onRead struct {
	Store
	read func(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error)
}

func (s onRead) Read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	return s.read(ctx, positions, limit, maxBytes)
}

type onScan struct {
	Store
	scan func(ctx context.Context, positions []relay.Position, keep func(relay.Candidate) bool) ([]relay.Row, error)
}

func (s onScan) Scan(ctx context.Context, positions []relay.Position, keep func(relay.Candidate) bool) ([]relay.Row, error) {
	return s.scan(ctx, positions, keep)
}

type onDue struct {
	Store
	due func(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) ([]relay.Row, relay.DueCursor, error)
}

func (s onDue) Due(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) ([]relay.Row, relay.DueCursor, error) {
	return s.due(ctx, lanes, after, limit, maxBytes)
}

type onHeldKeys struct {
	Store
	heldKeys func(ctx context.Context, lanes []int, limit int) ([]relay.HeldKey, error)
}

func (s onHeldKeys) HeldKeys(ctx context.Context, lanes []int, limit int) ([]relay.HeldKey, error) {
	return s.heldKeys(ctx, lanes, limit)
}

type onClaim struct {
	Store
	claim func(ctx context.Context, request relay.ClaimRequest) ([]relay.Row, error)
}

func (s onClaim) Claim(ctx context.Context, request relay.ClaimRequest) ([]relay.Row, error) {
	return s.claim(ctx, request)
}

type onExtend struct {
	Store
	extend func(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error)
}

func (s onExtend) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
	return s.extend(ctx, token, ids, ttl)
}

type onReclaim struct {
	Store
	reclaim func(ctx context.Context, limit int) (int, error)
}

func (s onReclaim) Reclaim(ctx context.Context, limit int) (int, error) { return s.reclaim(ctx, limit) }

type onList struct {
	Store
	list func(ctx context.Context, filter relay.Filter) ([]relay.Info, error)
}

func (s onList) List(ctx context.Context, filter relay.Filter) ([]relay.Info, error) {
	return s.list(ctx, filter)
}

type onRequeue struct {
	Store
	requeue func(ctx context.Context, filter relay.Filter) (int, error)
}

func (s onRequeue) Requeue(ctx context.Context, filter relay.Filter) (int, error) {
	return s.requeue(ctx, filter)
}

type onDiscard struct {
	Store
	discard func(ctx context.Context, filter relay.Filter) (int, error)
}

func (s onDiscard) Discard(ctx context.Context, filter relay.Filter) (int, error) {
	return s.discard(ctx, filter)
}

type onStatus struct {
	Store
	status func(ctx context.Context) (relay.Status, error)
}

func (s onStatus) Status(ctx context.Context) (relay.Status, error) { return s.status(ctx) }

type onBeat struct {
	Store
	beat func(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error)
}

func (s onBeat) Beat(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Census, error) {
	return s.beat(ctx, self, ttl)
}

type onAdopt struct {
	Store
	adopt func(ctx context.Context, claim relay.Claim) error
}

func (s onAdopt) Adopt(ctx context.Context, claim relay.Claim) error { return s.adopt(ctx, claim) }

type onPurge struct {
	Store
	purge func(ctx context.Context, retention time.Duration, limit int) (int, error)
}

func (s onPurge) Purge(ctx context.Context, retention time.Duration, limit int) (int, error) {
	return s.purge(ctx, retention, limit)
}

// facts is what a mistaken store knows of its table beside what it asks for.
type facts struct {
	mu     sync.Mutex
	owners map[int]string
	fences map[int]int64
	until  map[int]time.Time
	marks  map[int]relay.Marks
	tokens map[int64]string // of claimed rows

	table   memory // the table behind it
	reader  Store  // one handle for all
	memory  []relay.Row
	locks   map[int64]func() // what the table's LockRow has locked
	waiting bool
}

func newFacts(table memory) *facts {
	return &facts{
		locks:  map[int64]func(){},
		owners: map[int]string{}, fences: map[int]int64{}, until: map[int]time.Time{},
		marks: map[int]relay.Marks{}, tokens: map[int64]string{},
		table: table, reader: table.DB.Store(),
	}
}

// fence is the lane's fence now.
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

// lockedRows counts the rows that are locked now.
func (f *facts) lockedRows() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locks)
}

func (f *facts) locked() bool { return f.lockedRows() > 0 }

// unlock takes all locks away.
func (f *facts) unlock() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, unlock := range f.locks {
		unlock()
		delete(f.locks, id)
	}
}

// mutantTable is a table whose stores have a mistake, and which tells them of
// its row locks.
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

// observed is a store that notes the facts.
func (f *facts) observed(s Store) Store {
	s = onAcquire{s, f.acquire(s)}
	s = onRenew{s, f.renew(s)}
	return onClaim{s, f.claim(s)}
}

func (f *facts) acquire(s Store) func(context.Context, string, int, time.Duration) ([]relay.Grant, error) {
	return func(ctx context.Context, name string, count int, ttl time.Duration) ([]relay.Grant, error) {
		grants, err := s.Acquire(ctx, name, count, ttl)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, g := range grants {
			f.owners[g.Lane], f.fences[g.Lane], f.until[g.Lane] = name, g.Fence, time.Now().Add(ttl)
		}
		return grants, err
	}
}

func (f *facts) renew(s Store) func(context.Context, string, []relay.Renewal, time.Duration) ([]relay.Lease, error) {
	return func(ctx context.Context, name string, renewals []relay.Renewal, ttl time.Duration) ([]relay.Lease, error) {
		held, err := s.Renew(ctx, name, renewals, ttl)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, lease := range held {
			f.until[lease.Lane] = time.Now().Add(ttl)
		}
		return held, err
	}
}

func (f *facts) claim(s Store) func(context.Context, relay.ClaimRequest) ([]relay.Row, error) {
	return func(ctx context.Context, request relay.ClaimRequest) ([]relay.Row, error) {
		rows, err := s.Claim(ctx, request)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, row := range rows {
			f.tokens[row.ID] = request.Token
		}
		return rows, err
	}
}
