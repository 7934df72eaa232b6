package memstore

import (
	"errors"
	"maps"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Save saves the table's rows, leases, relays, claim mode and last assigned id, and returns a function that restores
// them. A call of the function is like an asynchronous failover, or like the crash of a server that confirms commits
// before it writes them to disk. Open transactions and settlements in progress are lost, but relays and sinks keep
// their memory. The function may be called repeatedly.
func (db *DB) Save() (restore func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	lastID, claim, lanes := db.lastID, db.claim, db.lanes
	held, relays, done := db.held.clone(), maps.Clone(db.relays), slices.Clone(db.done)
	hot := db.hot
	for i := range hot {
		hot[i] = slices.Clone(hot[i])
	}
	return func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.lastID, db.claim = lastID, claim
		db.held, db.relays, db.done = held.clone(), maps.Clone(relays), slices.Clone(done)
		for i := range hot {
			db.hot[i] = slices.Clone(hot[i])
			settling := db.lanes[i].settling
			db.lanes[i] = lanes[i]
			db.lanes[i].settling = settling
		}
		clear(db.open)
		db.epochs++
		db.again = true
	}
}

// Renumber resets the id sequence. The next row gets the given id or, if that id is taken, the
// first higher id that is free. A real sequence is reset by TRUNCATE with RESTART IDENTITY, or
// by a restore without the sequence.
func (db *DB) Renumber(next int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.lastID, db.again = next-1, true
}

// Messages returns the ids of all messages in the table, in any state.
func (db *DB) Messages() map[string]bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	found := map[string]bool{}
	for _, r := range db.selected(storage.Filter{}) {
		found[r.row.Message.ID] = true
	}
	return found
}

// errLost is the error of a settlement that was in progress when the server lost commits.
var errLost = errors.New("the server has lost the transaction")
