package sqlstore

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
)

// BackendOn returns the same backend over another pool.
func (s *Store) BackendOn(db *sql.DB) backend.Backend {
	return s.product.New(db, s.dialect, s.table, nil)
}

// Wrap puts something in the place of the store's backend.
func (s *Store) Wrap(wrap func(backend.Backend) backend.Backend) { s.backend = wrap(s.backend) }

// SetClock has the store ask for the database's time in another way.
func (s *Store) SetClock(query string) { s.capabilities.Statements["clock"] = query }
