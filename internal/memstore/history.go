package memstore

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Change is one line of the table's history: what was done to a row or to a
// lane, by whom and under which lease.
type Change struct {
	At    time.Time
	Op    Op
	Relay string // who did it; empty for producers and operators
	Lane  int
	Fence int64  // of the lease that was shown or given
	Token string // by rows: the claim that was shown or given

	// ID is the row, or 0 for a change of a lane. From and To are its states;
	// To is empty where the row was deleted.
	ID       int64
	From, To storage.State
	Attempts int

	// For and Left are those of a settlement for some of the row's sinks. The row itself
	// stays as it was, but for its sinks.
	For, Left string

	// Refused: a settlement that changed nothing, since its lease was
	// another's (Fenced) or its row was gone.
	Refused bool
	Fenced  bool
}

// History returns all changes so far, in the order in which they happened.
func (db *DB) History() []Change {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.history)
}

func (db *DB) note(c Change) {
	c.At = db.now()
	db.history = append(db.history, c)
}
