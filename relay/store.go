package relay

import (
	"context"
	"errors"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
)

// Lanes is the number of classes that keys fall into. It is part of the
// table's contract: the table computes a row's lane from its key.
const Lanes = 64

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

// Row is a message as its table holds it.
type Row struct {
	ID      int64 // its place: ids grow in the order of insertion
	Lane    int   // 0 to Lanes-1
	Message outbox.Message

	// BadHeaders says why the stored headers couldn't be read; such a message
	// is parked. Empty if they could.
	BadHeaders string

	Attempts  int // deliveries charged so far
	Crashes   int // times that a relay died while it alone was in flight
	CreatedAt time.Time

	// Held: read from the held rows (scheduled or retry, now due), not from
	// the rows to be delivered now.
	Held bool

	// Retrying: a held row that waits for its next attempt, and so holds its key.
	Retrying bool

	// Later: its AvailableAt was still to come, by the database's clock, when
	// it was read.
	Later bool
}

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
}

// Lease is the right to one lane, as long as no higher fence was given out.
type Lease struct {
	Lane  int
	Fence int64
}

// Marks say from where a lane has to be read: every row of the lane with an id
// at or below the mark is finished, and none can appear there any more.
type Marks struct {
	// Routes is a fingerprint of the routes that the sinks' marks were made
	// with. Where it differs from the reader's own, only the lowest of all
	// marks holds.
	Routes string `json:"routes,omitempty"`

	// Main is the mark of every sink that has none of its own.
	Main int64 `json:"main"`

	// Sinks has the marks of the sinks that lag behind.
	Sinks map[string]int64 `json:"sinks,omitempty"`
}

// Grant is a lane that was newly leased.
type Grant struct {
	Lease
	Marks Marks

	// Crashes counts the holders in a row that lost the lane without releasing
	// it and without a quiet minute before; 0 after a release.
	Crashes int

	// Suspects are the messages of the lane that its last holder had written
	// down as being sent, if it didn't release the lane.
	Suspects []Suspect
}

// Suspect is a message that was being sent when its relay died: it may have
// brought the relay down.
type Suspect struct {
	ID      int64 `json:"id"`
	Crashes int   `json:"crashes,omitempty"` // relays that died before while it alone was being sent
	Alone   bool  `json:"alone,omitempty"`   // nothing else was being sent
}

// Journal is what is about to be sent of one lane.
type Journal struct {
	Lease
	Suspects []Suspect
}

// Journaler is implemented by a Store that can remember what is being sent, so
// that a message that brings its relays down is found and parked. A relay uses
// it only after a lane came from a relay that had died.
type Journaler interface {
	// WriteJournal replaces the journals of these lanes, and returns the leases
	// that still held. A release or a calm renewal clears the lane's journal.
	WriteJournal(ctx context.Context, relay string, journals []Journal) ([]Lease, error)
}

// Renewal extends a lease and stores the lane's marks.
type Renewal struct {
	Lease
	Marks Marks

	// Calm clears the lane's count of crashes.
	Calm bool
}

// HeldKey is a key whose next message waits for another attempt.
type HeldKey struct {
	Lane  int
	Key   string
	Topic string
	ID    int64
}

// Position is where reading one lane goes on.
type Position struct {
	Lane  int
	After int64  // rows with higher ids only
	Until int64  // and none above this id; 0 means no bound
	Key   string // only rows with this key; empty means all
}

// Page is what one Read returned.
type Page struct {
	// Rows in the order of ids within each lane.
	Rows []Row

	// More: a limit was met (of all rows, of the rows of one position, or of
	// bytes), so there is probably more. Without it, every position was read to
	// its end.
	More bool

	// LateAfter: since the read before this one, rows may have appeared with
	// ids above this one, also at or below ids that had been read. Negative
	// where none can have.
	LateAfter int64

	// Horizon: no row can appear any more at or below this id.
	Horizon int64
}

// Candidate is a row that a Scan has met.
type Candidate struct {
	ID    int64
	Lane  int
	Topic string
	Key   string
}

// DueCursor is where a reading of due rows goes on: the row that was last
// returned. The zero value is the start.
type DueCursor struct {
	At time.Time
	ID int64
}

// State is a message's state, in the words of the outbox_messages view.
type State string

// The states.
const (
	StatePending   State = "pending"   // to be delivered now
	StateClaimed   State = "claimed"   // claimed by a relay, by rows
	StateScheduled State = "scheduled" // not before its time
	StateRetry     State = "retry"     // waits for its next attempt
	StateError     State = "error"     // parked
	StateDone      State = "done"      // delivered
)

// Settlement writes back what became of one row.
type Settlement struct {
	ID    int64
	Lane  int
	Fence int64  // by lanes: the fence of the lease that it was read under
	Token string // by rows: the token that it was claimed with
	Held  bool   // where the row was read from, as in Row

	// State is the new one: StateDone, StateRetry, StateError, StateScheduled
	// (keeps its time), or StatePending (by rows: the claim is given back).
	State State

	Attempts int
	Crashes  int
	Delay    time.Duration // StateRetry: from the database's now
	Error    string        // last_error; kept as it was if empty
	Receipt  string        // StateDone
}

// Settled counts what a Settle did. Changed + Fenced + Missing is the number
// of settlements that it was given.
type Settled struct {
	Changed int
	Fenced  int // not changed: the lane's lease, or the row's claim, is another's now
	Missing int // not changed: not there any more (settled before, or taken away by an operator)
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
	// lanes whose fence is another. With keep, done rows are kept.
	Settle(ctx context.Context, relay string, keep bool, settlements []Settlement) (Settled, error)

	// Purge deletes up to limit done rows that finished longer ago than
	// retention, and relays long dead, and says how many rows it deleted.
	Purge(ctx context.Context, retention time.Duration, limit int) (int, error)

	LaneStore
	RowStore
}

// LaneStore is the part of a Store that claims by lanes.
type LaneStore interface {
	// Acquire leases up to count lanes that are free or whose lease has ended,
	// each with a higher fence than before.
	Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]Grant, error)

	// Renew extends leases by ttl from now, stores the marks, and returns the
	// leases that still held: those whose fence is the lane's, also where the
	// lease had ended but nobody took the lane.
	Renew(ctx context.Context, relay string, renewals []Renewal, ttl time.Duration) ([]Lease, error)

	// Release gives lanes back at once, with their marks.
	Release(ctx context.Context, relay string, renewals []Renewal) error

	// HeldKeys returns the keys of these lanes that a retry holds, up to limit.
	HeldKeys(ctx context.Context, lanes []int, limit int) ([]HeldKey, error)

	// Read returns up to limit pending rows at the given positions, and stops
	// early once it has maxBytes of payload (but returns one row at least).
	// Where it can't visit all positions, it visits the first ones.
	Read(ctx context.Context, positions []Position, limit, maxBytes int) (Page, error)

	// Scan walks over the pending rows at the given positions and returns
	// those that keep approves.
	Scan(ctx context.Context, positions []Position, keep func(Candidate) bool) ([]Row, error)

	// Due returns up to limit held rows of the lanes that are due now
	// (scheduled or retry), by their time, after the cursor.
	Due(ctx context.Context, lanes []int, after DueCursor, limit, maxBytes int) ([]Row, DueCursor, error)
}

// Pick says which rows a claim by rows takes first.
type Pick string

// The orders of claiming by rows.
const (
	Oldest   Pick = "oldest"
	Newest   Pick = "newest"
	Priority Pick = "priority" // the highest; the oldest of these
)

// ClaimRequest asks for rows.
type ClaimRequest struct {
	Relay  string
	Token  string // unique to this run of the relay, or to this claim
	TTL    time.Duration
	Limit  int
	Pick   Pick
	Topics []string // only these; none means all
	Except []string // none of these
}

// RowStore is the part of a Store that claims by rows.
type RowStore interface {
	// Claim stamps up to Limit free rows with the token and returns them. Rows
	// that another has locked are passed over.
	Claim(ctx context.Context, request ClaimRequest) ([]Row, error)

	// Extend lets the claim of these rows end ttl from now, and returns the ids
	// of those that were still claimed with the token.
	Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error)

	// Reclaim frees up to limit rows whose claim has ended, and counts a crash
	// for each; and it brings back up to limit held rows that are due. It says
	// how many rows it made free.
	Reclaim(ctx context.Context, limit int) (int, error)
}
