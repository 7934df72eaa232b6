package memstore

import "strconv"

// epoch identifies a period in which the server has lost no commits. It changes whenever the
// server may have lost commits.
func (db *DB) epoch() string { return strconv.Itoa(db.epochs) }

// FoundLate implements [storage.LaneStore]. It does nothing, because a page's safe id is always
// exact.
func (s *Store) FoundLate() {}
