package sqlstore

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
)

// BackendOn returns a backend of the same kind and table that uses another pool.
func (s *Store) BackendOn(db *sql.DB) backend.Backend {
	return s.product.New(db, s.dialect, s.table, nil)
}

// Wrap replaces the store's backend by the result of wrap.
func (s *Store) Wrap(wrap func(backend.Backend) backend.Backend) { s.backend = wrap(s.backend) }

// SetClock replaces the query of the database's time.
func (s *Store) SetClock(query string) { s.capabilities.Statements["clock"] = query }
