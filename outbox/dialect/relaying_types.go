package dialect

import (
	"math"
	"time"
)

// Beat is a relay's sign of life.
type Beat struct {
	Name, Host, Version, Claim string
	TTL                        time.Duration
}

// Lease is a lane and its fence, with what is to be stored with it.
type Lease struct {
	Lane    int
	Fence   int64
	Marks   string
	Journal string
	Calm    bool // clears the count of crashes and the journal
}

// Position is where a reading of one lane goes on.
type Position struct {
	Lane         int
	After, Until int64  // Until is inclusive
	Key          string // empty: all keys
}

// Read asks for pending rows.
type Read struct {
	Positions []Position // either all have a key, or none has
	Limit     int        // at most so many rows

	// Share is about how many rows of one position are read, so that rows that
	// were written at about the same time, and lie together, are read together.
	// On PostgreSQL it bounds the rows of each position, on SQLite the span of
	// ids. 0 means no bound, and so does any number to a [Walking] dialect.
	Share int

	// MaxBytes: the reading may stop once it has so many bytes of payload, if it
	// is positive. Finding out costs something.
	MaxBytes int

	// Number: the transaction is to have a number.
	Number bool
}

// After is the held row that a reading goes on after.
type After struct {
	At time.Time
	ID int64
}

// Settlement is a row's new state.
type Settlement struct {
	ID        int64
	Lane      int
	MessageID string // 36 characters, hexadecimal digits and hyphens
	Fence     int64  // by lanes
	Token     string // by rows
	Held      bool   // it is a held row
	State     string // done, retry, error, scheduled; by rows also pending
	Attempts  int
	Crashes   int
	Delay     time.Duration
	Error     string // empty: the old one stays
	Receipt   string
}

// Settle is a change of many rows, in one transaction: Begin, then Facts, then
// Writes. If there is nothing but Facts, that is a transaction by itself.
//
// Facts has rows of a word and two numbers: ("lane", lane, fence) for each lease
// that held, ("changed", rows, 0), ("fenced", rows, 0), ("xid", xid, 0). The rows
// that Writes affect count as changed where they say so.
type Settle struct {
	Begin  []Query
	Facts  Query
	Writes []Write

	// Then, if it isn't nil, makes the Writes when the Facts are known: holds
	// says whether a lease held.
	Then func(holds func(lane int, fence int64) bool) []Write
}

// Write is one statement of a change.
type Write struct {
	Query
	Counts bool

	// After, if it isn't nil, says that the query selects: the first column of
	// its rows are the rows to change. These count, and After makes what changes
	// them. That is for where one statement can't do both; a Settle has none.
	After func(first []int64) []Query
}

// Purge asks for the deletion of done rows.
type Purge struct {
	Retention time.Duration // those that finished longer ago
	Limit     int

	// Since, if it isn't zero, leaves out what finished before: what was deleted
	// there may have left something behind that is slow to pass over.
	Since time.Time
}

// Claim asks for rows.
type Claim struct {
	Relay, Token   string
	TTL            time.Duration
	Limit          int
	MaxBytes       int    // of payload: no row after the one that reaches it; 0 means no bound
	Pick           string // oldest, newest, priority
	Topics, Except []string
}

// mostBytes is the bound where a statement needs one.
func (c Claim) mostBytes() int {
	if c.MaxBytes <= 0 {
		return math.MaxInt64
	}
	return c.MaxBytes
}

// Filter selects messages. Empty fields select all.
type Filter struct {
	IDs               []int64
	MessageIDs        []string
	ByID              bool // the two above select, even if both are empty
	Topic, Key, State string
	Since             time.Time
	Error             string
	AfterID           int64
	Limit             int
}

// Probe is one question of a check. Its query selects lines: text in any number
// of columns.
type Probe struct {
	Name  string
	Query Query

	// Judge says what is wrong with the answer, and what to do; nothing if all
	// is well. An answer is its lines, with blanks between columns.
	Judge func(answer []string) (wrong, hint string)
}

// The flags of a row.
const (
	HasPayload = 1 // its payload isn't NULL, though it may be empty
	IsLater    = 2 // its time is still to come
	IsRetry    = 4 // a held row that waits for its next attempt
	IsUTF16    = 8 // its payload is text in UTF-16, little-endian, and is to be handed on in UTF-8
)

// SizeOne is what each byte of a row's payload adds to its flags, where drivers
// are known to cut payloads off.
const SizeOne = 1 << 16

// RowIndexCount is the number of indexes that claiming by rows needs.
const RowIndexCount = 3
