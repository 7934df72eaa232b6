package memstore

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Change is an entry of the table's history: a change of a row or of a lane, by which relay and
// under which lease.
type Change struct {
	At    time.Time
	Op    Op
	Relay string // the relay that made the change; empty for producers and operators
	Lane  int
	Fence int64  // of the lease that the call named, or that was granted
	Token string // by rows: the claim that the call named, or that was made

	// ID is the row, or 0 for a change of a lane. From and To are its states; To is empty if the
	// row was deleted.
	ID       int64
	From, To storage.State
	Attempts int

	// For and Left are set if the settlement was for some of the row's sinks. Apart from its sinks, the
	// row itself did not change.
	For, Left string

	// Refused marks a settlement that changed nothing, because its lease was lost (Fenced) or its
	// row did not exist.
	Refused bool
	Fenced  bool
}

// History returns all changes so far in the order of time.
func (db *DB) History() []Change {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.history)
}

func (db *DB) note(c Change) {
	c.At = db.now()
	db.history = append(db.history, c)
}
