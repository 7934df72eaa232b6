package memstore

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Change is an entry of the table's history. It describes a change of a row or of a lane, with the
// relay that made the change and the relay's lease.
type Change struct {
	At    time.Time
	Op    Op
	Relay string // the relay that made the change or, if a claim has expired, the relay that had the claim; empty for producers and operators
	Lane  int
	Fence int64  // the fence of the lease that was passed to the call, or that the call granted
	Token string // by rows: the token of the claim that the call named or made

	// ID is the row's id, or 0 for a change of a lane. From and To are the row's states before and
	// after the change; To is empty if the row was deleted.
	ID       int64
	From, To storage.State
	Attempts int

	// For and Left are set if the settlement was only for some of the row's sinks. Such a settlement
	// changes only the sinks of the row itself.
	For, Left string

	// Refused marks a settlement that changed nothing, because its lease was lost (Fenced) or its
	// row did not exist.
	Refused bool
	Fenced  bool
}

// History returns all changes so far, the oldest first.
func (db *DB) History() []Change {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.history)
}

func (db *DB) note(c Change) {
	c.At = db.now()
	db.history = append(db.history, c)
}
