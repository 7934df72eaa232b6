package storetest

import (
	"context"
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

type onLastID struct{ Store }

func (onLastID) LastID(context.Context) (int64, error) { return 1, nil }

type onRead struct {
	Store
	read func(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error)
}

func (s onRead) Read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	return s.read(ctx, positions, limit, maxBytes)
}

type onScan struct {
	Store
	scan func(ctx context.Context, positions []relay.Position, except []string, keep func(relay.Candidate) bool) ([]relay.Row, []relay.Position, error)
}

func (s onScan) Scan(ctx context.Context, positions []relay.Position, except []string, keep func(relay.Candidate) bool) ([]relay.Row, []relay.Position, error) {
	return s.scan(ctx, positions, except, keep)
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
	heldKeys func(ctx context.Context, lanes []int, limit int) ([]relay.BlockedKey, error)
}

func (s onHeldKeys) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]relay.BlockedKey, error) {
	return s.heldKeys(ctx, lanes, limit)
}

type onHeldAmong struct {
	Store
	heldAmong func(ctx context.Context, keys []relay.LaneKey) ([]relay.BlockedKey, error)
}

func (s onHeldAmong) BlockedAmong(ctx context.Context, keys []relay.LaneKey) ([]relay.BlockedKey, error) {
	return s.heldAmong(ctx, keys)
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
	beat func(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Members, error)
}

func (s onBeat) Heartbeat(ctx context.Context, self relay.Identity, ttl time.Duration) (relay.Members, error) {
	return s.beat(ctx, self, ttl)
}

type onAdopt struct {
	Store
	adopt func(ctx context.Context, claim relay.Claim) error
}

func (s onAdopt) SetClaimMode(ctx context.Context, claim relay.Claim) error {
	return s.adopt(ctx, claim)
}

type onPurge struct {
	Store
	purge func(ctx context.Context, retention time.Duration, limit int) (int, error)
}

func (s onPurge) Purge(ctx context.Context, retention time.Duration, limit int) (int, error) {
	return s.purge(ctx, retention, limit)
}

// onPick changes what Pick returns, of the journals that are kept with the store.
type onPick struct {
	Store
	pick func([]relay.Row) []relay.Row
}

type badPick struct {
	relay.Journaler
	pick func([]relay.Row) []relay.Row
}

func (j badPick) Pick(ctx context.Context, wanted []relay.RowID) ([]relay.Row, error) {
	rows, err := j.Journaler.Pick(ctx, wanted)
	return j.pick(rows), err
}
