package memstore

import "strconv"

// epoch names the state of the server: it grows whenever the server may have lost
// what it had committed.
func (db *DB) epoch() string { return strconv.Itoa(db.epochs) }

// FoundLate implements [storage.LaneStore]. What a page tells comes from the table
// itself, and needs no trust.
func (s *Store) FoundLate() {}
