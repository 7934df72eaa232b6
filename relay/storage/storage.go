// Package storage is what the engine needs of a table of messages, and what operators
// do with one: the contract of a Store, in the words of both. sqlstore implements it
// over database/sql, rowrelaytest in memory. A program that relays needs it for its
// filters and states alone.
package storage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
)

// Errors that a Store returns, to be matched with errors.Is.
var (
	// ErrOtherClaim means that the table is claimed the other way, and that a
	// relay which does so lives.
	ErrOtherClaim = errors.New("the table is claimed another way")

	// ErrNoSchema means that the tables are missing or of another version.
	ErrNoSchema = errors.New("the schema is missing or of another version")

	// ErrNewerSchema is an ErrNoSchema whose tables are of a newer version than this release knows.
	ErrNewerSchema = fmt.Errorf("%w: it is newer", ErrNoSchema)

	// ErrFenced means that a row is no longer this relay's to change.
	ErrFenced = errors.New("the lease is another's now")

	// ErrInvalid means that the database refuses a value of a row, and would refuse it again.
	ErrInvalid = errors.New("the database refuses a row's values")

	// ErrRefused means that the database refuses the statement, and would refuse it again
	// whatever its rows are: a right is missing, or a setting or the tables' definition forbids it.
	ErrRefused = errors.New("the database refuses the statement")

	// ErrBusy means that the database refused for the moment (a deadlock, a
	// serialization failure, a locked file): nothing was changed, and the call
	// may be made again.
	ErrBusy = errors.New("the database is busy")

	// ErrTimeout means that the server ended the call, as it took longer than a setting of the server or
	// the user allows: nothing was changed. With fewer rows it may fit.
	ErrTimeout = errors.New("the database's own time limit ended the call")
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
	Config  Config
}

// Config is what a relay tells the others of itself, with each sign of life. Its text has at most
// MaxConfig bytes. The zero Config tells nothing, as that of a consumer.
type Config struct {
	// Print is a fingerprint of all sinks and routes: relays of which it is the same send each
	// message to the same places.
	Print string `json:"print,omitempty"`

	// Sinks and Routes are for people: what each is, without secrets. Of many the last ones are
	// left out.
	Sinks  []string `json:"sinks,omitempty"`
	Routes []string `json:"routes,omitempty"`

	// Topics are those that a relay by rows is limited to; none: it isn't, or they are too many
	// to tell. Relays that have none in common leave each other's messages alone.
	Topics []string `json:"topics,omitempty"`

	Membership Membership `json:"membership,omitempty"`

	// Joins says that the relay was told to share the messages with relays of another configuration. They don't wait for it.
	Joins bool `json:"joins,omitempty"`
}

// Membership says whether a relay delivers its share of the messages.
type Membership string

// The memberships of relays.
const (
	Active       Membership = ""              // it delivers messages
	Begins       Membership = "begins"        // it will deliver, unless a relay with another configuration is active
	Standby      Membership = "standby"       // it waits until the relays with another configuration have stopped
	StandingDown Membership = "standing_down" // it leaves its share to others, if there are any
)

// MaxConfig is the longest text of a Config, in bytes.
const MaxConfig = 2000

// Text is a Config as tables have it: JSON, or nothing where it tells nothing.
func (s Config) Text() string {
	if s.Print == "" && s.Membership == Active {
		return ""
	}
	text, _ := json.Marshal(s) // of texts alone
	return string(text)
}

// Member is a relay that lives.
type Member struct {
	Name   string
	Config Config // with its last sign of life
}

// Members is who is alive.
type Members struct {
	Relays []Member // the living relays, this one included, by name

	// Epoch is that of the server which took the sign of life, as in [Page].
	Epoch string

	// Now is the database's time when it answered, or a little before. By it a relay
	// knows which messages are too old: its own clock needn't agree. Zero: nobody knows,
	// and no message is.
	Now time.Time
}

// Store is the table, as the relay needs it. sqlstore implements it over
// database/sql; storetest is the suite that every Store passes.
//
// All methods may be called at the same time, save Read, Scan and Due, which
// one goroutine calls in turn. All times are by the database's clock. A method
// that fails has changed nothing, or, where the connection broke, an unknown
// amount: every call may be repeated.
type Store interface {
	// SetClaimMode stores the way of claiming with the table, or checks it:
	// ErrOtherClaim if it is another and one of its relays lives.
	SetClaimMode(ctx context.Context, claim Claim) error

	// Heartbeat says that the relay lives for the next ttl, and who else does.
	Heartbeat(ctx context.Context, self Identity, ttl time.Duration) (Members, error)

	// Deregister takes the relay out of the table of relays.
	Deregister(ctx context.Context, name string) error

	// FenceRelay ends what a relay has that is known to be dead, as if its time were over: its
	// leases, by lanes, or its claims, by rows, and its place among the living. If it does live, it
	// is fenced, at once: by lanes it can't renew a lease that no other has taken yet.
	FenceRelay(ctx context.Context, name string, claim Claim) error

	// Settle writes settlements back, in one transaction. By lanes: it first
	// locks the rows of their lanes against a takeover, and changes nothing in
	// lanes whose fence or owner is another: a failover may have taken back leases,
	// and their fences are given out again. With keep, done rows are kept. In the order of
	// lanes and ids it is quickest. Once it has returned, the settlements are the caller's to change.
	Settle(ctx context.Context, relay string, keep bool, settlements []Settlement) (Settled, error)

	// Purge deletes up to limit done rows that finished longer ago than retention, up to
	// limit ids of producers that want no duplicates, and relays long dead; and says how
	// many it deleted of the rows, or of the ids if these are more. An id goes that was
	// written longer ago than retention, and whose message isn't there any more but as
	// done; it may stay longer while old rows are pending. Rows that another transaction has locked,
	// such as one of a purge that was given up, are left for a later call.
	Purge(ctx context.Context, retention time.Duration, limit int) (int, error)

	// Remaining calls each with the rows that are due: pending ones that no relay has claimed, and held ones
	// (scheduled or retry). It finds them by their times alone, in any lane and with any id, also those that another
	// transaction has locked, and in no order. Of a row it tells the ID, the Lane, the message's ID, Topic and Key,
	// the Sinks, and whether the row is Deferred. It keeps no list of them. It ends early when each returns false. With a limit above 0
	// it may end once each had that many rows. Each may be given a row again if the database was busy, and must not keep the pointer.
	Remaining(ctx context.Context, limit int, each func(*Row) (more bool)) error

	// Parallelism says how many calls one relay should have under way at once.
	Parallelism() Parallelism

	// Controls is that of a [Controller]. A relay asks about once a second.
	Controls(ctx context.Context) ([]Control, error)

	LaneStore
	RowStore
}

// Parallelism says how many calls of a kind a store gains by when they are under way at
// once, at least 1 each. Of settlements a relay has no more than 2.
type Parallelism struct{ Claims, Settles int }

// Lanes is the number of classes that keys fall into. It is part of the
// table's contract: the table computes a row's lane from its key.
const Lanes = 64

// Row is a message as its table holds it.
type Row struct {
	ID      int64 // its place: ids grow in the order of insertion
	Lane    int   // 0 to Lanes-1
	Message outbox.Message

	// Sinks names the sinks that still need the message, or had it where it is done, in the
	// form of [JoinSinks]. Empty: all those of its topic. Of one message there may be a pending row
	// and held or done ones, no two of which name the same sink.
	Sinks string

	// Malformed says which column of the row can't be read, and why: its headers are no JSON object
	// of strings, or a time is none. The relay parks such a message. Empty if all could be read.
	Malformed string

	Attempts  int // deliveries charged so far
	Crashes   int // times that a relay died while it alone was in flight
	CreatedAt time.Time

	// Deferred: read from the held rows (scheduled or retry, now due), not from
	// the rows to be delivered now.
	Deferred bool

	// Retrying: a held row that waits for its next attempt, and so holds its key.
	Retrying bool

	// Later: its AvailableAt was still to come, by the database's clock, when
	// it was read.
	Later bool

	// NeverExpires: it had expired, and an operator has requeued it. It is sent, however
	// old it is; its message's ExpiresAt is zero.
	NeverExpires bool

	// Holds says what a held row does to its key beside that, and what an operator
	// wants of it.
	Holds Hold
}

// Hold is what a row that was parked with [Settlement.Holds] does to its key. While it is
// not NoHold, the row blocks its key. What an operator wants is carried out by the relay that
// has the row's lane, so that the key goes on where it was left: for this the row is due, as
// a retry is.
type Hold int

// The values of the column holds.
const (
	NoHold      Hold = iota
	HoldsKey         // it is parked (StateError), and nothing else of its key is sent
	WantSkip         // it is to be parked without holding its key (StateRetry until it is)
	WantDiscard      // it is to be deleted (StateRetry until it is)
)

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

	// StateDiscarded is of settlements alone: the row is deleted, and not kept as
	// delivered ones are.
	StateDiscarded State = "discarded"
)

// Settlement writes back what became of one row. The row is known by its id, its
// lane and its message: after a failover or a restore of the database an id may be
// given to another message, which is not this settlement's to change.
type Settlement struct {
	ID        int64
	Lane      int
	MessageID string // as it was read
	Fence     int64  // by lanes: the fence of the lease that it was read under
	Token     string // by rows: the token that it was claimed with
	Deferred  bool   // where the row was read from, as in Row

	// AvailableAt, with Deferred, is that of the row as it was read. A row that stays held and has a later time by now was settled
	// before, or is as an operator wants it since: it isn't this settlement's to change. Zero: whichever it has.
	AvailableAt time.Time

	// Sinks are those of the row as it was read. Held rows of one message differ by them, and one
	// with others isn't this settlement's to change. Of a pending row, of which a message has
	// one, they count only with Left.
	Sinks string

	// For and Left, by lanes: what became of the message for some of its sinks, while others
	// need it. The row stays where and as it is, but with Left as its Sinks; and what State makes
	// of it is written beside it, as a row with For as its Sinks: one that is done, if these are
	// kept, a retry or a parked one. With StateDiscarded nothing is. A row whose sinks are
	// not Sinks isn't changed, and nothing is written: so a repetition is missing. Both empty: the
	// settlement is of the whole row, which takes its sinks along. One without the other, or with
	// Left as it was, or with a Token, is an error: by rows, a message has one sink.
	//
	// Another settlement of such a row in one batch is an error.
	For, Left string

	// State is the new one: StateDone, StateRetry, StateError, StateDiscarded,
	// StateScheduled (keeps its time), or StatePending (by rows: the claim is given back).
	State State

	// Holds: with StateError, by lanes, the row blocks its key as a retry does that is
	// never due, and its AvailableAt becomes the database's now: since when it does. A row
	// that an operator wants skipped or discarded already isn't changed: it is missing.
	Holds bool

	Attempts int
	Crashes  int
	Delay    time.Duration // StateRetry: from the database's now
	Error    string        // last_error; kept as it was if empty
	Receipt  string        // StateDone

	// DeadLetter, with StateError, is written in the same transaction if this settlement
	// changes its row, and only then: one that is repeated, or that is fenced, writes none.
	DeadLetter *Copy
}

// Copy is a new message that is written from a row, among those to be delivered now: with the
// row's key, payload, priority and, unless that has passed, expires_at, and all else as a producer's
// INSERT has it that names nothing more. So it has an id and a time of its own, and no attempts. Copies
// that are written together have ids in the order of their rows'.
type Copy struct {
	MessageID string // a UUID; the row's own, or a new one
	Topic     string
	Sinks     string // as in Row
	Headers   string // a JSON object; empty: none
}

// Settled counts what a Settle did. Changed + Fenced + Missing is the number
// of settlements that it was given.
type Settled struct {
	Changed int
	Fenced  int // not changed: the lane's lease, or the row's claim, is another's now
	Missing int // not changed: not there any more (settled before, taken away by an operator, or its id is another message's now)
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

	// Batches are the planned batches with rows of this lane that a deduplicating sink
	// may have already.
	Batches []SentBatch
}

// Suspect is a message that was being sent when its relay died: it may have
// brought the relay down.
type Suspect struct {
	Sink    string `json:"sink"` // to which it was being sent
	ID      int64  `json:"id"`
	Check   uint32 `json:"check"`             // of its message's id, as in a SentBatch
	Crashes int    `json:"crashes,omitempty"` // relays that died before while it alone was being sent
	Alone   bool   `json:"alone,omitempty"`   // nothing else was being sent
}

// SentBatch is what lies in one lane of a batch that goes to a sink which
// recognises it when it comes again. It holds until its rows are settled.
type SentBatch struct {
	Sink   string  `json:"sink"`
	Batch  string  `json:"batch"`
	Size   int     `json:"size"`   // rows of the batch, in all lanes
	IDs    []int64 `json:"ids"`    // the rows
	Places []int   `json:"places"` // and where each stands in the batch

	// Checks has a checksum (CRC-32, IEEE) of each row's message's id: a row's id may have been given
	// to another message since, which is none of the batch.
	Checks []uint32 `json:"checks"`
}

// Journal is what is about to be sent of one lane.
type Journal struct {
	Lease
	Suspects []Suspect
	Batches  []SentBatch
}

// Journaler is implemented by a Store that can remember what is being sent: so
// that a message that brings its relays down is found and parked, and for sinks
// that recognise a batch. Without one, neither is done.
type Journaler interface {
	// WriteJournal replaces the journals of these lanes, and returns the leases
	// that still held. A release or a calm renewal clears the lane's journal.
	WriteJournal(ctx context.Context, relay string, journals []Journal) ([]Lease, error)

	// Journals returns the journals of all lanes that have one, whoever holds
	// them.
	Journals(ctx context.Context) ([]Journal, error)

	// Pick returns rows, pending or held (but not parked), whoever holds their
	// lanes. Those that are not there are left out; an id that was given out again
	// may bring several.
	Pick(ctx context.Context, rows []RowID) ([]Row, error)
}

// RowID names a row.
type RowID struct {
	Lane int
	ID   int64
}

// Renewal extends a lease and stores the lane's marks.
type Renewal struct {
	Lease
	Marks Marks

	// Epoch is the one that the marks were made in. Where the server's is another
	// by now, the lane keeps the marks that it has. Empty: they are stored in any
	// case.
	Epoch string

	// Calm clears the lane's count of crashes.
	Calm bool
}

// BlockedKey is a key whose next message waits for another attempt, or is parked and
// holds it.
type BlockedKey struct {
	Lane  int
	Key   string
	Topic string
	Sinks string // as in Row
	ID    int64
}

// JoinSinks makes the text by which rows name sinks; SplitSinks takes it apart. A sink of a
// topic with several has no comma in its name.
func JoinSinks(names []string) string { return strings.Join(names, ",") }

// SplitSinks returns the names that JoinSinks has joined, of an empty text none.
func SplitSinks(sinks string) []string {
	if sinks == "" {
		return nil
	}
	return strings.Split(sinks, ",")
}

// MostSinks is how many bytes the names of a row's sinks have at most, joined: they are part of
// a key, which on SQL Server has 900 bytes at most, and two a character.
const MostSinks = 400

// LaneKey names a key.
type LaneKey struct {
	Lane int
	Key  string
}

// Position is where reading one lane goes on.
type Position struct {
	Lane  int
	After int64  // rows with higher ids only
	Until int64  // and none above this id; 0 means no bound
	Key   string // only rows with this key; empty means all. Of one read all positions have a key, or none has
}

// ReadRequest asks for a page of pending rows.
type ReadRequest struct {
	Positions []Position
	Limit     int // at most so many rows

	// MaxBytes ends the page early once it has so many bytes of payload; it has at least one row.
	MaxBytes int

	// Except lists topics whose rows the page may leave out, unless a row names sinks. A store may
	// ignore it. If it isn't empty, no position has a key.
	Except []string
}

// Page is what one Read returned.
type Page struct {
	// Rows in the order of ids within each lane.
	Rows []Row

	// More: a limit was met (of all rows, of the rows of one position, or of
	// bytes), so there is probably more. Without it, every position was read to
	// its end.
	More bool

	// Through: where there is more, every position was read up to this id at least
	// (or to its end). 0 where the store can't say.
	Through int64

	// LateAfter: since the last Read of this Store that returned without an
	// error, rows may have appeared with ids above this one, also at or below
	// ids that had been read; in any lane, visited or not. Negative where none
	// can have.
	LateAfter int64

	// SafeID: no row can appear any more at or below this id.
	SafeID int64

	// LastID: no higher id was given out, as far as the store knows. It is lower than
	// before, or than a position that was read from, only where ids began anew. The store may know
	// only of ids that rows have shown, unless the page has no More and a position's Until is higher.
	LastID int64

	// Epoch names the state of the server: it changes when another server answers,
	// or the same one after it may have lost what it had committed, so that ids
	// that were read may be given out again. Empty where neither can happen.
	Epoch string

	// Warning, if it isn't empty, is what an operator should know: something
	// hampers the store, which goes on.
	Warning string
}

// Candidate is a row that a Scan has met.
type Candidate struct {
	ID    int64
	Lane  int
	Topic string
	Key   string
	Sinks string // as in Row
	Bytes int    // of its payload
}

// DueCursor is where a reading of due rows goes on: the row that was last
// returned. The zero value is the start.
type DueCursor struct {
	At time.Time
	ID int64
}

// ScanTogether is how many rows one Scan walks over at most, all as they are at
// one moment.
const ScanTogether = 10_000

// MostFenceStep is by how much a lane's fence grows at most when it is leased. A server that
// loses what it did last has an old fence again, and the same relay may lease the lane anew: its
// fence is another one then than that of the lease that was lost, so that what is still
// under way under that one changes nothing.
const MostFenceStep = 1 << 30

// LaneStore is the part of a Store that claims by lanes.
type LaneStore interface {
	// Acquire leases up to count lanes that are free or whose lease has ended, each with a
	// fence that is higher than before by a random number of up to MostFenceStep.
	Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]Grant, error)

	// Renew extends leases by ttl from now, stores the marks, and returns the
	// leases that still held: those whose fence is the lane's, also where the
	// lease had ended but nobody took the lane.
	Renew(ctx context.Context, relay string, renewals []Renewal, ttl time.Duration) ([]Lease, error)

	// Release gives lanes back at once, with their marks.
	Release(ctx context.Context, relay string, renewals []Renewal) error

	// BlockedKeys returns the keys of these lanes that a retry holds, or a row with
	// another Hold than NoHold, up to limit.
	BlockedKeys(ctx context.Context, lanes []int, limit int) ([]BlockedKey, error)

	// BlockedAmong returns those of these keys that such a row holds, each with the
	// lowest id of each topic and of each Sinks, in no order: all that was committed before it was
	// called counts. It is asked for a page's keys, each once, and must not take
	// longer where more keys are held.
	BlockedAmong(ctx context.Context, keys []LaneKey) ([]BlockedKey, error)

	// Read returns the pending rows at the positions of the request. What it returns of a
	// position is without gaps, but for rows that the request leaves out; where it can't read
	// the positions all to their end, the page says More, and which ones it has visited is its
	// own choice. Without positions it returns no rows, and what else a page tells.
	Read(ctx context.Context, request ReadRequest) (Page, error)

	// Scan walks over the pending rows at the given positions, up to
	// [ScanTogether] of them, and returns those that keep approves, in the order
	// of ids, and the positions that are left to walk. Rows of the topics in
	// except that name no sinks may be left out, so that they need not be sent. No position has
	// a key.
	Scan(ctx context.Context, positions []Position, except []string, keep func(Candidate) bool) (rows []Row, left []Position, err error)

	// FoundLate is told that a row was found where a page had said that none can
	// appear: the store concludes from now on from what it sees from now on. It is
	// called where Read is, in turn.
	FoundLate()

	// Due returns up to limit held rows of the lanes that are due now
	// (scheduled or retry), by their time, after the cursor. Of rows with one time and id, as
	// those of one message may be, some may be left out behind a limit, until Due begins anew.
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
	Relay string
	Token string // unique to this run of the relay, or to this claim
	TTL   time.Duration
	Limit int

	// MaxBytes bounds the payload of what is claimed, if it is positive: no row is
	// claimed after the one that reaches it. So one row is claimed at least.
	MaxBytes int

	Pick   Pick
	Topics []string // only these; none means all
	Except []string // none of these

	// Unprompted says that it is only time for another look. A store that can look
	// for free rows for less than it claims does so first.
	Unprompted bool
}

// RowStore is the part of a Store that claims by rows. Its methods, and a
// settlement by token, change nothing of a table that has been changed to lanes
// meanwhile: a relay may have been stopped while others did so. They return
// [ErrOtherClaim] then, where there would have been something to do; a settlement
// counts as fenced.
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

// Filter selects messages for an operator. Empty fields select everything;
// those that are set must all match.
type Filter struct {
	IDs     []string  // each a row's id in decimal, or a message's id
	Topic   string    // exactly this topic
	Key     string    // exactly this key
	Sink    string    // only those that name this sink, as messages of several do once their sinks differ
	State   State     // only this state
	Since   time.Time // written at or after
	Error   string    // last_error contains this text
	Holds   bool      // only parked rows that hold their keys, as HoldsKey does
	AfterID int64     // only higher ids: the next page of a listing; what Limit cuts off of rows with one id isn't there
	Limit   int       // at most so many; 0 means 100 for a listing, all for a change

	// MaxBytes ends a listing with the row by which its payloads have so many bytes, and
	// those that have its id; 0 means [ListBytes]. AfterID goes on from there.
	MaxBytes int

	// LookThrough bounds a listing's work: of each of the tables about so many messages after
	// AfterID are looked at, and those behind them aren't found. 0 is all. A Store that finds
	// them by an index may look at more, and by IDs it looks at all: see Find.
	LookThrough int

	// NewestFirst: Parked goes from the highest id to the lowest.
	NewestFirst bool

	// NoPayloads: a listing needs none. A Store may bring them all the same.
	NoPayloads bool
}

// ListBytes is how many bytes of payload a listing has, about.
const ListBytes = 8 << 20

// Expired is what the last_error of a message begins with that was parked as it had
// expired.
const Expired = "expired: "

// Info is a message with everything that its table knows of it.
type Info struct {
	Row
	State      State
	LastError  string
	Receipt    string
	ClaimedBy  string
	FinishedAt time.Time // zero unless done
}

// RelayInfo is a line of the table of relays.
type RelayInfo struct {
	Name          string    `json:"name"`
	Host          string    `json:"host"`
	Version       string    `json:"version"`
	Claim         Claim     `json:"claim"`
	Since         time.Time `json:"since"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
	Alive         bool      `json:"alive"`
	Lanes         int       `json:"lanes"` // leased now
	Config        Config    `json:"config"`
}

// Status is what a table holds, counted.
type Status struct {
	Claim         Claim            `json:"claim"` // empty before the first relay
	Counts        map[State]int64  `json:"-"`     // all six states
	OldestPending time.Duration    `json:"-"`     // age of the oldest row that could be delivered now; 0 without one
	OldestRetry   time.Duration    `json:"-"`     // age, since it was written, of the oldest message that waits for another attempt; 0 without one
	HeldKeys      int64            `json:"-"`     // parked rows that hold their keys; one a key and sink, but after a failover
	OldestHeld    time.Duration    `json:"-"`     // for how long the first of them has; 0 without one
	Relays        []RelayInfo      `json:"relays"`
	LanesLeased   int              `json:"lanes_leased"`
	Controls      []Control        `json:"-"` // in force
	Topics        map[string]int64 `json:"-"` // pending rows by topic, of the first 1,000 rows

	// There were too many to count of these states, which are sorted: Counts has estimates of
	// the Estimated ones, and of the AtLeast ones as many as were counted.
	Estimated, AtLeast []State `json:"-"`

	// Absent names what could not be had in time, and is zero here.
	Absent []Gauge `json:"-"`
}

// Has says whether a gauge could be had.
func (s Status) Has(gauge Gauge) bool { return !slices.Contains(s.Absent, gauge) }

// Gauge is a part of a Status that is asked for by itself.
type Gauge string

// The gauges.
const (
	GaugeCounts        Gauge = "counts"
	GaugeOldestPending Gauge = "oldest_pending"
	GaugeOldestRetry   Gauge = "oldest_retry"
	GaugeHeldKeys      Gauge = "held_keys" // HeldKeys and OldestHeld
	GaugeTopics        Gauge = "pending_topics"
	GaugeRelays        Gauge = "relays"
	GaugeLanes         Gauge = "lanes_leased"
)

// Operator is what people do with a table. sqlstore implements it. Its changes
// run in batches, each in a transaction of its own, and never touch a row that
// a relay may be sending.
type Operator interface {
	// Status counts: each state up to a bound, and the rest is an estimate, so that it
	// takes no longer for a larger table. What takes too long all the same is absent.
	Status(ctx context.Context) (Status, error)

	// List returns messages by id, lowest first.
	List(ctx context.Context, filter Filter) ([]Info, error)

	// Find returns what List does of a filter that has IDs, and says how far it looked. By a message's id,
	// which no index has, it looks for about the patience, in short steps; 0 is for as long as it takes.
	// It always finds something or comes further. Where that wasn't enough there may be more above Found.Until: the same filter with it as the
	// AfterID goes on.
	//
	// Most ids begin with a time: those of a Writer, UUIDs of version 7, and those that MySQL makes, of version 1.
	// The rows that were written then are looked at first, and then those after them, where a replay's copies
	// are. Rows that were written half an hour before then, or earlier, are looked at only without a bound on the
	// patience, and if there is no other. A Store may always look at all rows.
	Find(ctx context.Context, filter Filter, patience time.Duration) (Found, error)

	// Requeue makes parked messages due at once, with no attempts charged, and
	// says how many. One that holds its key goes before the rest of it. Those that are
	// parked as they had expired, as their last_error says by [Expired], never expire
	// again. Other states are not touched.
	//
	// With StateRetry in the filter it has messages due at once that wait for their next
	// attempt, and no others. Their attempts stay. One that is due already is a relay's.
	Requeue(ctx context.Context, filter Filter) (int, error)

	// Redirect is Requeue to one sink, whichever they were for. Messages that hold their keys are not
	// touched, nor those of which there are other rows, for other sinks.
	//
	// With StatePending in the filter it is about messages that wait, whether pending, scheduled or retries, and name
	// the filter's Sink alone, and no others. They get no place before what waits for the new sink, and are due when they were, or at
	// once. The caller makes sure that no relay has the filter's Sink, and so none is sending them.
	Redirect(ctx context.Context, filter Filter, sink string) (int, error)

	// Skip has the keys go on that parked messages hold, and says how many messages
	// that were. These stay parked. Others are not touched.
	//
	// A relay that claims by lanes carries it out, within a second or two where its
	// sinks have room; until then the message is a retry that holds its key.
	//
	// With StateRetry in the filter it is about messages that wait for their next attempt, and
	// no others: these are parked, and their keys go on. By rows, where keys don't wait, it
	// touches none.
	Skip(ctx context.Context, filter Filter) (int, error)

	// Discard deletes parked messages for good and says how many. Of those that
	// hold their keys a relay does so, as with Skip, and the keys go on. Other
	// states are not touched. With StateRetry in the filter it is about messages that wait
	// for their next attempt, and no others.
	Discard(ctx context.Context, filter Filter) (int, error)

	// Parked calls each with every parked message that the filter selects, by id, lowest first unless it is NewestFirst; the
	// filter's limits don't count. If it fails, each may have had some of them. It keeps no list of them, as there may be very many.
	//
	// It looks which of them were overtaken, among the delivered messages that have ids above
	// the lowest of theirs by at most within; 0 looks at none. It reads each of these once, so
	// that tells the work.
	Parked(ctx context.Context, filter Filter, within int64, each func(Parked)) error

	Replayer
	Controller
}

// Found is what Find has found, by id, lowest first.
type Found struct {
	Infos []Info

	// Until is the id of a row up to which rows were looked at, and Last the highest id that was given out: not all
	// were where Until is lower. Both are 0 where all were.
	Until, Last int64
}

// All says that there is nothing left to look at.
func (f Found) All() bool { return f.Until >= f.Last }

// MostParkedError is the length of Parked.Error.
const MostParkedError = 200

// Parked is a parked message without what it carries.
type Parked struct {
	ID         int64
	Lane       int
	Topic, Key string
	Sinks      string // as in Row
	HoldsKey   bool   // as HoldsKey does
	Error      string // the first MostParkedError characters of last_error

	// Overtaken: a message with the same key and a higher id was delivered, of whatever topic,
	// and is there still. What the retention has deleted isn't known, nor what is being sent.
	Overtaken bool
}

// TxStore is implemented by a Store over a SQL database: its way for handlers
// whose writes commit together with the mark, so that their effect happens
// exactly once.
type TxStore interface {
	// HandleTx locks the fence, marks the row done, for all of its sinks or for some, and
	// requires that this changed it, runs the handler, and commits. An error of the handler rolls
	// everything back and is returned as it is; ErrFenced means that the row is
	// no longer this relay's.
	HandleTx(ctx context.Context, relay string, keep bool, done Settlement, handler func(context.Context, *sql.Tx) error) error
}
