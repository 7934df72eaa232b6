// Package memstore is a table of messages in memory: a [storage.Store], a
// [storage.Operator] and a producer's transactions. It is made for tests and
// simulations of the engine: it starts no goroutine, takes the time from a
// clock that may be replaced (and so works under testing/synctest), answers
// the same calls in the same way each time, and can be told to be slow, to
// fail, and to lose its answers.
package memstore

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// DB is one table of messages, shared by producers, operators and relays. Its
// methods may be called at the same time. Now and Hooks are set before it is
// used.
type DB struct {
	// Now is the database's clock. Defaults to time.Now.
	Now func() time.Time

	// Hooks apply to the calls of all handles.
	Hooks Hooks

	mu       sync.Mutex
	lastID   int64
	written  int64 // rows so far, and so what tells messages without an ID apart
	epochs   int   // how often the table fell back
	again    bool  // ids come again
	open     map[*Tx]bool
	appeared []int64 // for each commit the lowest id that it brought
	hot      [storage.Lanes][]*record
	held     heldTable
	done     []*record // in the order in which they were finished
	lanes    [storage.Lanes]lane
	relays   map[string]*relayRow
	claim    storage.Claim
	replays  map[string]storage.Replay
	controls []storage.Control       // by kind and name
	actions  []storage.Action        // the first one first
	locked   map[int64]chan struct{} // rows that LockRow has locked
	waiting  int                     // settles that wait for them
	history  []Change
}

// record is a row of one of the three tables. It is replaced, never changed.
type record struct {
	row          storage.Row
	state        storage.State // pending in the hot table
	lastError    string
	claimedBy    string
	token        string
	claimedUntil time.Time
	receipt      string
	relay        string
	finishedAt   time.Time
}

// identity is by what a row is known: ids may be given out again, and a message of
// several sinks may have a row for each.
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
	settling  int // settles that have locked the lane
	suspects  []storage.Suspect
	batchRefs []storage.SentBatch
}

type relayRow struct {
	storage.Identity
	since, lastBeat, until time.Time
}

// New makes an empty table.
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

// now is the database's time, in the microseconds that databases keep.
func (db *DB) now() time.Time {
	return db.Now().UTC().Truncate(time.Microsecond)
}

// safe id is the highest id below which no transaction can commit any more.
func (db *DB) safeID() int64 {
	safeID := db.lastID
	for tx := range db.open {
		if len(tx.rows) > 0 {
			safeID = min(safeID, lowest(tx.rows)-1)
		}
	}
	return safeID
}

// lowest returns the lowest of the rows' ids: not the first one's, if ids began anew
// while their transaction was open.
func lowest(rows []*record) int64 {
	id := rows[0].row.ID
	for _, r := range rows {
		id = min(id, r.row.ID)
	}
	return id
}

// appear makes rows visible in the hot table.
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

// find returns the place of a row in its lane of the hot table.
func (db *DB) find(lane int, id int64) (place int, there bool) {
	if lane < 0 || lane >= storage.Lanes {
		return 0, false
	}
	return slices.BinarySearchFunc(db.hot[lane], id, func(r *record, id int64) int {
		return int(min(1, max(-1, r.row.ID-id)))
	})
}

// remove takes a row out of the hot table.
func (db *DB) remove(r *record) {
	if place, there := db.find(r.row.Lane, r.row.ID); there && db.hot[r.row.Lane][place].identity() == r.identity() {
		db.hot[r.row.Lane] = slices.Delete(db.hot[r.row.Lane], place, place+1)
	}
}

// replace puts a changed row in the place of the old one.
func (db *DB) replace(r *record) {
	if place, there := db.find(r.row.Lane, r.row.ID); there {
		db.hot[r.row.Lane][place] = r
	}
}

// laneOf computes a row's lane, as the table itself does elsewhere.
func laneOf(key string, id int64) int {
	if key == "" {
		return int(id & (storage.Lanes - 1))
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	sum := hash.Sum64()
	return int((sum ^ sum>>32) & (storage.Lanes - 1))
}

// Claim is the way in which the table is claimed; empty before the first relay.
func (db *DB) Claim() storage.Claim {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.claim
}
