package memstore

import (
	"errors"
	"maps"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Save returns what puts the table back as it is now: its rows, its leases, its
// relays and the ids that it has given out, all at once, as an asynchronous failover
// does, or a crash of a server that commits before it has written to its disk.
// Transactions and settlements that are under way are lost by it. What relays and
// sinks have in memory stays. The restore may be called again.
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

// Renumber has the next id be this one, or the next that no row of the hot table
// has: as TRUNCATE with RESTART IDENTITY does, or a sequence that a restore forgot.
func (db *DB) Renumber(next int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.lastID, db.again = next-1, true
}

// Messages returns the ids of all messages that the table has, in whatever state.
func (db *DB) Messages() map[string]bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	found := map[string]bool{}
	for _, r := range db.selected(storage.Filter{}) {
		found[r.row.Message.ID] = true
	}
	return found
}

// errLost is what a settlement gets that was under way when the server lost what
// it had not saved.
var errLost = errors.New("the server has lost the transaction")
