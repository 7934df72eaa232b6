package relay

import (
	"context"
	"time"
)

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

	// Tickets are what of the lane may be at an exact sink already.
	Tickets []Ticket
}

// Suspect is a message that was being sent when its relay died: it may have
// brought the relay down.
type Suspect struct {
	ID      int64  `json:"id"`
	Check   uint32 `json:"check"`             // of its message, as in a Ticket
	Crashes int    `json:"crashes,omitempty"` // relays that died before while it alone was being sent
	Alone   bool   `json:"alone,omitempty"`   // nothing else was being sent
}

// Ticket is what lies in one lane of a batch that goes to a sink which
// recognises it when it comes again. It holds until its rows are settled.
type Ticket struct {
	Sink   string  `json:"sink"`
	Batch  string  `json:"batch"`
	Size   int     `json:"size"`   // rows of the batch, in all lanes
	IDs    []int64 `json:"ids"`    // the rows
	Places []int   `json:"places"` // and where each stands in the batch

	// Checks has a checksum of each row's message: an id may have been given to
	// another one since, which is none of the batch.
	Checks []uint32 `json:"checks"`
}

// each calls take with each of the rows, as they are in a lane, and their places. A
// ticket that can't be read whole has the rows that can.
func (t *Ticket) each(lane int, take func(ref rowRef, place int)) {
	for i := range min(len(t.IDs), len(t.Places), len(t.Checks)) {
		take(rowRef{lane, t.IDs[i], t.Checks[i]}, t.Places[i])
	}
}

// Journal is what is about to be sent of one lane.
type Journal struct {
	Lease
	Suspects []Suspect
	Tickets  []Ticket
}

// Journaler is implemented by a Store that can remember what is being sent: so
// that a message that brings its relays down is found and parked, and for sinks
// that are exact. Without one, neither is done.
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

// HeldKey is a key whose next message waits for another attempt.
type HeldKey struct {
	Lane  int
	Key   string
	Topic string
	ID    int64
}

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

	// Through: where there is more, every position was read up to this id at least
	// (or to its end). 0 where the store can't say.
	Through int64

	// LateAfter: since the last Read of this Store that returned without an
	// error, rows may have appeared with ids above this one, also at or below
	// ids that had been read; in any lane, visited or not. Negative where none
	// can have.
	LateAfter int64

	// Horizon: no row can appear any more at or below this id.
	Horizon int64

	// Given: no higher id was given out, as far as the store knows. It is lower than
	// before where it has seen that ids began anew.
	Given int64

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
	Bytes int // of its payload
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

	// HeldAmong returns those of these keys that a retry holds, each with the
	// lowest id of each topic, in no order: all that was committed before it was
	// called counts. It is asked for a page's keys, each once, and must not take
	// longer where more keys are held.
	HeldAmong(ctx context.Context, keys []LaneKey) ([]HeldKey, error)

	// Read returns up to limit pending rows at the given positions, and stops
	// early once it has maxBytes of payload (but returns one row at least). What
	// it returns of a position is without gaps; where it can't read them all to
	// their end, the page says More, and which ones it has visited is its own
	// choice. Without positions it returns no rows, and what else a page tells.
	Read(ctx context.Context, positions []Position, limit, maxBytes int) (Page, error)

	// LastID returns the highest id that was given out. A page may know only of those
	// that rows have shown. It is called where Read is, in turn.
	LastID(ctx context.Context) (int64, error)

	// Scan walks over the pending rows at the given positions, up to
	// [ScanTogether] of them, and returns those that keep approves, in the order
	// of ids, and the positions that are left to walk. Rows of the topics in
	// except may be left out, so that they need not be sent.
	Scan(ctx context.Context, positions []Position, except []string, keep func(Candidate) bool) (rows []Row, left []Position, err error)

	// Distrust is told that a row was found where a page had said that none can
	// appear: the store concludes from now on from what it sees from now on. It is
	// called where Read is, in turn.
	Distrust()

	// Due returns up to limit held rows of the lanes that are due now
	// (scheduled or retry), by their time, after the cursor.
	Due(ctx context.Context, lanes []int, after DueCursor, limit, maxBytes int) ([]Row, DueCursor, error)
}
