// Package backend defines the [Backend], the interface between package sqlstore and a database, and
// holds the code that all databases share. Each database has a folder in relay/sqlstore with its SQL
// statements and a Backend that runs them over database/sql.
package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Backend is one table in one database. Its methods run the database's statements and return types of
// package storage. A method that returns a [Query] doesn't run it; the store does. No method retries. A
// method that fails returns the driver's error, which the dialect classifies. Unless the connection broke, a
// method that failed has changed nothing. All methods except Read may be called concurrently. All times come
// from the database's clock.
//
// The store does the work that is the same for all databases: it retries while a database is busy, serializes
// writers if the database allows only one, splits pages, runs the statements of [Capabilities], and
// maintains the [Frontier].
type Backend interface {
	// Capabilities returns the properties in which databases differ. The result never changes.
	Capabilities() Capabilities

	// Check examines the permissions, the settings and the query plans. It changes nothing.
	Check(ctx context.Context, claim storage.Claim) []storage.Finding

	// Relays and their claim mode.

	// SetClaimMode stores the claim mode, unless a relay with another mode is alive. It also creates the
	// indexes that claiming by rows needs, or drops them if the mode is claiming by lanes; see [ChangeMode].
	SetClaimMode(ctx context.Context, claim storage.Claim) error

	// Heartbeat stores a relay's heartbeat if the table still has this relay's claim mode.
	Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (Heartbeat, error)

	// Lanes. The result `xid` is the number of the method's transaction. It is 0 if the database doesn't number
	// transactions.

	// Acquire leases at most `count` free lanes, in any order, and increases their fences by `step`.
	Acquire(ctx context.Context, relay string, count int, ttl time.Duration, step int64) (grants []storage.Grant, xid uint64, err error)

	// ChangeLeases applies a change to the given leases that are still valid, and returns the valid ones. It
	// stores the marks unless the change has an Epoch that differs from the server's. The given leases are
	// ordered by lane, and there is at least one.
	ChangeLeases(ctx context.Context, change LeaseChange, leases []Lease) (held []storage.Lease, xid uint64, err error)

	// Reading leased lanes. Each position has an Until, which is inclusive. Either all positions have a key or
	// none has.

	// Read calls the function `take` with each pending row at the positions, in the order that [Capabilities].Walk
	// specifies. All rows are from one snapshot. Only one goroutine may call Read with positions. Without
	// positions, Read reads no rows, returns only the FirstLine, and may be called by any goroutine.
	Read(ctx context.Context, page Read, take func(storage.Row) (more bool, err error)) (FirstLine, error)

	// The methods from Candidates to Remaining return one statement each. The store runs the statement, and
	// reads its result with a function of this package.

	// Candidates returns the query for the pending rows at one or more positions, in the same order as Read.
	// The query selects only the columns that a scan needs; see [ReadCandidates]. It may leave out rows that
	// name no sinks and whose topic is in the list `except`.
	Candidates(positions []storage.Position, except []string, limit int) Query

	// Pick returns the query for the given rows, in no particular order. They are pending rows or, if the
	// last argument is true, held rows that aren't parked; see [ReadRows].
	Pick(rows []storage.RowID, held bool) Query

	// AttemptLogs returns the query for the logs of failed attempts of the given rows; rows without a log are left out. The
	// rows are pending rows or, if the last argument is true, held rows; see [ReadAttemptLogs].
	AttemptLogs(rows []storage.RowID, held bool) Query

	// Due returns the query for the lanes' held rows that are due, ordered by time and id; see
	// [ScanRows]. The query may stop after the row with which the payloads reach maxBytes.
	Due(lanes []int, after storage.DueCursor, limit, maxBytes int) Query

	// BlockedKeys returns the query for the blocked keys, in no particular order; see [ReadBlockedKeys]. A key is
	// blocked by a retry, and by a row with a value above 0 in the column `holds`.
	BlockedKeys(lanes []int, limit int) Query

	// BlockedAmong returns the query for the blocked keys among the given ones. It uses an index to find each key.
	// For each blocked key, it selects one row for each combination of topic and sinks: the row with the lowest id.
	BlockedAmong(keys []storage.LaneKey) Query

	// Remaining returns the query for the pending and held rows that are due and not claimed, at most
	// `limit` rows of each table; see [ReadRemaining].
	Remaining(limit int) Query

	// Settle changes rows of leased lanes, or claimed rows that still have the given tokens. If the relay claims
	// by lanes, Settle first locks the lanes against a takeover, and then changes the rows of the lanes that
	// still have the given fence and owner. It changes a row only if the message id matches, because the row's id
	// may have been issued again. The settlements are ordered by lane and id and have no duplicates. If tx is
	// nil, Settle begins its own transaction. Otherwise tx was begun with the options [Capabilities].Tx.
	Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (Settled, error)

	// SettleParts settles rows of leased lanes for some of their sinks, as [storage.Settlement].For
	// describes: it adds a row with the result for these sinks, and the original row keeps the other sinks.
	// It locks the lanes and finds the rows as Settle does, but changes a row only if it still has the sinks that
	// the settlement names. The settlements have no duplicates, and tx is not nil.
	SettleParts(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (Settled, error)

	// Purge deletes at most `limit` rows that have been done for longer than the retention. It skips rows
	// that finished before the argument `since`.
	//
	// It also deletes at most `limit` message ids that were written longer ago than [IDsKept] returns, and more than ten
	// minutes before the pending rows with the lowest ids were created. It keeps the ids of held rows. A message's id is
	// written before its row, and the ten minutes allow for long transactions and differing clocks.
	//
	// Purge returns the number of deleted rows or of deleted ids, whichever is higher. The result `until` is the value
	// of `since` for the next call. It is the zero time if the database doesn't use `since`.
	Purge(ctx context.Context, retention time.Duration, limit int, since time.Time) (purged int, until time.Time, err error)

	// Claiming by rows. Each of the following methods changes nothing unless the table is claimed by rows. The
	// claim mode can't change until such a method has committed. Otherwise a relay that was suspended during a
	// change to claiming by lanes could return rows to the table with ids below the lanes' marks ([storage.Marks]).
	// Relays would miss these rows, because they read lanes only above the marks.

	// Claim marks free rows as claimed and returns them, in no particular order.
	Claim(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error)

	// Extend extends the claims on the ids that are still claimed with the token, and returns these ids.
	Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error)

	// Reclaim frees at most `limit` rows whose claim has expired. It also moves at most `limit` due held rows to
	// the hot table, that is, the table of pending rows. It doesn't move a row if the hot table has another row
	// with the same lane and id.
	Reclaim(ctx context.Context, limit int) (freed int, err error)

	// Methods for operators.

	// List returns messages of any state, ordered by id.
	List(ctx context.Context, filter Filter) ([]storage.Info, error)

	// ChangeParked applies an operator's change to rows, up to the filter's limit, and returns their ids.
	ChangeParked(ctx context.Context, filter Filter, change ParkedChange) ([]int64, error)

	// Parked passes the parked rows that the filter selects, ordered by id, to the function `each`. It ignores
	// the limits of the filter; see [ReadParked].
	Parked(ctx context.Context, filter Filter, within int64, each func(storage.Parked)) error

	// Delivered returns the done rows whose ids are at most untilID, ordered by id, up to the filter's limit.
	Delivered(ctx context.Context, filter Filter, untilID int64) ([]DeliveredRow, error)

	// LastDelivered returns the done rows that finished last, the latest one first, up to the filter's limit.
	// It uses the index on the finish times; see [ReadLastDelivered].
	LastDelivered(ctx context.Context, filter Filter) ([]storage.Info, error)

	// ChangeReplay writes copies of done rows, returns the lanes and ids of the copies, and stores the
	// updated replay, in one transaction; see [WriteReplay]. Each settlement in the change identifies a done
	// row, and the settlement's DeadLetter is the copy of this row.
	ChangeReplay(ctx context.Context, change ReplayChange) ([]storage.RowID, error)
}

// ParkedChange is a change that an operator makes to rows that are parked or still have to be sent.
type ParkedChange int

const (
	Requeue           ParkedChange = iota // makes the rows due now; a row that holds its key is sent before later rows of the key
	AskSkip                               // asks a relay to skip rows that hold their keys; see [storage.Hold]
	AskDiscard                            // asks a relay to discard rows that hold their keys
	DiscardAtOnce                         // deletes rows that don't hold their keys
	RetryNow                              // sets the due time of retries that are not due yet to now
	AskSkipRetry                          // asks a relay to skip retries that are not due yet
	AskDiscardRetry                       // asks a relay to discard retries that are not due yet
	DiscardRetry                          // deletes retries that are not due yet; used when claiming by rows, because no relay has claimed these retries
	Redirect                              // requeues rows with the filter's To as their sink, if they don't hold their keys and their messages have no other row
	RedirectRetry                         // sets the sink of retries that name at most one sink to the filter's To
	RedirectScheduled                     // sets the sink of scheduled rows that name at most one sink to the filter's To; the rows keep their due time
	RedirectPending                       // sets the sink of unclaimed pending rows that name at most one sink to the filter's To, and moves the rows to the held table as scheduled rows
)

// State returns the state that a row must have for the change to apply to it.
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

// Deletes reports whether the change deletes the rows immediately.
func (c ParkedChange) Deletes() bool { return c == DiscardAtOnce || c == DiscardRetry }

// Redirects reports whether the change sets the rows' sink to the filter's To.
func (c ParkedChange) Redirects() bool { return c >= Redirect }

// Condition returns the SQL conditions, in addition to the state, that a row t must meet to be changed. For
// RedirectPending, t is a pending row; for all other changes, a row of the held table. RetryNow and the changes
// that skip or discard retries apply only to retries that are not due yet, because a relay may be sending a retry
// that is due. RedirectRetry also changes retries that are due; its caller makes sure that no relay has their sink.
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

// Set returns the SQL assignments of a change that deletes no rows. [storage.Hold] defines the values of the column holds.
// The state is assigned first, because MySQL assigns one column after the other and the state depends on holds.
// The second argument is the database's literal for a time in the year 9999. A requeued message that was parked
// because it had expired gets this time as its new expiry time: see [storage.Row].
func (c ParkedChange) Set(now, never string) string {
	switch c {
	case RetryNow:
		return "available_at = " + now
	case RedirectRetry: // rows without an available_at are due first, in the order of their ids
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

// IDsKept returns how long message ids are kept if done rows are kept for the retention. The result is at least a
// minute, because two purges may find the same old id. After one of them has deleted the id, a producer may write the
// same id again before the other purge deletes it. The other purge ends within a minute, and doesn't delete an id that
// was written within this minute.
func IDsKept(retention time.Duration) time.Duration { return max(retention, time.Minute) }

// Queries are the statements that a backend provides together with their arguments.
type Queries struct {
	Members     Query         // the name and the configuration of each living relay, and the database's time
	PurgeRelays Query         // deletes relays that died more than a day ago
	LastID      Query         // the highest id that was issued; 0 if no id was issued
	Status      StatusQueries // the statements that read a status

	// WrittenFrom returns the first pending or done row whose id is at least the argument, and the time when the row
	// was written, in milliseconds since 1970. If the statement has several arguments, they are all the same id. If
	// WrittenFrom is empty, a search for a message examines all rows.
	WrittenFrom Query

	// IDsOutOfOrder returns a line for each setting of the database that allows ids out of order. With such a setting
	// a relay could miss messages. IDsOutOfOrder is empty if the database has no such setting.
	IDsOutOfOrder Query

	// RowSecurity returns the name of each table whose rows a policy may hide from this user. It is empty if
	// the database has no such policies.
	RowSecurity Query

	// File returns the path of the database's file. It is empty if the database is not a file.
	File Query

	// FreeRow returns a row if a free row may exist. EndedClaim returns a row if an expired claim or a held row
	// that is due may exist. Both cost much less than a claim and need no transaction or lock. They are empty if
	// the database has no such cheap queries.
	FreeRow, EndedClaim Query
}

// Explainer is implemented by a backend whose database lets each user explain statements. The backend's statements
// then include "renew statistics", which an operator runs if plans are wrong.
type Explainer interface {
	// Explain asks the database for the plan of a statement. It returns a description of the steps that take
	// longer for a larger table, or "" if the plan uses only indexes or the table is small.
	Explain(ctx context.Context, query Query) (wrong string, err error)

	// Sample returns the rows that a [Recorder] returns for a query. Some methods run further statements only if a query
	// selects rows. For these queries, Sample returns rows, so that the further statements are recorded, too. For all
	// other queries it returns nil.
	Sample(query string) [][]driver.Value
}

// PoolChecker is implemented by a backend that can't work with every pool.
type PoolChecker interface {
	// CheckPool returns an error if the pool's connections lack a setting on which the statements depend.
	// The error names the setting to change.
	CheckPool(ctx context.Context) error
}

// Heartbeat is the result of the method Heartbeat of a [Backend].
type Heartbeat struct {
	Stored bool   // false: the table has another claim mode now
	XID    uint64 // the transaction's number, or 0
	Epoch  string // the server's epoch; see [FirstLine].Server
}

// LeaseChange describes a change of leases.
type LeaseChange struct {
	Kind  LeaseChangeKind
	Relay string        // the holder of the leases
	Epoch string        // the server's epoch when the marks were computed; empty: the marks are always stored
	TTL   time.Duration // how long a renewal extends the leases

	// Keeps has all leases that the relay renews, including those that other calls renew. No other lease
	// of the relay may be extended.
	Keeps []storage.Lease
}

// LeaseChangeKind is the kind of a [LeaseChange].
type LeaseChangeKind string

const (
	Renew        LeaseChangeKind = "renew"         // extends the leases, and stores their marks
	Release      LeaseChangeKind = "release"       // ends the leases, and stores their marks
	WriteJournal LeaseChangeKind = "write journal" // stores the lanes' journals
)

// Lease is a lane and its fence, with the values to store for the lane.
type Lease struct {
	storage.Lease
	Marks   string // JSON
	Journal string // JSON
	Calm    bool   // whether to clear the count of crashes and the journal
}

// Read is a request for pending rows.
type Read struct {
	Positions []storage.Position
	Limit     int // maximum number of rows

	// Share is the maximum number of rows of each position if positions are read one after the other. It
	// is at most Limit; 0 means no maximum.
	Share int

	// MaxBytes, if positive, allows the read to stop when its payloads reach this many bytes. Measuring
	// the payloads makes the read slower.
	MaxBytes int

	// Except lists topics whose rows may be left out if the rows name no sinks. If it isn't empty, no position has a key.
	Except []string

	// Number requests that the read's transaction gets a number.
	Number bool
}

// Settled is the result of Settle or SettleParts.
type Settled struct {
	Held    map[storage.Lease]bool // the leases that are still valid; used when claiming by lanes
	Changed int                    // the number of changed rows
	Fenced  int                    // the number of rows that belong to another relay now; used when claiming by rows
	XID     uint64                 // the transaction's number, or 0
}

// Filter is a storage.Filter whose IDs are split into ids of rows and ids of messages.
type Filter struct {
	storage.Filter
	ByID       bool // whether to select only messages whose ids are in RowIDs or MessageIDs
	RowIDs     []int64
	MessageIDs []string // in lower case
	UntilID    int64    // the highest id to list, or 0 for no limit; only a search for MessageIDs sets it, to examine few rows at a time

	DoneSince, DoneUntil time.Time // selects only done rows that finished at or after DoneSince and before DoneUntil

	To string // the new sink of redirected rows
}

// Bounded reports whether a listing examines only a limited number of rows. This is the case if LookThrough
// is set, and the filter has conditions but no ids.
func (f Filter) Bounded() bool {
	selects := f.Topic+f.TopicPrefix+f.Key+f.Sink+f.Error+string(f.State) != "" || len(f.Times()) > 0
	return f.LookThrough > 0 && !f.ByID && selects
}

// Times returns an SQL condition on a row t for each time that the filter has set.
func (f Filter) Times() []TimeBound {
	bounds := []TimeBound{{"t.created_at >= ", f.Since}, {"t.finished_at >= ", f.DoneSince}, {"t.finished_at < ", f.DoneUntil}}
	return slices.DeleteFunc(bounds, func(b TimeBound) bool { return b.At.IsZero() })
}

// TimeBound is an SQL condition that ends with a time: Condition is the text before the time, and At is the time.
type TimeBound struct {
	Condition string
	At        time.Time
}
