package memstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Tx is a producer's transaction. Only one goroutine may use a Tx.
type Tx struct {
	db        *DB
	rows      []*record
	committed bool
}

// Begin starts a transaction. It stays open until Commit or Rollback.
func (db *DB) Begin() *Tx {
	db.mu.Lock()
	defer db.mu.Unlock()
	tx := &Tx{db: db}
	db.open[tx] = true
	return tx
}

// Insert writes a message and returns the id of its row. The row has this id from now on: a
// rollback leaves a gap in the ids, and after a late commit the row appears below rows that have
// already been read. A message without an ID gets an ID that contains the number of rows written
// so far.
func (tx *Tx) Insert(message outbox.Message) int64 {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	id := tx.db.nextID(message.Key)
	tx.insert(id, message)
	return id
}

// nextID assigns the next id.
func (db *DB) nextID(key string) int64 {
	db.lastID++
	for db.again && db.taken(key, db.lastID) {
		db.lastID++ // this id is taken; a real producer's INSERT would fail, and the producer would repeat it with the next id
	}
	return db.lastID
}

// InsertAs writes a message and gives its row an id that was assigned before, as a database does
// after its id sequence was reset. The caller makes sure that no pending row has this id.
func (tx *Tx) InsertAs(id int64, message outbox.Message) {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.insert(id, message)
}

func (tx *Tx) insert(id int64, message outbox.Message) {
	tx.db.written++
	tx.db.observe(context.Background(), OpAssign, []Change{{At: tx.db.now(), Op: OpAssign, Lane: laneOf(message.Key, id), ID: id}})
	tx.rows = append(tx.rows, &record{state: storage.StatePending, row: storage.Row{
		ID:        id,
		Lane:      laneOf(message.Key, id),
		Message:   own(message, tx.db.written),
		CreatedAt: tx.db.now(),
	}})
}

// taken reports whether a pending row or a row of an open transaction has the id.
func (db *DB) taken(key string, id int64) bool {
	lane := laneOf(key, id)
	if _, there := db.find(lane, id); there {
		return true
	}
	for tx := range db.open {
		for _, r := range tx.rows {
			if r.row.ID == id && r.row.Lane == lane {
				return true
			}
		}
	}
	return false
}

// Commit makes the rows visible in one step.
func (tx *Tx) Commit() { tx.end(true) }

// Committed reports whether Commit has taken effect. If the table loses commits, open transactions
// are lost, too, and their Commit has no effect.
func (tx *Tx) Committed() bool {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	return tx.committed
}

// Rollback discards the rows. After Commit it does nothing.
func (tx *Tx) Rollback() { tx.end(false) }

func (tx *Tx) end(commit bool) {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if !tx.db.open[tx] {
		return
	}
	delete(tx.db.open, tx)
	tx.committed = commit
	if !commit {
		var changes []Change
		for _, r := range tx.rows {
			changes = append(changes, Change{At: tx.db.now(), Op: OpRollback, ID: r.row.ID, Lane: r.row.Lane})
		}
		tx.db.observe(context.Background(), OpRollback, changes)
		return
	}
	before := len(tx.db.history)
	tx.db.appear(tx.rows)
	for _, r := range tx.rows {
		tx.db.note(Change{Op: OpInsert, ID: r.row.ID, Lane: r.row.Lane, To: storage.StatePending})
	}
	tx.db.observe(context.Background(), OpInsert, tx.db.history[before:])
}

// Write inserts messages in one transaction and returns the ids of their rows.
func (db *DB) Write(messages ...outbox.Message) []int64 {
	tx := db.Begin()
	defer tx.Commit()
	ids := make([]int64, len(messages))
	for i, message := range messages {
		ids[i] = tx.Insert(message)
	}
	return ids
}

// Cancel deletes scheduled messages in one transaction, as a producer does. It doesn't delete messages
// that become due within the given duration. It returns the ids of the deleted messages, in lower case
// and sorted.
func (db *DB) Cancel(ahead time.Duration, messageIDs ...string) (cancelled []string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	due := db.now().Add(ahead)
	for _, r := range db.selected(storage.Filter{State: storage.StateScheduled}) {
		given := slices.ContainsFunc(messageIDs, func(id string) bool { return strings.EqualFold(id, r.row.Message.ID) })
		if given && r.row.Message.AvailableAt.After(due) {
			db.delete(r)
			cancelled = append(cancelled, strings.ToLower(r.row.Message.ID))
			db.observe(context.Background(), OpDiscard, db.history[len(db.history)-1:])
		}
	}
	slices.Sort(cancelled)
	return cancelled
}

// Delete deletes the pending and deferred rows for which the function `match` returns true, as an
// administrator could with an SQL statement, and returns the number of deleted rows.
func (db *DB) Delete(match func(storage.Row) bool) (deleted int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	rows := db.hotRows(func(*record) bool { return true })
	for _, r := range db.held.rows {
		rows = append(rows, r)
	}
	for _, r := range rows {
		if match(r.row) {
			db.delete(r)
			deleted++
		}
	}
	return deleted
}

// delete deletes a pending or deferred row.
func (db *DB) delete(r *record) {
	db.remove(r)
	db.held.take(r.identity())
	db.note(Change{Op: OpDiscard, ID: r.row.ID, Lane: r.row.Lane, From: r.state})
}

// own returns a copy of a message, so that the table shares no memory with the writer.
func own(message outbox.Message, number int64) outbox.Message {
	if message.ID == "" {
		message.ID = fmt.Sprintf("00000000-0000-7000-8000-%012x", number)
	}
	message.Payload = bytes.Clone(message.Payload)
	message.Headers = maps.Clone(message.Headers)
	return message
}
