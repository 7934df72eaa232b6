// Package backend says what package sqlstore needs of a database, and holds the little that all
// databases share. Each database has a folder in relay/sqlstore: its statements as SQL, and a
// [Backend] that runs them over database/sql.
package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Backend is one table in one database. Its methods run the database's statements and
// return the engine's types; those that return a [Query] leave that to the store. They retry nothing: a method that fails has changed
// nothing, unless the connection broke, and returns the driver's error, whose kind
// the dialect knows. All but Read may be called concurrently. All times are the
// database's.
//
// The store does what databases share: it tries again while one is busy, has writers
// take turns where there is one at a time, splits pages, runs the statements of [Capabilities], and keeps the
// [Frontier].
type Backend interface {
	// Capabilities says how the database differs from others; always the same.
	Capabilities() Capabilities

	// Check looks at what the database itself can tell: rights, settings, plans. It
	// changes nothing.
	Check(ctx context.Context, claim storage.Claim) []storage.Finding

	// Relays, and the way of claiming that they agree on.

	// SetClaimMode stores the way of claiming, unless a relay lives that claims
	// another way, and makes or drops the indexes that claiming by rows needs; see
	// [ChangeMode].
	SetClaimMode(ctx context.Context, claim storage.Claim) error

	// Heartbeat stores a sign of life, if the way of claiming is still the relay's.
	Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (Heartbeat, error)

	// Lanes. Their transactions' numbers are 0 where the database has none.

	// Acquire leases up to count lanes that are free, in any order. Their fences grow by step.
	Acquire(ctx context.Context, relay string, count int, ttl time.Duration, step int64) (grants []storage.Grant, xid uint64, err error)

	// ChangeLeases makes a change to those of the leases that still hold, and returns
	// these. Marks are stored unless the epoch is given and isn't the server's. The leases
	// are in the order of lanes, at least one.
	ChangeLeases(ctx context.Context, change LeaseChange, leases []Lease) (held []storage.Lease, xid uint64, err error)

	// What a relay by lanes reads. Positions have an Until, which is inclusive,
	// and either all have a key or none has.

	// Read has each pending row at the positions taken, in the order that
	// [Capabilities].Walk says, all of one snapshot. Only one goroutine may call it, but for a
	// read at no position, which has the first line alone.
	Read(ctx context.Context, page Read, take func(storage.Row) (more bool, err error)) (FirstLine, error)

	// The store itself runs what takes one statement, for each of which there is a function that reads its answer.

	// Candidates selects what a scan asks of each pending row, in the order of a Read, at one
	// position at least; see [ReadCandidates]. Rows of the topics in except that name no sinks may be left out.
	Candidates(positions []storage.Position, except []string, limit int) Query

	// Pick selects the pending or the held rows of some places, in no order; see [ReadRows].
	// Parked ones aren't among them.
	Pick(rows []storage.RowID, held bool) Query

	// Due selects held rows of the lanes that are due, by their time and id; see [ScanRows].
	// It may leave out those after the one with which they have maxBytes of payload.
	Due(lanes []int, after storage.DueCursor, limit, maxBytes int) Query

	// BlockedKeys selects keys that a retry or a row with holds > 0 holds, in no order; see
	// [ReadBlockedKeys].
	BlockedKeys(lanes []int, limit int) Query

	// BlockedAmong selects those of these keys that such a row holds, with the lowest id of
	// each topic and of each sinks. Each is found by an index.
	BlockedAmong(keys []storage.LaneKey) Query

	// Remaining selects the pending and held rows that are due, without those that are claimed, up to limit of
	// each table; see [ReadRemaining].
	Remaining(limit int) Query

	// Settle changes rows, of leased lanes or claimed ones by their tokens. By lanes
	// it first locks the lanes against a takeover, and then changes the rows of those
	// whose fence and owner are the ones shown. A row is changed if it has the message
	// that is shown: an id may have been given out again. The settlements are in the
	// order of lanes and ids, and none is there twice. It works in a transaction of
	// its own, or in the one that is given, which then is as [Capabilities].Tx has it.
	Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (Settled, error)

	// SettleParts changes rows of leased lanes for some of their sinks, as [storage.Settlement]
	// says of its For: it writes what became of these beside each row, and leaves the row with
	// the others. It locks the lanes and finds the rows as Settle does, but only those that have
	// the sinks that are shown. No row is there twice, and tx is not nil.
	SettleParts(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (Settled, error)

	// Purge deletes up to limit done rows that finished longer ago than retention,
	// and after since; and up to limit ids that were written longer ago ([IDsKept]), but for
	// those of held rows, and those that are no older than the lowest pending row: a message's
	// id is written before it, and ten minutes make up for transactions and clocks between the
	// two. It says how many it deleted of the one or the other, whichever are more. Until is where the next purge may begin; zero where there is no
	// gain in that.
	Purge(ctx context.Context, retention time.Duration, limit int, since time.Time) (purged int, until time.Time, err error)

	// Claiming by rows. Each of these changes nothing unless the table is claimed
	// by rows, and keeps others from changing that until what it did is committed: a
	// relay may have been stopped while the table was changed to lanes, and would bring
	// back rows below marks of others.

	// Claim stamps free rows and returns them, in no order.
	Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error)

	// Extend returns the ids that were still claimed.
	Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error)

	// Reclaim frees up to limit rows whose claim has ended, and brings as many held
	// rows back that are due, but for those whose lane and id another row has by then.
	Reclaim(ctx context.Context, limit int) (freed int, err error)

	// What an operator does.

	// List returns messages of any state in the order of ids.
	List(ctx context.Context, filter Filter) ([]storage.Info, error)

	// ChangeParked changes parked rows, up to the filter's limit, and returns the id of
	// each.
	ChangeParked(ctx context.Context, filter Filter, change ParkedChange) ([]int64, error)

	// Parked calls each with every parked row that the filter selects, without its limits, in the order
	// of ids; see [ReadParked].
	Parked(ctx context.Context, filter Filter, within int64, each func(storage.Parked)) error

	// Delivered returns done rows up to that id, by id, up to the filter's limit.
	Delivered(ctx context.Context, filter Filter, untilID int64) ([]DeliveredRow, error)

	// LastDelivered returns done rows by the time when they were finished, the last first, up to the
	// filter's limit, along the index of these times; see [ReadLastDelivered].
	LastDelivered(ctx context.Context, filter Filter) ([]storage.Info, error)

	// ChangeReplay copies done rows, of which it says where the copies are, and stores what the
	// replay is then, in one transaction; see [WriteReplay]. A settlement names a row, and has the
	// copy as its DeadLetter.
	ChangeReplay(ctx context.Context, change ReplayChange) ([]storage.RowID, error)
}

// ParkedChange is what an operator does with parked rows.
type ParkedChange int

const (
	Requeue           ParkedChange = iota // has them delivered again, those that hold their keys before the rest of these
	AskSkip                               // asks a relay for it, of those that hold their keys; see [storage.Hold]
	AskDiscard                            // the same
	DiscardAtOnce                         // deletes those that don't hold their keys
	RetryNow                              // has messages due that wait for their next attempt
	AskSkipRetry                          // is AskSkip of these
	AskDiscardRetry                       // is AskDiscard of these
	DiscardRetry                          // deletes these, which by rows nobody has in hand
	Redirect                              // is Requeue to the sink that the filter names as To, of those that don't hold their keys and whose messages have no other row
	RedirectRetry                         // sends retries to that sink, if they name one alone
	RedirectScheduled                     // does so with held rows that are scheduled
	RedirectPending                       // moves hot rows without a claim to the held ones for that sink, scheduled for their time, if they name one alone
)

// State is that of the rows that a change is about.
func (c ParkedChange) State() storage.State {
	switch c {
	case RetryNow, AskSkipRetry, AskDiscardRetry, DiscardRetry, RedirectRetry:
		return storage.StateRetry
	case RedirectScheduled:
		return storage.StateScheduled
	case RedirectPending:
		return storage.StatePending
	default:
		return storage.StateError
	}
}

// Deletes says that the rows go at once.
func (c ParkedChange) Deletes() bool { return c == DiscardAtOnce || c == DiscardRetry }

// Redirects says that the rows are for the sink that the filter names as To from then on.
func (c ParkedChange) Redirects() bool { return c >= Redirect }

// Condition is what else the rows t have that a change is about, in that state. They are held ones, or hot ones of a
// RedirectPending. A retry that is due a relay may be sending: it is changed only if no relay has its sink.
func (c ParkedChange) Condition(hot, held, now string) string {
	const message = " o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id"
	alone := " AND NOT EXISTS (SELECT 1 FROM " + held + message + " AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM " + hot + message + ")"
	switch c {
	case RetryNow, AskSkipRetry, AskDiscardRetry, DiscardRetry:
		return " AND t.holds = 0 AND t.available_at > " + now
	case Redirect:
		return " AND t.holds = 0" + alone
	case RedirectRetry, RedirectScheduled:
		return " AND t.holds = 0 AND t.sinks NOT LIKE '%,%'" + alone
	case RedirectPending:
		return " AND (t.claimed_until IS NULL OR t.claimed_until < " + now + ") AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM " + held + message + ")"
	case AskSkip, AskDiscard:
		return " AND t.holds = 1"
	case DiscardAtOnce:
		return " AND t.holds = 0"
	default:
		return ""
	}
}

// Set is what a change sets that deletes nothing: see [storage.Hold] for the numbers. The state
// is first, as MySQL changes one column after the other. What is requeued after it had expired
// does so again in the year 9999, which the database writes as never: see [storage.Row].
func (c ParkedChange) Set(now, never string) string {
	switch c {
	case RetryNow:
		return "available_at = " + now
	case RedirectRetry: // due before all that has a time, as what is redirected of the hot rows: so by their ids
		return "attempts = 0, crashes = 0, available_at = NULL"
	case RedirectScheduled:
		return "attempts = 0, crashes = 0"
	case AskSkip, AskSkipRetry:
		return "state = 'retry', holds = 2, available_at = " + now
	case AskDiscard, AskDiscardRetry:
		return "state = 'retry', holds = 3, available_at = " + now
	default:
		return "state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = " + now +
			",\n    expires_at = CASE WHEN last_error LIKE '" + storage.Expired + "%' THEN " + never + " ELSE expires_at END"
	}
}

// IDsKept is how long ids are kept where rows are kept for the retention. In a minute the
// transaction is over that found an id old: it deletes none that was deleted, and written
// anew, meanwhile.
func IDsKept(retention time.Duration) time.Duration { return max(retention, time.Minute) }

// Queries are statements that a backend gives with their arguments.
type Queries struct {
	Members     Query         // the name and the setup of each living relay, and the database's time
	PurgeRelays Query         // deletes relays that died a day ago
	LastID      Query         // the highest id that was given out, 0 if none was
	Status      StatusQueries // what a status asks

	// WrittenFrom has the first of the hot and the done rows whose id is the argument or higher, and when it
	// was written, in milliseconds since 1970; where it has several arguments they are the same.
	// Empty where messages are looked for among all rows.
	WrittenFrom Query

	// IDsOutOfOrder has a line for each setting by which a message could be passed over, as its id
	// isn't in order. Empty where there is no such setting.
	IDsOutOfOrder Query

	// RowSecurity has the name of each table whose rows a policy may hide from this user, on databases
	// that have such policies.
	RowSecurity Query

	// File has the path of the database's file, on databases that are one.
	File Query

	// FreeRow has a row if there may be a free one, and EndedClaim if there may be a claim
	// that has ended or a held row that is due: for much less than it takes to claim, without
	// a transaction or a lock. Empty where nobody can tell.
	FreeRow, EndedClaim Query
}

// Explainer is implemented by a backend whose database shows everybody the plans of his statements. Its statements have
// "renew statistics", too, which an operator runs where plans are wrong.
type Explainer interface {
	// Explain has the database show how it would carry out a statement, and says what of that takes the longer the
	// larger a table is; nothing if all goes by indexes, or the table is small.
	Explain(ctx context.Context, query Query) (wrong string, err error)

	// Sample is what a statement might select, where a method runs further statements only with such rows; else nil.
	Sample(query string) [][]driver.Value
}

// PoolChecker is implemented by a backend that can't work with every pool.
type PoolChecker interface {
	// CheckPool fails if the pool's connections aren't as the statements need them, and says what to set.
	CheckPool(ctx context.Context) error
}

// Heartbeat is what a sign of life is answered with.
type Heartbeat struct {
	Stored bool   // false: the way of claiming is another one now
	XID    uint64 // the transaction's number, 0 where the database has none
	Epoch  string // the server's, as in [FirstLine]; empty where there is none
}

// LeaseChange says what becomes of leases.
type LeaseChange struct {
	Kind  LeaseChangeKind
	Relay string        // that holds them
	Epoch string        // in which the marks were made; empty for any
	TTL   time.Duration // of a renewal

	// Keeps has all leases that the relay renews, also those of other calls: what else stands under its
	// name isn't to last longer.
	Keeps []storage.Lease
}

// LeaseChangeKind is one of the three below.
type LeaseChangeKind string

const (
	Renew        LeaseChangeKind = "renew"         // extends them, and stores their marks
	Release      LeaseChangeKind = "release"       // gives the lanes back, and stores their marks
	WriteJournal LeaseChangeKind = "write journal" // stores their journals
)

// Lease is a lane and its fence, with what is to be stored with it.
type Lease struct {
	storage.Lease
	Marks   string // as text of JSON
	Journal string // as text of JSON
	Calm    bool   // clears the count of crashes and the journal
}

// Read asks for pending rows.
type Read struct {
	Positions []storage.Position
	Limit     int // at most so many rows

	// Share bounds the rows of each position, where they are walked one after the
	// other; it is at most Limit. 0 means no bound.
	Share int

	// MaxBytes: the reading may stop once it has so many bytes of payload, if it is
	// positive. Finding out costs something.
	MaxBytes int

	// Except lists topics whose rows may be left out, unless they name sinks. If it isn't empty, no position has a key.
	Except []string

	// Number: the transaction is to have a number.
	Number bool
}

// Settled is what a settle did.
type Settled struct {
	Held    map[storage.Lease]bool // by lanes: the leases that hold
	Changed int                    // rows
	Fenced  int                    // by rows: rows that are another's
	XID     uint64
}

// Filter is a storage.Filter whose IDs are told apart.
type Filter struct {
	storage.Filter
	ByID       bool // the two below select, even if both are empty
	RowIDs     []int64
	MessageIDs []string // in lower case
	UntilID    int64    // no higher ids than this one, where it isn't 0: only MessageIDs are looked for, among few rows

	DoneSince, DoneUntil time.Time // of done rows: finished at or after the one, and before the other

	To string // the sink of a Redirect
}

// Bounded says that a listing looks through so many rows only, as something selects some of them.
func (f Filter) Bounded() bool {
	selects := f.Topic+f.Key+f.Sink+f.Error+string(f.State) != "" || len(f.Times()) > 0
	return f.LookThrough > 0 && !f.ByID && selects
}

// Times are the bounds of times that are set, as conditions of a row t.
func (f Filter) Times() []TimeBound {
	bounds := []TimeBound{{"t.created_at >= ", f.Since}, {"t.finished_at >= ", f.DoneSince}, {"t.finished_at < ", f.DoneUntil}}
	return slices.DeleteFunc(bounds, func(b TimeBound) bool { return b.At.IsZero() })
}

// TimeBound is a condition up to its time.
type TimeBound struct {
	Condition string
	At        time.Time
}
