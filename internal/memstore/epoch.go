package memstore

import "strconv"

// epoch names the state of the server. It changes whenever the server may have lost commits.
func (db *DB) epoch() string { return strconv.Itoa(db.epochs) }

// FoundLate implements [storage.LaneStore]. It does nothing, because pages are computed from the
// table itself.
func (s *Store) FoundLate() {}
