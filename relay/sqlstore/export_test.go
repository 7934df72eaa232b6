package sqlstore

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// BackendOn returns the same backend over another pool.
func (s *Store) BackendOn(db *sql.DB) backend.Backend {
	return backendOf(db, s.dialect, s.table, nil)
}

// Wrap puts something in the place of the store's backend.
func (s *Store) Wrap(wrap func(backend.Backend) backend.Backend) { s.backend = wrap(s.backend) }
