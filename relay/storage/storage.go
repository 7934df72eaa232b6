// Package storage defines the [Store], the contract between the relay engine and a table of messages,
// and the [Operator], through which commands and web pages inspect and change messages. Package
// sqlstore implements both over database/sql; package rowrelaytest implements the Store in memory. A
// program that runs a relay needs this package only for its filters and states.
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
	// ErrOtherClaim means that the table is claimed in the other mode (lanes or rows), and that a relay in
	// that mode is alive.
	ErrOtherClaim = errors.New("the table is claimed in another mode")

	// ErrNoSchema means that the tables are missing or have another version.
	ErrNoSchema = errors.New("the schema is missing or has another version")

	// ErrNewerSchema wraps ErrNoSchema: the tables have a newer version than this release supports.
	ErrNewerSchema = fmt.Errorf("%w: it is newer", ErrNoSchema)

	// ErrFenced means that the row belongs to another relay now, so this relay must not change it.
	ErrFenced = errors.New("the lease or claim belongs to another relay now")

	// ErrInvalid means that the database rejects a value of a row, and would reject it again.
	ErrInvalid = errors.New("the database rejects a value of a row")

	// ErrRefused means that the database rejects the request regardless of its rows, and would reject it
	// again: a permission is missing, or a setting or the definition of the tables forbids the statement.
	ErrRefused = errors.New("the database rejects the request")

	// ErrBusy means that the database rejected the call temporarily (a deadlock, a serialization failure,
	// a locked file). Nothing was changed, and the call can be repeated.
	ErrBusy = errors.New("the database is busy")

	// ErrTimeout means that the server ended the call because it took longer than a setting of the
	// server or of the database user allows. Nothing was changed. A call with fewer rows may succeed.
	ErrTimeout = errors.New("a time limit of the database ended the call")
)

// ForeignTable is the error for a table or a view that has a name that rowrelay uses, but was created by another
// program.
type ForeignTable struct {
	Table   string
	Columns []string // in lower case
}

// Error names the table. If the columns look like Debezium's, the text names Debezium; otherwise it
// lists the first 12 columns.
func (f *ForeignTable) Error() string {
	text := "the table " + f.Table + " exists, but rowrelay didn't create it: its columns "
	if slices.Contains(f.Columns, "aggregatetype") && slices.Contains(f.Columns, "aggregateid") {
		return text + "look like Debezium's"
	}
	shown := f.Columns[:min(len(f.Columns), 12)]
	text += "are " + strings.Join(shown, ", ")
	if len(shown) < len(f.Columns) {
		text += ", …"
	}
	return text
}

// Claim is a mode of claiming messages.
type Claim string

// The claim modes.
const (
	ByLanes Claim = "lanes" // relays lease lanes, and send the messages of each key in order
	ByRows  Claim = "rows"  // relays claim batches of rows, and keep no order
)

// Identity describes a relay in the table of relays.
type Identity struct {
	Name    string // unique among living relays
	Host    string
	Version string
	Claim   Claim
	Config  Config
}

// Config describes a relay to the other relays. It is written with each heartbeat. Its text has at most
// MaxConfig bytes. Consumers use the zero Config.
type Config struct {
	// Print is a fingerprint of all sinks, routes and topics: relays with the same fingerprint send each
	// message to the same destinations.
	Print string `json:"print,omitempty"`

	// Sinks and Routes describe the sinks and routes for people, without secrets. If the text would be too long, the last entries are
	// omitted.
	Sinks  []string `json:"sinks,omitempty"`
	Routes []string `json:"routes,omitempty"`

	// Topics lists the topics that the relay is limited to. Only a relay that claims by rows can be
	// limited to topics. The list is empty if the relay has no such limit, or if the text would be too
	// long. If two relays list topics and have none in common, they ignore each other's messages.
	Topics []string `json:"topics,omitempty"`

	Membership Membership `json:"membership,omitempty"`

	// Joins reports that the relay is configured to share the messages with relays that have another
	// configuration. Those relays don't wait for this relay to stop.
	Joins bool `json:"joins,omitempty"`
}

// Membership says whether a relay delivers its share of the messages.
type Membership string

// The memberships of relays.
const (
	Active       Membership = ""              // it delivers messages
	Begins       Membership = "begins"        // it will deliver, unless a relay with another configuration is active
	Standby      Membership = "standby"       // it waits until the relays with another configuration have stopped
	StandingDown Membership = "standing_down" // it leaves its share of the messages to other relays, if any are alive
)

// MaxConfig is the maximum length of the text of a Config, in bytes.
const MaxConfig = 2000

// Text returns the Config as the table stores it: as JSON, or as an empty string if Print and Membership are empty.
func (s Config) Text() string {
	if s.Print == "" && s.Membership == Active {
		return ""
	}
	text, _ := json.Marshal(s) // can't fail: the fields are strings, lists of strings and a boolean
	return string(text)
}

// Member is a living relay.
type Member struct {
	Name   string
	Config Config // from its last heartbeat
}

// Members is the result of a heartbeat: the living relays and the state of the server.
type Members struct {
	Relays []Member // the living relays, including this one, sorted by name

	// Epoch is the epoch of the server that answered the heartbeat, as in [Page].
	Epoch string

	// Now is the database's time when the database answered the heartbeat, or slightly earlier. The relay uses it to decide which messages
	// have expired, because its own clock may differ. If Now is zero, the time is unknown, and the relay treats no message as expired.
	Now time.Time
}

// Store is a table of messages, with the operations that a relay needs. Package sqlstore implements it
// over database/sql. Package storetest is the conformance suite that every Store must pass.
//
// All methods may be called concurrently, except Read, Scan, Due and FoundLate: only one goroutine
// calls these, one call at a time. All times are on the database's clock. A method that fails has
// changed nothing; if the connection broke, the outcome is unknown. Every call may be repeated.
type Store interface {
	// SetClaimMode stores the claim mode with the table. It returns ErrOtherClaim if the table has the
	// other mode and a relay in that mode is alive.
	SetClaimMode(ctx context.Context, claim Claim) error

	// Heartbeat records that the relay is alive for the next ttl, and returns the living relays.
	Heartbeat(ctx context.Context, self Identity, ttl time.Duration) (Members, error)

	// Deregister removes the relay from the table of relays.
	Deregister(ctx context.Context, name string) error

	// FenceRelay ends the leases of a relay that is known to be dead, or its claims if the mode is ByRows,
	// as if they had expired. It also deletes the relay from the table of relays. If the relay is alive
	// after all, it is fenced immediately: it can renew none of its leases, even if no other relay has
	// leased the lanes yet.
	FenceRelay(ctx context.Context, name string, claim Claim) error

	// Settle writes settlements to the table in one transaction. If the table is claimed by lanes, Settle
	// first locks the rows of the settlements' lanes against a takeover. It changes nothing in a lane that
	// has another fence or another owner. It compares both because a failover of the database may undo leases, after which the same fences
	// could be issued again. If keep is true, done rows are kept. Settle is fastest if the settlements are ordered by lane and id. The
	// caller may change the settlements after Settle has returned.
	Settle(ctx context.Context, relay string, keep bool, settlements []Settlement) (Settled, error)

	// Purge deletes at most limit done rows that finished longer ago than the retention. It also
	// deletes at most limit message ids that producers stored to reject duplicates. An id is deleted if
	// it was stored longer ago than the retention and its message is gone or done. It may be kept
	// longer while old rows are pending. Purge also deletes relays that have been dead for a long time.
	// It returns the number of deleted rows or the number of deleted ids, whichever is higher. If
	// another transaction, such as that of an abandoned purge, has locked rows, a later call deletes
	// these rows.
	Purge(ctx context.Context, retention time.Duration, limit int) (int, error)

	// Remaining calls its callback for every row that is due: pending rows that no relay has claimed, and
	// held rows (scheduled or retry). It selects rows only by their times, not by lane or id, and visits
	// them in no particular order. Rows that another transaction has locked are included.
	// Remaining fills in the ID, the Lane, the message's ID, Topic and Key, the Sinks, and Deferred. It
	// keeps no list of the rows.
	//
	// Remaining stops when the callback returns false. A limit above 0 applies to the pending rows and to
	// the held rows separately. A Store may instead apply it to both together. If the database was
	// busy, the callback may receive a row twice. The callback must not keep the pointer.
	Remaining(ctx context.Context, limit int, each func(*Row) (more bool)) error

	// Parallelism returns how many calls one relay should run concurrently.
	Parallelism() Parallelism

	// Controls returns the controls that are in force; see [Controller]. A relay calls it about once a second.
	Controls(ctx context.Context) ([]Control, error)

	LaneStore
	RowStore
}

// Parallelism has the number of concurrent calls with which a store is fastest, for each kind of call.
// Each number is at least 1. A relay runs at most 2 settlements concurrently.
type Parallelism struct{ Claims, Settles int }

// Lanes is the number of lanes that keys are distributed over. It is part of the table's contract: the
// table computes a row's lane from its key.
const Lanes = 64

// Row is a message as its table stores it.
type Row struct {
	ID      int64 // ids grow in the order of insertion
	Lane    int   // 0 to Lanes-1
	Message outbox.Message

	// Sinks names the sinks that still need the message or, if the row is done, the sinks that received
	// it. It has the form of [JoinSinks]. Empty means all sinks of the topic. A message may have one
	// pending row and several held or done rows; no two of them name the same sink.
	Sinks string

	// Malformed is empty if all columns could be read. Otherwise it names the column that can't be read,
	// and the reason: the headers are not a JSON object of strings, or a time is invalid. The relay parks
	// such a message.
	Malformed string

	Attempts  int // attempts charged so far
	Crashes   int // number of relays that died while this was their only message in flight
	CreatedAt time.Time

	// Deferred reports that the row was read from the held rows (scheduled or retry, now due), not from the pending rows.
	Deferred bool

	// Retrying reports that the row waits for its next attempt, and so blocks its key.
	Retrying bool

	// Later reports that the row's AvailableAt was in the future, on the database's clock, when the row
	// was read.
	Later bool

	// NeverExpires reports that the message had expired and an operator has requeued it. The message is
	// sent regardless of its age, and its ExpiresAt is zero.
	NeverExpires bool

	// Holds says whether a parked row holds its key, and whether an operator wants the row skipped or
	// discarded.
	Holds Hold
}

// Hold says how a row that was parked with [Settlement.Holds] affects its key. Unless it is NoHold, the
// row blocks its key. The relay that holds the row's lane carries out an operator's skip or discard;
// then the key's next message can be sent. Until then the row is due, like a retry, so that the relay
// reads it.
type Hold int

// The values of the column named holds.
const (
	NoHold      Hold = iota
	HoldsKey         // the row is parked (StateError), and no later message of its key is sent
	WantSkip         // the relay must park the row without holding its key (StateRetry until then)
	WantDiscard      // the relay must delete the row (StateRetry until then)
)

// State is a message's state, named as in the view outbox_messages.
type State string

// The states.
const (
	StatePending   State = "pending"   // to be delivered now
	StateClaimed   State = "claimed"   // claimed by a relay that claims by rows
	StateScheduled State = "scheduled" // to be delivered at its AvailableAt
	StateRetry     State = "retry"     // waits for its next attempt
	StateError     State = "error"     // parked
	StateDone      State = "done"      // delivered

	// StateDiscarded is used only in settlements: the row is deleted, even if done rows are kept.
	StateDiscarded State = "discarded"
)

// Settlement is the new state of one row. It applies only if the row's id, lane and message id match,
// because after a failover or a restore of the database the id may belong to another message.
type Settlement struct {
	ID        int64
	Lane      int
	MessageID string // as in the row that was read
	Fence     int64  // used only when claiming by lanes: the fence of the lease under which the row was read
	Token     string // used only when claiming by rows: the token of the row's claim
	Deferred  bool   // whether the row was read from the held rows, as in Row

	// AvailableAt is copied from the row that was read, and is used only with Deferred. If the time in
	// the table has become later, the row has been settled already or an operator has changed it, so the
	// settlement leaves the row unchanged. If AvailableAt is zero, the times are not compared.
	AvailableAt time.Time

	// Sinks is copied from the row that was read. The held rows of one message differ by their sinks, and
	// the settlement changes only the row with these sinks. A message has only one pending row, so for a
	// pending row Sinks is compared only if Left is set.
	Sinks string

	// For and Left are set if the settlement is only for some of the message's sinks: For names these
	// sinks, and Left names the sinks that still need the message. They are used only when claiming by
	// lanes. The row stays in its state, with Left as its Sinks. Settle adds a second row, with For as
	// its Sinks and the State of the settlement: a done row (if done rows are kept), a retry or a parked
	// row. With StateDiscarded it adds no second row. If the sinks of the row in the table differ from
	// Sinks, Settle changes and adds nothing, so a repeated settlement counts as missing. If For and Left
	// are empty, the settlement applies to the whole row.
	//
	// It is an error to set only one of For and Left, to set Left to the row's present sinks, or to have
	// another settlement of the row in the same call of Settle. It is also an error to set For and Left
	// together with Token, because a relay that claims by rows sends a message to one sink only.
	For, Left string

	// State is the new state: StateDone, StateRetry, StateError, StateDiscarded, StateScheduled (the row
	// keeps its time), or StatePending (only when claiming by rows; it releases the claim).
	State State

	// Holds is used with StateError, and only when claiming by lanes. If it is true, the parked row blocks
	// its key. The database's present time becomes the row's AvailableAt, which then shows when the row
	// began to hold the key. If an operator has already asked to skip or discard the row, the settlement
	// leaves it unchanged and counts as missing.
	Holds bool

	Attempts int
	Crashes  int
	Delay    time.Duration // used with StateRetry: the time until the next attempt, from the database's present time
	Error    string        // the row's new last_error; empty leaves it unchanged
	Receipt  string        // used with StateDone: the sink's receipt

	// Failed are the failed attempts since the row was last written. Settle adds them to the row's AttemptLog
	// if the row becomes a retry or is parked or released. They are ignored with other states.
	Failed []Attempt

	// DeadLetter is used with StateError. Settle writes the dead letter in the same transaction, and only
	// if the settlement changes its row: a repeated or fenced settlement writes no dead letter.
	DeadLetter *Copy
}

// Copy is a new pending message that is made from a row. It has the row's key, payload and priority, and
// the values of the fields below. It also has the row's expires_at if that time has not passed. Its
// other columns have the defaults of a producer's INSERT, so the copy has its own id and creation time,
// and no attempts. Copies that are written together have ids in the order of their rows.
type Copy struct {
	MessageID string // a UUID: the row's message id or a new one
	Topic     string
	Sinks     string // as in Row
	Headers   string // a JSON object; empty if there are no headers
}

// Settled counts the results of one call of Settle. Changed + Fenced + Missing is the number of
// settlements in the call.
type Settled struct {
	Changed int
	Fenced  int // not changed: the lane's lease or the row's claim belongs to another relay now
	Missing int // not changed: the row was settled before, an operator has moved it, or its id belongs to another message now
}

// Lease is the right to deliver the messages of one lane. It is valid until the lane gets a higher
// fence.
type Lease struct {
	Lane  int
	Fence int64
}

// Marks are the low-water marks of a lane, one for each sink. Every row of the lane at or below a sink's
// mark is finished for that sink, and no new row can appear there. So a relay reads the lane only above
// its marks.
type Marks struct {
	// Routes is a fingerprint of the routes for which the sinks' marks were computed. If the relay that
	// reads the lane has other routes, only the lowest of all marks is valid.
	Routes string `json:"routes,omitempty"`

	// Main is the mark of every sink that has no mark of its own.
	Main int64 `json:"main"`

	// Sinks has the marks of the sinks that are behind the others.
	Sinks map[string]int64 `json:"sinks,omitempty"`
}

// Grant is a newly leased lane.
type Grant struct {
	Lease
	Marks Marks

	// Crashes is the number of relays that lost the lane without releasing it. Each release, and each
	// renewal with Calm (see [Renewal]), resets it to 0.
	Crashes int

	// Suspects are the messages of the lane that its last owner had recorded as being sent. The list is
	// empty if that relay released the lane.
	Suspects []Suspect

	// Batches are the recorded batches that have rows of this lane. A deduplicating sink may have received
	// them already.
	Batches []SentBatch
}

// Suspect is a message that was being sent when its relay died, and that may have caused the crash.
type Suspect struct {
	Sink    string `json:"sink"` // the sink to which the message was being sent
	ID      int64  `json:"id"`
	Check   uint32 `json:"check"`             // checksum of the message's id, as in SentBatch.Checks
	Crashes int    `json:"crashes,omitempty"` // number of earlier relays that died while this was the only message being sent
	Alone   bool   `json:"alone,omitempty"`   // no other message was being sent
}

// SentBatch describes the rows of one lane in a batch for a deduplicating sink. The sink recognizes
// the batch if it is sent again. A SentBatch is valid until its rows are settled.
type SentBatch struct {
	Sink   string  `json:"sink"`
	Batch  string  `json:"batch"`
	Size   int     `json:"size"`   // number of rows of the whole batch, in all lanes
	IDs    []int64 `json:"ids"`    // the ids of the rows in this lane
	Places []int   `json:"places"` // the index of each of these rows in the batch

	// Checks has a checksum (CRC-32, IEEE) of each row's message id. If the row with this id later has
	// another checksum, the id was issued again, to a message that is not part of the batch.
	Checks []uint32 `json:"checks"`
}

// Journal lists the messages of one lane that are about to be sent.
type Journal struct {
	Lease
	Suspects []Suspect
	Batches  []SentBatch
}

// Journaler is implemented by a Store that can record which messages are being sent. The engine uses
// the record to find and park a message that crashes its relays, and to repeat batches for
// deduplicating sinks. With a Store that isn't a Journaler, the engine does neither.
type Journaler interface {
	// WriteJournal replaces the journals of these lanes, and returns the leases that are still valid.
	// Release, and Renew with Calm, clear the journals of their lanes.
	WriteJournal(ctx context.Context, relay string, journals []Journal) ([]Lease, error)

	// Journals returns the journals of all lanes that have one, regardless of which relays own the lanes.
	Journals(ctx context.Context) ([]Journal, error)

	// Pick returns the given rows, regardless of which relays own their lanes. It omits rows that are
	// parked or delivered or don't exist. If an id was issued again, Pick may return several rows with
	// that id.
	Pick(ctx context.Context, rows []RowID) ([]Row, error)
}

// RowID identifies a row.
type RowID struct {
	Lane int
	ID   int64
}

// Renewal extends a lease and stores the lane's marks.
type Renewal struct {
	Lease
	Marks Marks

	// Epoch is the server's epoch ([Page]) when the marks were computed. If the server has another epoch, the lane keeps its stored marks.
	// If Epoch is empty, the marks are always stored.
	Epoch string

	// Calm clears the lane's count of crashes, and its journal.
	Calm bool
}

// BlockedKey is a key that is blocked by a message that waits for another attempt, or by a parked
// message that holds the key.
type BlockedKey struct {
	Lane  int
	Key   string
	Topic string
	Sinks string // as in Row
	ID    int64
}

// JoinSinks returns the text by which a row names its sinks; SplitSinks reverses it. The name of a
// sink must not contain a comma if its topic has several sinks.
func JoinSinks(names []string) string { return strings.Join(names, ",") }

// SplitSinks returns the names that JoinSinks joined. It returns nil for an empty text.
func SplitSinks(sinks string) []string {
	if sinks == "" {
		return nil
	}
	return strings.Split(sinks, ",")
}

// MostSinks is the maximum length of the joined names of a row's sinks, in bytes. The names are part of
// an index key. SQL Server limits an index key to 900 bytes, and stores two bytes a character.
const MostSinks = 400

// LaneKey is a key and its lane.
type LaneKey struct {
	Lane int
	Key  string
}

// Position is a range of ids to read in one lane.
type Position struct {
	Lane  int
	After int64  // only rows with higher ids
	Until int64  // only rows with at most this id; 0 means no limit
	Key   string // only rows with this key; empty means all. In one request, either all positions have a key or none has one
}

// ReadRequest asks for a page of pending rows.
type ReadRequest struct {
	Positions []Position
	Limit     int // maximum number of rows

	// MaxBytes ends the page when its payloads reach this many bytes. A page has at least one row.
	MaxBytes int

	// Except lists topics. Rows of these topics that name no sinks may be left out of the page. A store
	// may ignore Except. If Except is set, no position has a key.
	Except []string
}

// Page is the result of one Read.
type Page struct {
	// Rows are ordered by id within each lane.
	Rows []Row

	// More reports that Read met a limit (of rows, of rows of one position, or of bytes), so that more
	// rows probably exist. If it is false, every position was read to its end.
	More bool

	// Through is set with More: every position was read to its end or at least up to this id. It is 0 if
	// the store does not know.
	Through int64

	// LateAfter is the id above which late rows may have appeared since the last successful Read of this
	// Store, in any lane, even one that this Read didn't visit. A late row is a row whose transaction
	// was committed late, so higher ids may have been read before it. LateAfter is negative if no late
	// row can have appeared.
	LateAfter int64

	// SafeID is the highest id at or below which no new row can appear.
	SafeID int64

	// LastID is the highest id that was issued, as far as the store knows. If it is lower than the
	// LastID of an earlier page or than a position's After, the id sequence was reset. A store may know
	// only the ids of the rows that it has read. Such a store queries the last id if More is false and
	// the Until of a position is above these ids.
	LastID int64

	// Epoch identifies the state of the server. It changes when another server answers, or when the same
	// server may have lost committed data, so that ids that were read may be issued again. It is empty
	// if neither event is possible.
	Epoch string

	// Warning describes a condition that impairs the store, and that an operator should know about. The
	// store continues to work. Warning is empty if no such condition is known.
	Warning string
}

// Candidate is a pending row that Scan passes to its callback.
type Candidate struct {
	ID    int64
	Lane  int
	Topic string
	Key   string
	Sinks string // as in Row
	Bytes int    // size of its payload
}

// DueCursor is the position after the last row that Due returned. The zero value is the position before the first row.
type DueCursor struct {
	At time.Time
	ID int64
}

// ScanTogether is the maximum number of rows that one Scan visits. All of them are read from one
// snapshot.
const ScanTogether = 10_000

// MostFenceStep is the maximum by which a lease increases its lane's fence. If a server loses its last
// transactions, the lane has an old fence again, and the same relay may lease it a second time. Because the step is random, the new fence
// almost certainly differs from the fence of the lost lease. So calls that are still in flight under the lost lease change nothing.
const MostFenceStep = 1 << 30

// LaneStore is the part of a Store that claims by lanes.
type LaneStore interface {
	// Acquire leases at most count lanes that are free or whose lease has ended. It increases the fence
	// of each by a random number of at most MostFenceStep.
	Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]Grant, error)

	// Renew extends leases, so that they end after ttl, stores the marks, and returns the leases that
	// are still valid. A lease is valid if its fence is still the lane's fence. So a lease that has ended can be renewed as long as no
	// other relay has leased the lane.
	Renew(ctx context.Context, relay string, renewals []Renewal, ttl time.Duration) ([]Lease, error)

	// Release ends the leases immediately and stores the marks.
	Release(ctx context.Context, relay string, renewals []Renewal) error

	// BlockedKeys returns at most limit keys of these lanes that are blocked by a retry or by a row with
	// a Hold other than NoHold.
	BlockedKeys(ctx context.Context, lanes []int, limit int) ([]BlockedKey, error)

	// BlockedAmong returns the given keys that are blocked, by the same kinds of rows as in
	// BlockedKeys. For each topic and each value of Sinks of a key, it returns the lowest id. The order
	// is unspecified. The result includes everything that was committed before the call. The engine
	// passes the keys of a page, without duplicates. The duration of the call must not grow with the
	// number of blocked keys in the table.
	BlockedAmong(ctx context.Context, keys []LaneKey) ([]BlockedKey, error)

	// Read returns the pending rows in the request's positions, which are ranges of ids. Read skips no rows within a position, except the
	// rows that the request leaves out. If Read can't read all positions to their ends, it sets More, and it is free to choose which
	// positions it visits. Without positions, it returns no rows, but fills in the other fields of the page.
	Read(ctx context.Context, request ReadRequest) (Page, error)

	// Scan visits the pending rows at the given positions, at most [ScanTogether] of them. It returns
	// the rows for which the function keep returns true, in the order of ids, and the positions that
	// remain to be visited. It may leave out rows that name no sinks and whose topics are excepted,
	// without passing them to this function. The positions must have no keys.
	Scan(ctx context.Context, positions []Position, except []string, keep func(Candidate) bool) (rows []Row, left []Position, err error)

	// FoundLate reports to the store that a row was found where, according to a page, no row could appear.
	// From then on, the store derives LateAfter and SafeID only from what it observes after the call. Only
	// the goroutine that calls Read may call FoundLate.
	FoundLate()

	// Due returns at most limit held rows of the lanes (scheduled or retry) that are due now and follow
	// the cursor, in the order of their times. Several rows of one message may have the same time and id, so the limit may omit some of
	// them; the next call with the zero cursor returns the omitted rows.
	Due(ctx context.Context, lanes []int, after DueCursor, limit, maxBytes int) ([]Row, DueCursor, error)
}

// Pick is the order in which a relay claims rows.
type Pick string

// The orders in which a relay claims rows.
const (
	Oldest   Pick = "oldest"
	Newest   Pick = "newest"
	Priority Pick = "priority" // highest priority first; the oldest first within one priority
)

// ClaimRequest says which rows to claim, and for how long.
type ClaimRequest struct {
	Relay string
	Token string // unique to this run of the relay or to this claim
	TTL   time.Duration
	Limit int

	// MaxBytes limits the payload of the claimed rows, if it is positive: the row that reaches the limit
	// is the last one claimed. So a claim can always return at least one row.
	MaxBytes int

	Pick   Pick
	Topics []string // claim only rows of these topics; empty means all topics
	Except []string // claim no rows of these topics

	// Unprompted reports that the poll interval is the only reason for the claim, and nothing suggests
	// that new rows exist. If a store has a cheaper check for free rows than a claim, it makes that check
	// first.
	Unprompted bool
}

// RowStore is the part of a Store that claims by rows. If the table was changed to claiming by
// lanes, for example while the relay's process was suspended, these methods change nothing. They
// return [ErrOtherClaim] if they would have changed something. A settlement with a Token then
// counts as fenced.
type RowStore interface {
	// Claim marks at most Limit free rows with the token and returns them. It skips rows that
	// another transaction has locked.
	Claim(ctx context.Context, request ClaimRequest) ([]Row, error)

	// Extend renews the claims of these rows, so that they end after ttl, and returns the ids of the
	// rows that were still claimed with the token.
	Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error)

	// Reclaim frees at most limit rows whose claim has expired, and counts a crash for each. It also makes at most limit due held rows
	// pending. It returns the number of rows that can be claimed as a result.
	Reclaim(ctx context.Context, limit int) (int, error)
}

// Filter selects messages for an operator. An empty field selects every message; a message must match
// all fields that are set.
type Filter struct {
	IDs         []string  // each is a row's id in decimal or a message's id
	Topic       string    // exactly this topic
	TopicPrefix string    // only topics that begin with this text
	Key         string    // exactly this key
	Sink        string    // only rows that name this sink in Row.Sinks; a row for all sinks of its topic names no sink
	State       State     // only this state
	Since       time.Time // written at or after this time
	Error       string    // last_error contains this text
	Holds       bool      // only parked rows that hold their keys (HoldsKey)
	AfterID     int64     // only higher ids, for the next page of a listing; further rows with this id are not listed
	Limit       int       // maximum number of messages; 0 means 100 for a listing, and no limit for a change

	// MaxBytes ends a listing when its payloads have reached this many bytes. The listing includes the row
	// that reached the limit, and the other rows with the same id; for the next page, set AfterID to that
	// id. 0 means [ListBytes].
	MaxBytes int

	// LookThrough limits the work of a listing: it examines about this many messages after AfterID in each
	// of the tables, and does not find later messages. 0 means no limit. A Store that finds messages by an index may examine more. A
	// listing by IDs ignores LookThrough: see Find.
	LookThrough int

	// NewestFirst makes Parked return the highest id first.
	NewestFirst bool

	// NoPayloads allows a listing to leave out payloads. A Store may return them nevertheless.
	NoPayloads bool
}

// ListBytes is the approximate maximum of the payloads in one listing, in bytes.
const ListBytes = 8 << 20

// Expired is the prefix of a message's last_error if the message was parked because it had expired.
const Expired = "expired: "

// Info is a message with all columns of its table.
type Info struct {
	Row
	State      State
	LastError  string
	Receipt    string
	ClaimedBy  string
	FinishedAt time.Time // zero unless done

	// AttemptLog has the message's last failed attempts. Find returns it, and List returns it if the
	// filter has IDs. It is empty for a delivered message. It lacks the attempts of releases that had no attempt log.
	AttemptLog AttemptLog
}

// RelayInfo is a row of the table of relays.
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

// Status is a summary of a table.
type Status struct {
	Claim         Claim            `json:"claim"` // empty until a relay has started
	Counts        map[State]int64  `json:"-"`     // all six states
	OldestPending time.Duration    `json:"-"`     // age of the oldest row that could be delivered now; 0 if none exists
	OldestRetry   time.Duration    `json:"-"`     // age of the oldest message that waits for another attempt; 0 if none exists
	HeldKeys      int64            `json:"-"`     // number of parked rows that hold their keys; at most one for each key and sink, except after a failover
	OldestHeld    time.Duration    `json:"-"`     // the longest time for which one of these rows has held its key; 0 if none exists
	Relays        []RelayInfo      `json:"relays"`
	LanesLeased   int              `json:"lanes_leased"`
	Controls      []Control        `json:"-"` // in force
	Topics        map[string]int64 `json:"-"` // pending rows by topic, among the first 1,000 rows

	// Estimated and AtLeast list the states with too many rows to count, in sorted order. For the states
	// in Estimated, Counts has an estimate. For the states in AtLeast, Counts has the number of rows that were counted, which is a lower
	// bound.
	Estimated, AtLeast []State `json:"-"`

	// Absent lists the gauges that could not be determined in time. Their fields are zero.
	Absent []Gauge `json:"-"`
}

// Has reports whether the gauge could be determined.
func (s Status) Has(gauge Gauge) bool { return !slices.Contains(s.Absent, gauge) }

// Gauge is a part of a Status that is queried separately.
type Gauge string

// The gauges of a Status.
const (
	GaugeCounts        Gauge = "counts"
	GaugeOldestPending Gauge = "oldest_pending"
	GaugeOldestRetry   Gauge = "oldest_retry"
	GaugeHeldKeys      Gauge = "held_keys" // HeldKeys and OldestHeld
	GaugeTopics        Gauge = "pending_topics"
	GaugeRelays        Gauge = "relays"
	GaugeLanes         Gauge = "lanes_leased"
)

// Operator is the interface by which people and tools inspect and change the messages of a table.
// Package sqlstore implements it. Changes run in batches, each in its own transaction. A change
// never touches a row that a relay may be sending.
type Operator interface {
	// Status counts the rows of each state up to a limit, so that its duration doesn't depend on
	// the table's size. Higher numbers are estimates or lower bounds. A gauge that takes too long
	// is listed in Absent.
	Status(ctx context.Context) (Status, error)

	// List returns messages by id, lowest first.
	List(ctx context.Context, filter Filter) ([]Info, error)

	// Find returns the messages that List returns for a filter with IDs, and how far it searched. Message
	// ids are not indexed, so Find searches for them in short steps. It stops when about `patience` has
	// passed; 0 means no time limit. Each call finds a message or advances Found.Until. If the search did
	// not finish, more messages may exist above Found.Until: call Find again with the same filter and
	// Found.Until as its AfterID.
	//
	// Most message ids contain the time when they were made: a Writer makes UUIDs of version 7, and
	// MySQL makes UUIDs of version 1. Find first examines the rows that were written around that time,
	// then the later rows, which include the copies of a replay. It examines rows that were written
	// half an hour or more before that time only if it has no time limit and has found no other row. A
	// Store may always examine all rows.
	Find(ctx context.Context, filter Filter, patience time.Duration) (Found, error)

	// Requeue makes parked messages due immediately, resets their attempts to 0, and returns how many it
	// changed. A message that holds its key is sent before the later messages of the key. Messages that
	// were parked because they had expired never expire again; Requeue recognizes them by the prefix
	// [Expired] of last_error. Messages in other states are not changed.
	//
	// With StateRetry in the filter, Requeue changes only messages that wait for their next attempt: it
	// makes them due immediately, and they keep their attempts. It does not change a message that is due
	// already, because a relay may be sending it.
	Requeue(ctx context.Context, filter Filter) (int, error)

	// Redirect requeues parked messages like Requeue, but to one sink, regardless of the sinks that they
	// name. It does not change messages that hold their keys, or messages that also have rows for other
	// sinks.
	//
	// With StatePending in the filter, Redirect changes only waiting messages (pending, scheduled or
	// retries) that name only the filter's Sink. They are not moved ahead of messages that wait for the
	// new sink. Retries become due immediately; the other messages keep their due time. The caller must make sure that no relay has the
	// filter's Sink, so that no relay is sending these messages.
	Redirect(ctx context.Context, filter Filter, sink string) (int, error)

	// Skip unblocks the keys that parked messages hold, and returns the number of these messages. These
	// messages stay parked. Other messages are not changed.
	//
	// If the table is claimed by lanes, a relay carries out the skip, within a second or two if its sinks
	// have capacity. Until then the message is a retry that holds its key.
	//
	// With StateRetry in the filter, Skip changes only messages that wait for their next attempt: it parks
	// them and unblocks their keys. If the table is claimed by rows, retries don't block keys, and Skip
	// doesn't change them.
	Skip(ctx context.Context, filter Filter) (int, error)

	// Discard deletes parked messages permanently and returns how many. If a parked message holds its
	// key, a relay deletes the message and so unblocks the key, as with Skip. Messages in other states
	// are not changed. With StateRetry in the filter, Discard changes only messages that wait for their
	// next attempt.
	Discard(ctx context.Context, filter Filter) (int, error)

	// Parked calls its callback for every parked message that the filter selects, lowest id first, or
	// highest id first with NewestFirst. It ignores the filter's limits. If Parked fails, the callback
	// may have received some of the messages. Parked keeps no list of the messages, because there may be
	// millions.
	//
	// To fill in Overtaken, Parked reads the delivered messages whose ids exceed the lowest parked id
	// by at most `within`, each of them once. If `within` is 0, it reads no delivered messages.
	Parked(ctx context.Context, filter Filter, within int64, each func(Parked)) error

	Replayer
	Controller
}

// Found is the result of Find.
type Found struct {
	// Infos are the messages, lowest id first, at most Filter.Limit. If their number is Filter.Limit, more
	// may exist above the last one's id.
	Infos []Info

	// Until is the id up to which Find examined rows, and Last is the highest id that was issued. If Until
	// is lower than Last, some rows were not examined. Both may be 0 if all rows were examined.
	Until, Last int64
}

// All reports whether all rows were examined.
func (f Found) All() bool { return f.Until >= f.Last }

// MostParkedError is the maximum length of Parked.Error, in characters.
const MostParkedError = 200

// Parked is a parked message without its payload and headers.
type Parked struct {
	ID         int64
	Lane       int
	Topic, Key string
	Sinks      string // as in Row
	HoldsKey   bool   // the Hold of the row is HoldsKey
	Error      string // the first MostParkedError characters of last_error

	// Overtaken reports that a message with the same key and a higher id, of any topic, was delivered and
	// is still in the table. Dead letters and copies by replays, messages that the retention has deleted,
	// and messages that are being sent are not considered.
	Overtaken bool
}

// TxStore is implemented by a Store over a SQL database. It runs a handler in the transaction that
// marks the message as done, so that the writes of the handler take effect exactly once.
type TxStore interface {
	// HandleTx begins a transaction, locks the lane against a takeover if the table is claimed by lanes,
	// marks the row done for all or some of its sinks, runs the handler, and commits. If the row could
	// not be marked because it no longer belongs to this relay, it returns ErrFenced without running the
	// handler. If the handler returns an error, HandleTx rolls everything back and returns that error
	// unchanged.
	HandleTx(ctx context.Context, relay string, keep bool, done Settlement, handler func(context.Context, *sql.Tx) error) error
}
