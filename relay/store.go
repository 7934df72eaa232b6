package relay

import (
	"context"
	"errors"
	"time"
)

// Errors that a Store returns, to be matched with errors.Is.
var (
	// ErrOtherClaim means that the table is claimed the other way, and that a
	// relay which does so lives.
	ErrOtherClaim = errors.New("the table is claimed another way")

	// ErrNoSchema means that the tables are missing or of another version.
	ErrNoSchema = errors.New("the schema is missing or of another version")

	// ErrFenced means that a row is no longer this relay's to change.
	ErrFenced = errors.New("the lease is another's now")

	// ErrBusy means that the database refused for the moment (a deadlock, a
	// serialization failure, a locked file): nothing was changed, and the call
	// may be made again.
	ErrBusy = errors.New("the database is busy")
)

// Claim is a way to claim messages.
type Claim string

// The two ways to claim.
const (
	ByLanes Claim = "lanes" // lease lanes; order per key
	ByRows  Claim = "rows"  // claim batches of rows; no order
)

// Identity names a relay in the table of relays.
type Identity struct {
	Name    string // unique among living relays
	Host    string
	Version string
	Claim   Claim
}

// Census is who is alive.
type Census struct {
	Relays []string // names of the living relays, this one included, sorted

	// Epoch is that of the server which took the sign of life, as in [Page].
	Epoch string
}

// Store is the table, as the relay needs it. sqlstore implements it over
// database/sql; storetest is the suite that every Store passes.
//
// All methods may be called at the same time, save Read, Scan and Due, which
// one goroutine calls in turn. All times are by the database's clock. A method
// that fails has changed nothing, or, where the connection broke, an unknown
// amount: every call may be repeated.
type Store interface {
	// Adopt stores the way of claiming with the table, or checks it:
	// ErrOtherClaim if it is another and one of its relays lives.
	Adopt(ctx context.Context, claim Claim) error

	// Beat says that the relay lives for the next ttl, and who else does.
	Beat(ctx context.Context, self Identity, ttl time.Duration) (Census, error)

	// Leave takes the relay out of the table of relays.
	Leave(ctx context.Context, name string) error

	// Settle writes settlements back, in one transaction. By lanes: it first
	// locks the rows of their lanes against a takeover, and changes nothing in
	// lanes whose fence or owner is another: a failover may have taken back leases,
	// and their fences are given out again. With keep, done rows are kept. Once it has
	// returned, the settlements are the caller's to change.
	Settle(ctx context.Context, relay string, keep bool, settlements []Settlement) (Settled, error)

	// Purge deletes up to limit done rows that finished longer ago than
	// retention, and relays long dead, and says how many rows it deleted.
	Purge(ctx context.Context, retention time.Duration, limit int) (int, error)

	// AtOnce says how many calls one relay should have under way at once.
	AtOnce() AtOnce

	LaneStore
	RowStore
}

// AtOnce says how many calls of a kind a store gains by when they are under way at
// once, at least 1 each. Of settlements a relay has no more than 2.
type AtOnce struct{ Claims, Settles int }
