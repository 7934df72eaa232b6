package relay

import (
	"context"
	"database/sql"
	"time"
)

// Filter selects messages for an operator. Empty fields select everything;
// those that are set must all match.
type Filter struct {
	IDs     []string  // each a row's id in decimal, or a message's id
	Topic   string    // exactly this topic
	Key     string    // exactly this key
	State   State     // only this state
	Since   time.Time // written at or after
	Error   string    // last_error contains this text
	AfterID int64     // only higher ids: the next page of a listing
	Limit   int       // at most so many; 0 means 100 for a listing, all for a change
}

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
	Name     string    `json:"name"`
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Claim    Claim     `json:"claim"`
	Since    time.Time `json:"since"`
	LastBeat time.Time `json:"last_beat"`
	Alive    bool      `json:"alive"`
	Lanes    int       `json:"lanes"` // leased now
}

// Status is what a table holds, counted.
type Status struct {
	Claim         Claim            `json:"claim"` // empty before the first relay
	Counts        map[State]int64  `json:"-"`     // all six states
	OldestPending time.Duration    `json:"-"`     // age of the oldest row that could be delivered now; 0 without one
	Relays        []RelayInfo      `json:"relays"`
	LanesLeased   int              `json:"lanes_leased"`
	Topics        map[string]int64 `json:"-"` // pending rows by topic, of the first 1,000 rows
}

// Operator is what people do with a table. sqlstore implements it. Its changes
// run in batches, each in a transaction of its own, and never touch a row that
// a relay may be sending.
type Operator interface {
	// Status counts.
	Status(ctx context.Context) (Status, error)

	// List returns messages by id, lowest first.
	List(ctx context.Context, filter Filter) ([]Info, error)

	// Requeue makes parked messages due at once, with no attempts charged, and
	// says how many. Other states are not touched.
	Requeue(ctx context.Context, filter Filter) (int, error)

	// Discard deletes parked messages for good and says how many. Other states
	// are not touched.
	Discard(ctx context.Context, filter Filter) (int, error)
}

// TxStore is implemented by a Store over a SQL database: its way for handlers
// whose writes commit together with the mark, so that their effect happens
// exactly once.
type TxStore interface {
	// HandleTx locks the fence, marks the row done and requires that this
	// changed it, runs the handler, and commits. An error of the handler rolls
	// everything back and is returned as it is; ErrFenced means that the row is
	// no longer this relay's.
	HandleTx(ctx context.Context, relay string, keep bool, done Settlement, handler func(context.Context, *sql.Tx) error) error
}
