package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/outbox"
)

// Lanes is the number of classes that keys fall into. It is part of the
// table's contract: the table computes a row's lane from its key.
const Lanes = 64

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

// Settlement writes back what became of one row. The row is known by its id, its
// lane and its message: after a failover or a restore of the database an id may be
// given to another message, which is not this settlement's to change.
type Settlement struct {
	ID        int64
	Lane      int
	MessageID string // as it was read
	Fence     int64  // by lanes: the fence of the lease that it was read under
	Token     string // by rows: the token that it was claimed with
	Held      bool   // where the row was read from, as in Row

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
	Missing int // not changed: not there any more (settled before, taken away by an operator, or its id is another message's now)
}
