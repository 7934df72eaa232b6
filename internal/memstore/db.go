// Package memstore is a table of messages in memory: a [storage.Store], a [storage.Operator] and a
// producer's transactions. Tests and simulations of the engine use it. It starts no goroutine, and
// takes the time from a replaceable clock, so it works under testing/synctest. The same calls
// always have the same results. Hooks can delay calls, make them fail, or lose their responses.
package memstore

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// DB is a table of messages, which producers, operators and relays share. Its methods may be called
// concurrently. Now, Hooks and Observe must be set before the DB is used.
type DB struct {
	// Now is the database's clock. Defaults to time.Now.
	Now func() time.Time

	// Hooks apply to the calls of all handles.
	Hooks Hooks

	// Observe may be nil.
	Observe Observe

	mu       sync.Mutex
	lastID   int64
	written  int64 // the number of rows written so far; messages without an ID get an ID that contains this number
	epochs   int   // the number of times that the table has lost commits
	again    bool  // ids may be assigned again
	open     map[*Tx]bool
	appeared []int64 // the lowest id of each commit, in the order of the commits
	hot      [storage.Lanes][]*record
	held     heldTable
	done     []*record // rows are in the order in which they were finished
	lanes    [storage.Lanes]lane
	relays   map[string]*relayRow
	claim    storage.Claim
	replays  map[string]storage.Replay
	controls []storage.Control       // sorted by kind and name
	actions  []storage.Action        // oldest first
	locked   map[int64]chan struct{} // rows that LockRow has locked, by id
	waiting  int                     // settlements that wait for a locked row
	history  []Change
}

// record is a row of one of the three tables. A record is never changed, only replaced.
type record struct {
	row          storage.Row
	state        storage.State // always StatePending in the table of pending rows
	lastError    string
	attemptLog   storage.AttemptLog
	claimedBy    string
	token        string
	claimedUntil time.Time
	receipt      string
	relay        string
	finishedAt   time.Time
}

// identity identifies a row. The id alone is not unique, because ids may be assigned again, and a
// message for several sinks may have a row for each sink.
type identity struct {
	lane    int
	id      int64
	message string
	sinks   string
}

func (r *record) identity() identity {
	return identity{r.row.Lane, r.row.ID, r.row.Message.ID, r.row.Sinks}
}

type lane struct {
	owner     string
	fence     int64
	until     time.Time
	marks     storage.Marks
	crashes   int
	settling  int // the number of settlements that have locked the lane
	suspects  []storage.Suspect
	batchRefs []storage.SentBatch
}

type relayRow struct {
	storage.Identity
	since, lastBeat, until time.Time
}

// New returns an empty table.
func New() *DB {
	return &DB{
		Now:     time.Now,
		open:    map[*Tx]bool{},
		held:    newHeldTable(),
		relays:  map[string]*relayRow{},
		locked:  map[int64]chan struct{}{},
		replays: map[string]storage.Replay{},
	}
}

// now returns the database's time in whole microseconds.
func (db *DB) now() time.Time {
	return db.Now().UTC().Truncate(time.Microsecond)
}

// safeID returns the highest id such that no new row with this or a lower id can appear.
func (db *DB) safeID() int64 {
	safeID := db.lastID
	for tx := range db.open {
		if len(tx.rows) > 0 {
			safeID = min(safeID, lowest(tx.rows)-1)
		}
	}
	return safeID
}

// lowest returns the lowest id of the rows. The first row need not have the lowest id, because
// the id sequence may be reset while the rows' transaction is open.
func lowest(rows []*record) int64 {
	id := rows[0].row.ID
	for _, r := range rows {
		id = min(id, r.row.ID)
	}
	return id
}

// appear makes rows visible in the table of pending rows.
func (db *DB) appear(rows []*record) {
	if len(rows) == 0 {
		return
	}
	for _, r := range rows {
		db.insert(r)
	}
	db.appeared = append(db.appeared, lowest(rows))
}

func (db *DB) insert(r *record) {
	place, _ := db.find(r.row.Lane, r.row.ID)
	db.hot[r.row.Lane] = slices.Insert(db.hot[r.row.Lane], place, r)
}

// find returns the index of a row in its lane's list of pending rows.
func (db *DB) find(lane int, id int64) (place int, there bool) {
	if lane < 0 || lane >= storage.Lanes {
		return 0, false
	}
	return slices.BinarySearchFunc(db.hot[lane], id, func(r *record, id int64) int {
		return int(min(1, max(-1, r.row.ID-id)))
	})
}

// remove deletes a pending row.
func (db *DB) remove(r *record) {
	if place, there := db.find(r.row.Lane, r.row.ID); there && db.hot[r.row.Lane][place].identity() == r.identity() {
		db.hot[r.row.Lane] = slices.Delete(db.hot[r.row.Lane], place, place+1)
	}
}

// replace replaces a pending row with a changed version of the row.
func (db *DB) replace(r *record) {
	if place, there := db.find(r.row.Lane, r.row.ID); there {
		db.hot[r.row.Lane][place] = r
	}
}

// laneOf computes a row's lane. In a real database, the table computes the lane.
func laneOf(key string, id int64) int {
	if key == "" {
		return int(id & (storage.Lanes - 1))
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	sum := hash.Sum64()
	return int((sum ^ sum>>32) & (storage.Lanes - 1))
}

// Claim returns the table's claim mode, which is empty until a relay has started.
func (db *DB) Claim() storage.Claim {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.claim
}
