package storetest

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Each of these stores replaces one method by a function. A mutant is such a store with a function
// that has a mistake.

type onAcquire struct {
	Store
	acquire func(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error)
}

func (s onAcquire) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
	return s.acquire(ctx, name, count, ttl)
}

type onRenew struct {
	Store
	renew func(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) ([]storage.Lease, error)
}

func (s onRenew) Renew(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
	return s.renew(ctx, name, renewals, ttl)
}

type onRelease struct {
	Store
	release func(ctx context.Context, name string, renewals []storage.Renewal) error
}

func (s onRelease) Release(ctx context.Context, name string, renewals []storage.Renewal) error {
	return s.release(ctx, name, renewals)
}

type onSettle struct {
	Store
	settle func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error)
}

func (s onSettle) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	return s.settle(ctx, name, keep, settlements)
}

type onRead struct {
	Store
	read func(ctx context.Context, request storage.ReadRequest) (storage.Page, error)
}

func (s onRead) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	return s.read(ctx, request)
}

type onScan struct {
	Store
	scan func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error)
}

func (s onScan) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	return s.scan(ctx, positions, except, keep)
}

type onDue struct {
	Store
	due func(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error)
}

func (s onDue) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
	return s.due(ctx, lanes, after, limit, maxBytes)
}

type onHeldKeys struct {
	Store
	heldKeys func(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error)
}

func (s onHeldKeys) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	return s.heldKeys(ctx, lanes, limit)
}

type onHeldAmong struct {
	Store
	heldAmong func(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error)
}

func (s onHeldAmong) BlockedAmong(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
	return s.heldAmong(ctx, keys)
}

type onClaim struct {
	Store
	claim func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error)
}

func (s onClaim) Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
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
	list func(ctx context.Context, filter storage.Filter) ([]storage.Info, error)
}

func (s onList) List(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
	return s.list(ctx, filter)
}

type onRequeue struct {
	Store
	requeue func(ctx context.Context, filter storage.Filter) (int, error)
}

func (s onRequeue) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	return s.requeue(ctx, filter)
}

type onSkip struct {
	Store
	skip func(ctx context.Context, filter storage.Filter) (int, error)
}

func (s onSkip) Skip(ctx context.Context, filter storage.Filter) (int, error) {
	return s.skip(ctx, filter)
}

type onDiscard struct {
	Store
	discard func(ctx context.Context, filter storage.Filter) (int, error)
}

func (s onDiscard) Discard(ctx context.Context, filter storage.Filter) (int, error) {
	return s.discard(ctx, filter)
}

type onStatus struct {
	Store
	status func(ctx context.Context) (storage.Status, error)
}

func (s onStatus) Status(ctx context.Context) (storage.Status, error) { return s.status(ctx) }

type onBeat struct {
	Store
	beat func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error)
}

func (s onBeat) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
	return s.beat(ctx, self, ttl)
}

type onAdopt struct {
	Store
	adopt func(ctx context.Context, claim storage.Claim) error
}

func (s onAdopt) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return s.adopt(ctx, claim)
}

type onPurge struct {
	Store
	purge func(ctx context.Context, retention time.Duration, limit int) (int, error)
}

func (s onPurge) Purge(ctx context.Context, retention time.Duration, limit int) (int, error) {
	return s.purge(ctx, retention, limit)
}

// onPick changes what Pick returns. Its other journal methods are the store's.
type onPick struct {
	Store
	pick func([]storage.Row) []storage.Row
}

type badPick struct {
	storage.Journaler
	pick func([]storage.Row) []storage.Row
}

func (j badPick) Pick(ctx context.Context, wanted []storage.RowID) ([]storage.Row, error) {
	rows, err := j.Journaler.Pick(ctx, wanted)
	return j.pick(rows), err
}
